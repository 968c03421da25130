"""How much a benchmark measures, and the model that it measures."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from protopyramid.config import load_config
from protopyramid.config.schema import Config, TrainPhaseConfig, unrolled
from protopyramid.losses.build import build_objective
from protopyramid.model.backbones import IMAGE, VGG16
from protopyramid.model.build import build_model
from protopyramid.model.network import PrototypeNetwork
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.training.features import FeatureBatch
from protopyramid.training.parts import make_optimiser, set_learning, set_modes

PRESET = "fpn-iaia-bl"
# What both sides of a ratio must have in common: with a ridge the fit of the head has an optimum, and
# ProtoPNet's loop searches the images of a prototype's own class.
COMPARABLE = {
    "head_fit.ridge": 1e-3,
    "head_fit.balance": True,
    "projection.source": "class",
    "projection.unique": "image",
}


@dataclass(frozen=True)
class Settings:
    """Batch sizes and repetitions; `overrides` make the model small in tests."""

    batch: int = 8
    step_batch: int = 8
    cached_batch: int = 32
    fine_batch: int = 32
    projected: int = 32  # images
    head_images: int = 1000
    repetitions: int = 9
    slow_repetitions: int = 5
    close_repetitions: int = 11  # of a slow pair whose target is as close as the noise of a turn
    quick_repetitions: int = 21  # of what takes milliseconds
    children: int = 3  # processes for each side of a memory row
    clients: int = 50  # that ask the reader at once
    film: tuple[int, int] = (5000, 4000)  # pixels, height and width
    predicted: int = 128  # files
    loader: bool = True
    latency: bool = (
        True  # rows on the exported and the compiled network: building them takes a minute
    )
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def config(self, **more: Any) -> Config:
        """The measured configuration: the paper's preset, made comparable, and the overrides."""
        return load_config(PRESET, {**COMPARABLE, **self.overrides, **more})


FULL = Settings()
QUICK = Settings(
    batch=4,
    step_batch=4,
    cached_batch=16,
    fine_batch=16,
    projected=12,
    repetitions=5,
    slow_repetitions=3,
    close_repetitions=5,
    quick_repetitions=9,
    clients=10,
    predicted=32,
    latency=False,
)


def channels_last(tensor: Tensor) -> Tensor:
    """Images (B, C, H, W) in the memory format that the trainer uses."""
    return tensor.contiguous(memory_format=torch.channels_last)


def random_images(count: int, size: int) -> Tensor:
    """Normalised noise (count, 3, size, size): what an image shows does not change what it costs."""
    return channels_last(torch.randn(count, 3, size, size))


def fresh_model(config: Config) -> PrototypeNetwork:
    """The network with random weights, in the memory format that the trainer uses."""
    torch.manual_seed(config.train.seed)
    model = build_model(config).eval()
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def round_masks(count: int, size: int) -> Tensor:
    """A disc in the middle of each image as its annotation. (count, size, size) uint8, 1 inside."""
    place = torch.arange(size) - size / 2
    disc = place[:, None].square() + place[None, :].square() < (0.3 * size) ** 2
    return disc.to(torch.uint8).expand(count, -1, -1).contiguous()


def fetched(maps: dict[int, Tensor], config: Config) -> FeatureBatch:
    """A batch that starts from maps {block: (B, channels, H, W)}, every image annotated."""
    count = len(next(iter(maps.values())))
    masks = round_masks(count, config.data.image_size)
    return FeatureBatch(maps, masks, torch.ones(count, dtype=torch.bool))


def fetched_images(config: Config, count: int) -> FeatureBatch:
    """A batch of `count` images of noise."""
    return fetched({IMAGE: random_images(count, config.data.image_size)}, config)


def labels_of(count: int, config: Config) -> Tensor:
    """Labels (count,): all classes in turn."""
    return torch.arange(count) % len(config.data.classes)


def train_steps(config: Config) -> Iterator[TrainPhaseConfig]:
    """The train steps of the schedule, in order."""
    return (step for step in unrolled(config.train.schedule) if isinstance(step, TrainPhaseConfig))


class TrainingStep:
    """One step of the optimiser as the trainer takes it: forward, all losses, backward, update."""

    def __init__(self, config: Config, model: PrototypeNetwork, step: TrainPhaseConfig) -> None:
        self.model, self.objective, self.step = model, build_objective(config), step
        self.optimiser = make_optimiser(set_learning(model, step.learns), step)
        set_modes(model, step.learns)

    def __call__(self, fetched: FeatureBatch, labels: Tensor) -> float:
        """Take a step on a batch that starts from the maps of any cut, labels (B,); returns the loss."""
        model = self.model
        evidence = model.evidence_from_pyramid(model.pyramid_from_maps(fetched.maps))
        losses = self.objective(
            evidence, labels, fetched.masks, fetched.annotated, model.prototypes, self.step.losses
        )
        losses.total.backward()
        if self.step.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.step.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return float(losses.total.detach())


def bare_features(model: PrototypeNetwork) -> torch.nn.Module:
    """The layers of the model's VGG-16, (B, 3, H, W) -> (B, channels, H / 16, W / 16)."""
    assert isinstance(model.backbone, VGG16)
    return model.backbone.features


def prototypes_of(model: PrototypeNetwork) -> PrototypeLayer:
    """The prototypes of a model that has some."""
    assert model.prototypes is not None
    return model.prototypes


def copy_of(model: PrototypeNetwork) -> PrototypeNetwork:
    """A copy of the model, so that training one side does not change the other."""
    return copy.deepcopy(model)
