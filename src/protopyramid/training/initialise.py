"""Initial prototypes: training patches of their class and level, spread by k-means++ seeding.

    collector = PatchCollector(model.prototypes, seed)
    for batch in batches:  # PyramidBatch
        collector.update(batch)
    initialise_prototypes(model.prototypes, collector.result(), seed)

A few random patches of each image are kept. Which ones depends on the seed, the image's index and the
level alone, so that batches, their order and the number of processes change nothing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.model.similarity import SMALLEST_NORM
from protopyramid.training.patches import PyramidBatch, eligible_cells, join_columns

NOISE = 0.01  # relative size of what sets repeated patches apart
LARGEST = (1 << 63) - 1


@dataclass
class CollectedPatches:
    """n patches: vectors (n, d); classes, levels, images (dataset index) and cells (n,)."""

    vectors: Tensor
    classes: Tensor
    levels: Tensor
    images: Tensor
    cells: Tensor


class PatchCollector:
    """Random patches of the training images, for the classes that have prototypes on each level."""

    def __init__(self, prototypes: PrototypeLayer, seed: int, patches_per_image: int = 4) -> None:
        self.prototypes, self.seed, self.patches_per_image = prototypes, seed, patches_per_image
        self.parts = [_no_patches(prototypes.vectors)]

    @torch.no_grad()
    def update(self, batch: PyramidBatch) -> None:
        """Take patches of a batch: inside the annotation where there is one, anywhere otherwise."""
        like = self.prototypes.vectors
        images, labels = batch.images.to(like.device), batch.labels.to(like.device)
        masks, annotated = batch.masks.to(like.device), batch.annotated.to(like.device)
        for level, rows in self.prototypes.slices.items():
            z = batch.z[level]
            size = z.shape[-2:]
            allowed = eligible_cells(masks, annotated, size)
            allowed &= torch.isin(labels, self.prototypes.classes[rows])[:, None, None]
            order = _random_order(self.seed, level, images, size[0] * size[1])
            order = order.masked_fill(~allowed.flatten(1), -1)
            drawn, cells = order.topk(min(self.patches_per_image, order.shape[1]), dim=1)
            position, column = (drawn >= 0).nonzero(as_tuple=True)
            cell = cells[position, column]
            vectors = z[position, :, cell // size[1], cell % size[1]].to(like.dtype)
            self.parts.append(
                CollectedPatches(
                    vectors,
                    labels[position],
                    torch.full_like(cell, level),
                    images[position],
                    cell,
                )
            )

    def result(self) -> CollectedPatches:
        """All patches taken so far, in an order that does not depend on the batches."""
        return merge_patches(self.parts)


def merge_patches(parts: Sequence[CollectedPatches]) -> CollectedPatches:
    """The patches of several collectors as one, whatever the order; a patch seen twice counts once."""
    joined = join_columns(parts, dim=0)
    keys = torch.stack([joined.levels, joined.images, joined.cells], dim=1)
    _, group = torch.unique(keys, dim=0, return_inverse=True)
    by_key = group.argsort(stable=True)
    first = torch.ones_like(by_key, dtype=torch.bool)
    first[1:] = group[by_key][1:] != group[by_key][:-1]
    return CollectedPatches(
        **{name: column[by_key[first]] for name, column in vars(joined).items()}
    )


@torch.no_grad()
def initialise_prototypes(
    prototypes: PrototypeLayer, collected: CollectedPatches, seed: int
) -> None:
    """Copy k-means++ seeds of the collected patches into the prototypes, class by class and level by level.

    A group with fewer distinct patches than prototypes repeats them with a little noise, and a group
    without any keeps its vectors; both cases cause a warning.
    """
    cosine = prototypes.similarity.kind == "cosine"
    groups = torch.stack([prototypes.classes, prototypes.levels], dim=1)
    for number, level in torch.unique(groups, dim=0).tolist():
        rows = ((groups[:, 0] == number) & (groups[:, 1] == level)).nonzero()[:, 0]
        own = (collected.classes == number) & (collected.levels == level)
        patches = collected.vectors[own].double().cpu()
        if cosine:  # a zero patch is similar to nothing
            patches = patches[patches.norm(dim=1) > SMALLEST_NORM]
        if not len(patches):
            _warn(number, level, len(rows), "no training patch at all; they start at random")
            continue
        generator = torch.Generator().manual_seed(_mix(_mix(seed, number), level))
        chosen = kmeans_plus_plus(patches, len(rows), cosine, generator)
        start = patches[chosen]
        if len(chosen) < len(rows):
            _warn(
                number,
                level,
                len(rows),
                f"only {len(chosen)} distinct patches, repeated with noise",
            )
            start = _repeat_with_noise(start, len(rows), generator)
        prototypes.vectors[rows] = start.to(prototypes.vectors)


def kmeans_plus_plus(
    patches: Tensor, count: int, cosine: bool, generator: torch.Generator
) -> list[int]:
    """Indices of up to `count` patches (n, d) far from each other; fewer where patches are not distinct.

    Each is drawn with a probability that grows with its distance from those before: 1 - cosine, or the
    squared L2 distance. Of a few such draws the one that leaves the least distance in all is taken.
    """
    points = patches / patches.norm(dim=1, keepdim=True) if cosine else patches
    trials = 2 + int(math.log(count))
    chosen = [int(torch.randint(len(points), (1,), generator=generator))]
    distance = (points - points[chosen[0]]).square().sum(dim=1)
    smallest = 1e-12 * float(points.square().sum(dim=1).mean())
    while len(chosen) < count:
        weights = torch.where(distance > smallest, distance, 0.0)
        if not bool(weights.any()):
            break
        drawn = torch.multinomial(weights, trials, replacement=True, generator=generator)
        left = torch.cdist(points[drawn], points).square().minimum(distance)
        best = int(left.sum(dim=1).argmin())
        chosen.append(int(drawn[best]))
        distance = left[best].clone()
        distance[chosen] = 0.0  # cdist rounds; a patch is never taken twice
    return chosen


def _repeat_with_noise(start: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """start (k, d), k < count -> (count, d): the patches, then noisy copies of them in turn."""
    copies = start[torch.arange(len(start), count) % len(start)]
    noise = torch.randn(copies.shape, generator=generator, dtype=copies.dtype)
    size = copies.square().mean(dim=1, keepdim=True).sqrt()
    return torch.cat([start, copies + NOISE * size * noise])


def _random_order(seed: int, level: int, images: Tensor, cells: int) -> Tensor:
    """A random number >= 0 for each cell of each image, (B, cells), from (seed, level, image, cell) alone."""
    image = _hash(images + _mix(seed, level))[:, None]
    return _hash(image + torch.arange(cells, device=images.device)) & LARGEST


def _hash(x: Tensor) -> Tensor:
    """splitmix64 of int64 numbers: products wrap around, shifts are made logical by a mask."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ ((x >> 30) & ((1 << 34) - 1))) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ ((x >> 27) & ((1 << 37) - 1))) * _signed(0x94D049BB133111EB)
    return x ^ ((x >> 31) & ((1 << 33) - 1))


def _mix(seed: int, number: int) -> int:
    """A number >= 0 from two, by splitmix64."""
    return int(_hash(_hash(torch.tensor(seed)) + number)) & LARGEST


def _signed(x: int) -> int:
    return x - (1 << 64) if x >= 1 << 63 else x


def _no_patches(like: Tensor) -> CollectedPatches:
    none = torch.zeros(0, dtype=torch.long, device=like.device)
    return CollectedPatches(like.detach()[:0], none, none, none, none)


def _warn(number: int, level: int, wanted: int, what: str) -> None:
    warnings.warn(
        f"initial prototypes: class number {number}, level {level}: {wanted} prototypes but {what}",
        stacklevel=3,
    )
