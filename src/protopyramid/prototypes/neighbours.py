"""Global analysis: the images nearest to each prototype, one patch per image, found in one pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from protopyramid.data.manifest import Sample
from protopyramid.data.store import ImageStore
from protopyramid.inference.batches import evidence_batches
from protopyramid.model.activation import Region, activation_region
from protopyramid.prototypes.cases import layer_of
from protopyramid.runs.run import Run

NEAREST = 6  # ProtoPNet's k

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Neighbour:
    """An image near a prototype: its best cell on the prototype's level, and the region around it.

    `similarity` is that of the cell, not the pooled score; `region` is where the prototype activates.
    """

    sample: Sample
    row: int
    col: int
    similarity: float
    region: Region

    def to_json(self) -> dict[str, Any]:
        """The neighbour as plain values."""
        return {
            "image": self.sample.name,
            "label": self.sample.label,
            "split": self.sample.split,
            "row": self.row,
            "col": self.col,
            "similarity": self.similarity,
            "box": list(self.region.box),
        }


class _NearestSoFar:
    """The k nearest images so far of the prototypes of one level, with their similarity maps."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.similarity: Tensor | None = None
        self.images: Tensor | None = None
        self.maps: Tensor | None = None

    def take(self, maps: Tensor, images: Tensor) -> None:
        """Add a batch: maps (B, m, H, W) of images (B,)."""
        similarity = maps.flatten(2).amax(2).T
        places = images.expand(len(similarity), -1)
        maps = maps.transpose(0, 1)
        if self.similarity is not None and self.images is not None and self.maps is not None:
            similarity = torch.cat([self.similarity, similarity], 1)
            places = torch.cat([self.images, places], 1)
            maps = torch.cat([self.maps, maps], 1)
        kept = similarity.argsort(dim=1, descending=True, stable=True)[:, : self.k]
        self.similarity, self.images = similarity.gather(1, kept), places.gather(1, kept)
        rows = torch.arange(len(kept), device=kept.device)[:, None]
        self.maps = maps[rows, kept]


def nearest_images(
    run: Run, samples: Sequence[Sample], k: int = NEAREST, progress: Progress | None = None
) -> list[list[Neighbour]]:
    """The k images nearest to each prototype, nearest first, in the order of the prototypes."""
    layer = layer_of(run.model)
    store = ImageStore(samples, run.config.data.model_copy(update={"memory_budget": 0.0}))
    best = {level: _NearestSoFar(k) for level in layer.slices}
    size = run.config.train.eval_batch_size
    for batch in evidence_batches(run.model, store, batch_size=size, tta=False):
        for level, maps in batch.evidence.maps.items():
            best[level].take(maps.float(), torch.tensor(batch.images, device=maps.device))
        if progress is not None:
            progress(batch.images[-1] + 1, len(store))
    return [
        found
        for level in layer.slices
        for found in _neighbours(best[level], store.samples, run.config.data.image_size)
    ]


def _neighbours(best: _NearestSoFar, samples: Sequence[Sample], size: int) -> list[list[Neighbour]]:
    if best.images is None or best.maps is None:
        return []
    return [
        [_neighbour(samples[image], each, size) for image, each in zip(images, maps, strict=True)]
        for images, maps in zip(best.images.tolist(), best.maps.cpu(), strict=True)
    ]


def _neighbour(sample: Sample, similarity: Tensor, size: int) -> Neighbour:
    cell = int(similarity.argmax())
    row, col = divmod(cell, similarity.shape[1])
    region = activation_region(similarity, size, size)
    return Neighbour(sample, row, col, float(similarity.max()), region)


def misplaced(run: Run, nearest: Sequence[Sequence[Neighbour]], least: int) -> list[int]:
    """Prototypes with fewer than `least` same-class images among the nearest (ProtoPNet's rule)."""
    names = run.config.data.classes
    owners = [names[number] for number in layer_of(run.model).classes.tolist()]
    return [
        index
        for index, found in enumerate(nearest)
        if sum(each.sample.label == owners[index] for each in found) < least
    ]
