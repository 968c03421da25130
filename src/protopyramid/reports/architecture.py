"""The drawing of an architecture: figure 2 of the paper for any configuration."""

from __future__ import annotations

from pathlib import Path

from protopyramid.config.differences import system_title
from protopyramid.config.schema import BackboneConfig, Config
from protopyramid.figures.architecture_figure import ArchitectureFigureData, architecture_figure
from protopyramid.figures.drawing import save_figure
from protopyramid.model.architecture import describe
from protopyramid.model.build import build_model


def write_architecture(config: Config, path: str | Path) -> Path:
    """Draw the network of a configuration; its numbers are those of a forward pass."""
    return save_figure(architecture_figure(architecture_data(config)), path)


def architecture_data(config: Config) -> ArchitectureFigureData:
    """What is drawn of a configuration."""
    found = describe(build_model(config), config.data.image_size)
    name = system_title(config)
    return ArchitectureFigureData(
        f"{name}: architecture", backbone_name(config.model.backbone), config.data.classes, found
    )


def backbone_name(config: BackboneConfig) -> str:
    """A backbone in a few words.

    >>> backbone_name(BackboneConfig(width=0.125, batch_norm=True))
    'VGG-16, channels × 0.125, batch norm'
    """
    parts = ["VGG-16" if config.name == "vgg16" else config.name.partition(":")[2] or config.name]
    if config.width != 1:
        parts.append(f"channels × {config.width:g}")
    if config.batch_norm:
        parts.append("batch norm")
    return ", ".join(parts)
