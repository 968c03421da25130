"""Rows on projection: all of it against a forward pass, its search against ProtoPNet's loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from protopyramid.benchmarks.references import LoopedProjection
from protopyramid.benchmarks.row import Row, at_most
from protopyramid.benchmarks.settings import (
    Settings,
    fresh_model,
    labels_of,
    prototypes_of,
    random_images,
)
from protopyramid.benchmarks.timing import in_turns
from protopyramid.config.schema import Config
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.training.patches import PyramidBatch
from protopyramid.training.projection import CandidateCollector, project

PROJECTION_TARGET = 1.05  # ours: times the model's own forward passes


def projection_rows(settings: Settings) -> Iterator[Row]:
    """A projection against the model's own forward passes; then its search against ProtoPNet's."""
    config = settings.config()
    model = fresh_model(config)
    prototypes = prototypes_of(model)
    size, count = settings.batch, settings.projected
    images = random_images(size, config.data.image_size)
    labels = labels_of(count, config)
    parts = [torch.arange(count)[first : first + size] for first in range(0, count, size)]
    start = prototypes.vectors.detach().clone()

    @torch.inference_mode()
    def projected() -> None:
        search = _Search(prototypes, config, start)
        for part in parts:
            search.update(model.pyramid(images[: len(part)]), part, labels[part])
        search.finish()

    @torch.inference_mode()
    def forward() -> None:
        for part in parts:
            model(images[: len(part)])

    pair = in_turns(projected, forward, settings.close_repetitions)
    yield at_most(
        f"projection over {count} images", "this model's own forward", pair, PROJECTION_TARGET
    )
    with torch.no_grad():
        z = model.pyramid(images)

    def looped() -> None:
        loop = LoopedProjection(prototypes)
        for part in parts:
            loop.update(_first(z, len(part)), part, labels[part])

    searched = projection_search(config, count, size)
    pair = in_turns(searched, looped, settings.repetitions)
    note = "ours also keeps candidates, so that no two prototypes take the same image"
    yield at_most("projection: search alone", "ProtoPNet's loop", pair, None, note=note)


def projection_search(config: Config, count: int, size: int) -> Callable[[], None]:
    """A projection over `count` images in batches of `size` with z given: the search and the choice."""
    model = fresh_model(config)
    start = prototypes_of(model).vectors.detach().clone()
    with torch.no_grad():
        z = model.pyramid(random_images(size, config.data.image_size))
    labels = labels_of(count, config)

    def work() -> None:
        search = _Search(prototypes_of(model), config, start)
        for first in range(0, count, size):
            part = torch.arange(first, min(count, first + size))
            search.update(_first(z, len(part)), part, labels[part])
        search.finish()

    return work


class _Search:
    """A projection that puts back the prototypes it replaces, so that every turn does the same."""

    def __init__(self, prototypes: PrototypeLayer, config: Config, start: Tensor) -> None:
        self.prototypes, self.config, self.start = prototypes, config, start
        self.collector = CandidateCollector(prototypes, config.projection)
        size = config.data.image_size
        self.masks = torch.zeros(1, size, size, dtype=torch.uint8)

    def update(self, z: dict[int, Tensor], images: Tensor, labels: Tensor) -> None:
        masks = self.masks.expand(len(images), -1, -1)
        annotated = torch.zeros(len(images), dtype=torch.bool)
        self.collector.update(PyramidBatch(z, images, labels, masks, annotated))

    def finish(self) -> None:
        project(self.prototypes, self.collector.result(), self.config.projection)
        with torch.no_grad():
            self.prototypes.vectors.copy_(self.start)


def _first(z: dict[int, Tensor], count: int) -> dict[int, Tensor]:
    """The first images of z {level: (B, d, H, W)}."""
    return {level: by_level[:count] for level, by_level in z.items()}
