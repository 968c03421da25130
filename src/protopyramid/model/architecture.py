"""The architecture of a network in numbers: sizes and counts as one forward pass gives them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from protopyramid.model.backbones import IMAGE, LEVELS
from protopyramid.model.necks import AddOn, Pyramid
from protopyramid.model.network import PrototypeNetwork

Size = tuple[int, int, int]  # height, width, channels


@dataclass(frozen=True)
class LevelArchitecture:
    """One level: its maps, its prototypes and how they are pooled.

    c: the backbone's map; z: the neck's, None where there is none; prototypes: their number by class, in
    the order of the classes; pooled: k, the patches in the top-k mean, None without prototypes.
    """

    level: int
    c: Size
    z: Size | None
    prototypes: tuple[int, ...]
    pooled: int | None


@dataclass(frozen=True)
class Architecture:
    """A network in numbers.

    image: its input; levels: finest first; neck: "pyramid", "add-on" or "none"; normalised: whether the neck
    has batch norm; similarity and pooling: the kinds, None for a black box; scores: their number; layers:
    inputs and outputs of each fully connected layer, the head last; parameters: their number; top_down: the
    factor of what a level of the pyramid passes down.
    """

    image: Size
    levels: tuple[LevelArchitecture, ...]
    neck: str
    normalised: bool
    similarity: str | None
    pooling: str | None
    scores: int
    layers: tuple[tuple[int, int], ...]
    parameters: int
    top_down: float = 1.0

    @property
    def prototypes(self) -> int:
        """The number of all prototypes."""
        return sum(sum(level.prototypes) for level in self.levels)


def describe(model: PrototypeNetwork, size: int) -> Architecture:
    """The architecture of a network for images of size x size, found by passing one through it."""
    images = torch.zeros(1, 3, size, size, device=next(model.parameters()).device)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        maps = model.backbone.advance({IMAGE: images}, LEVELS)
        z = model.neck({level: maps[level] for level in model.neck.inputs})
        (scores, similarity_maps), layers = _evidence(model, z)
    model.train(was_training)
    layer = model.prototypes
    return Architecture(
        image=_size(images),
        levels=tuple(
            LevelArchitecture(
                level,
                _size(maps[level]),
                _size(z[level]) if level in z and not _unchanged(model) else None,
                _counts(model, level, layers[-1][1]),
                None
                if layer is None or level not in similarity_maps
                else layer.pooled_patches(level, similarity_maps[level]),
            )
            for level in LEVELS
        ),
        neck=_neck_kind(model),
        normalised=any(isinstance(each, nn.BatchNorm2d) for each in model.neck.modules()),
        similarity=None if layer is None else _similarity(model),
        pooling=None if layer is None else layer.pooling.kind,
        scores=scores,
        layers=tuple(layers),
        parameters=sum(each.numel() for each in model.parameters()),
        top_down=model.neck.top_down if isinstance(model.neck, Pyramid) else 1.0,
    )


def _evidence(
    model: PrototypeNetwork, z: dict[int, Tensor]
) -> tuple[tuple[int, dict[int, Tensor]], list[tuple[int, int]]]:
    """The number of scores and the maps, and the sizes of the fully connected layers as they are called."""
    called: list[tuple[int, int]] = []

    def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        called.append((inputs[0].shape[-1], output.shape[-1]))

    inside = set(model.backbone.modules()) | set(model.neck.modules())
    dense = [each for each in model.modules() if isinstance(each, nn.Linear) and each not in inside]
    hooks = [each.register_forward_hook(note) for each in dense]
    try:
        evidence = model.evidence_from_pyramid(z)
    finally:
        for hook in hooks:
            hook.remove()
    return (evidence.scores.shape[1], evidence.maps), called


def _counts(model: PrototypeNetwork, level: int, classes: int) -> tuple[int, ...]:
    """The number of prototypes of each class on a level."""
    if model.prototypes is None:
        return (0,) * classes
    own = model.prototypes.classes[model.prototypes.levels == level]
    return tuple(torch.bincount(own, minlength=classes).tolist())


def _neck_kind(model: PrototypeNetwork) -> str:
    if isinstance(model.neck, Pyramid):
        return "pyramid"
    return "add-on" if isinstance(model.neck, AddOn) else "none"


def _unchanged(model: PrototypeNetwork) -> bool:
    return _neck_kind(model) == "none"


def _similarity(model: PrototypeNetwork) -> str:
    """The similarity's kind; the distance of log-l2 may be squared."""
    assert model.prototypes is not None
    similarity = model.prototypes.similarity
    return f"{similarity.kind}, squared" if similarity.squared else similarity.kind


def _size(maps: Tensor) -> Size:
    """(1, channels, H, W) -> H, W, channels."""
    channels, height, width = (int(side) for side in maps.shape[1:])
    return height, width, channels
