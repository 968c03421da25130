"""Projection: every prototype becomes its nearest training patch.

One pass over the training images, batch by batch, keeps the R nearest patches of each prototype on the
device; then the prototypes of a class and level choose among them so that no two take the same image:

    collector = CandidateCollector(model.prototypes, config.projection)
    for batch in batches:  # PyramidBatch
        collector.update(batch)
    report = project(model.prototypes, collector.result(), config.projection)

A group of g prototypes blocks at most g - 1 patches of each other, so R >= g candidates are enough for
the choice to be the one that a search with every patch in memory would make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from protopyramid.config.schema import ProjectionConfig
from protopyramid.errors import UserError
from protopyramid.metrics.prototype_health import HEALTHY_SIMILARITY
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.training.patches import PyramidBatch, eligible_cells, join_columns

Unique = Literal["image", "patch", "none"]
LARGE = 1 << 18  # values of an image's z, from which it is worth a step of its own
EMPTY = -1  # image index of a candidate that was never filled


@dataclass
class Candidates:
    """The R most similar patches of each of m prototypes, best first, on the model's device.

    similarity (m, R), -inf where empty; image (m, R) dataset index, -1 where empty; row, col (m, R) cell
    of the prototype's level; vector (m, R, d) the patch itself.
    """

    similarity: Tensor
    image: Tensor
    row: Tensor
    col: Tensor
    vector: Tensor


@dataclass
class _Patches:
    """P patches of a batch that may be candidates.

    prototype, image (P,): of the layer, and place in the batch; similarity, row, col (P,); vector (P, d).
    """

    prototype: Tensor
    image: Tensor
    similarity: Tensor
    row: Tensor
    col: Tensor
    vector: Tensor


@dataclass
class Choice:
    """The candidate that each prototype takes: all (m,).

    `second_choice` is true where a prototype of its group took the nearest one.
    """

    candidate: Tensor
    image: Tensor
    row: Tensor
    col: Tensor
    similarity: Tensor
    second_choice: Tensor


@dataclass(frozen=True)
class ProjectedPrototype:
    """Where one prototype went: the patch, and how far from it the prototype was.

    `nearest` is the similarity to the nearest eligible patch, `similarity` to the one taken, both before
    projection; `moved` is 1 - cosine (cosine) or the L2 distance (log-l2) from old to new vector.
    """

    index: int
    class_number: int
    level: int
    image: int
    row: int
    col: int
    similarity: float
    nearest: float
    moved: float
    second_choice: bool


@dataclass(frozen=True)
class ProjectionReport:
    """What projection did to each prototype."""

    prototypes: list[ProjectedPrototype]
    cosine: bool

    @property
    def mean_nearest(self) -> float:
        """Mean similarity to the nearest patch before projection: the health figure."""
        return sum(p.nearest for p in self.prototypes) / len(self.prototypes)

    @property
    def worst_nearest(self) -> float:
        """Least similarity to the nearest patch before projection."""
        return min(p.nearest for p in self.prototypes)

    def summary(self, class_names: Sequence[str]) -> str:
        """What projection did, in one line."""
        second = sum(p.second_choice for p in self.prototypes)
        worst = min(self.prototypes, key=lambda p: p.nearest)
        return (
            f"{len(self.prototypes)} prototypes projected: similarity to the nearest patch "
            f"{self.mean_nearest:.3f} on average, {self.worst_nearest:.3f} at worst "
            f"(prototype {worst.index}, {class_names[worst.class_number]}, level {worst.level})"
            f"{self._below()}; {second} took a second choice"
        )

    @property
    def advice(self) -> str:
        """What to do where projection changed the model; empty where it did not."""
        if not self._far:
            return ""
        return (
            f"a prototype whose similarity to the nearest patch is below {HEALTHY_SIMILARITY} changes the "
            "model when it is projected: train longer, or lower loss.fine.weight"
        )

    @property
    def _far(self) -> int:
        return self.cosine * sum(p.nearest < HEALTHY_SIMILARITY for p in self.prototypes)

    def _below(self) -> str:
        return f", {self._far} below {HEALTHY_SIMILARITY}" if self._far else ""


class CandidateCollector:
    """Running top-R patches of each prototype, fed with batches in any order and grouping."""

    def __init__(
        self, prototypes: PrototypeLayer, settings: ProjectionConfig, negative: int | None = None
    ) -> None:
        """`negative`: number of the negative class, whose images are eligible without annotation."""
        self.prototypes, self.settings, self.negative = prototypes, settings, negative
        self.size = _candidates_needed(prototypes, settings)
        m, d = prototypes.vectors.shape
        self.best = _no_candidates(m, self.size, d, prototypes.vectors)

    @torch.no_grad()
    def update(self, batch: PyramidBatch) -> None:
        """Take the patches of a batch into account."""
        device = self.prototypes.vectors.device
        images, labels = batch.images.to(device), batch.labels.to(device)
        eligible = self._eligible(labels, batch.annotated.to(device))
        found = [
            self._best_patches(batch, level, rows.start, eligible[:, rows])
            for level, rows in self.prototypes.slices.items()
        ]
        # All levels at once: the work is in many small steps.
        _insert(self.best, join_columns(found, dim=0), images)

    def _eligible(self, labels: Tensor, annotated: Tensor) -> Tensor:
        """Which images of a batch each prototype may take patches of. (B,), (B,) -> bool (B, m)."""
        eligible = labels[:, None] == self.prototypes.classes
        if self.settings.source != "class":
            eligible = torch.ones_like(eligible)
        if self.settings.annotated_only:
            shown = annotated if self.negative is None else annotated | (labels == self.negative)
            eligible = eligible & shown[:, None]
        return eligible

    def _best_patches(
        self, batch: PyramidBatch, level: int, first: int, eligible: Tensor
    ) -> _Patches:
        """The patches of a batch that may be candidates of a level's prototypes, eligible (B, m_level).

        `first`: the number of the level's first prototype.
        """
        z = batch.z[level].to(self.prototypes.vectors.dtype)  # whatever the training's precision
        image, row = eligible.nonzero(as_tuple=True)
        maps = self._similarities(z, image, row + first)
        if self.settings.inside_annotation:
            masks, annotated = (part.to(z.device) for part in (batch.masks, batch.annotated))
            allowed = eligible_cells(masks, annotated, z.shape[-2:]).flatten(1)
            maps = maps.masked_fill(~allowed[image], -torch.inf)
        similarity, cells = self._best_cells(maps)
        # Equal ones stay, since ties go to the lower image; so do broken numbers, which `choose` refuses.
        worse = similarity < self.best.similarity[row + first, -1:]
        place, rank = (~worse & (similarity != -torch.inf)).nonzero(as_tuple=True)
        image, cell = image[place], cells[place, rank]
        at = (cell // z.shape[-1], cell % z.shape[-1])
        return _Patches(row[place] + first, image, similarity[place, rank], *at, z[image, :, *at])

    def _similarities(self, z: Tensor, image: Tensor, prototype: Tensor) -> Tensor:
        """Maps of P pairs of an image and a prototype of a level. z (B, d, H, W) -> (P, H * W).

        Image by image on a CPU where maps are large; else those of all pairs at once, even if most of them
        are not needed: fewer steps.
        """
        if not len(image):  # a batch of images of which no prototype of this level may take a patch
            return z.new_zeros(0, z[0, 0].numel())
        if z.device.type != "cpu" or z[0].numel() < LARGE:
            rows, place = torch.unique(prototype, return_inverse=True)
            return self._maps(z, rows).flatten(2)[image, place]
        counts = torch.bincount(image, minlength=len(z)).tolist()
        parts = [
            self._maps(z[number : number + 1], own)[0].flatten(1)
            for number, own in enumerate(torch.split(prototype, counts))
            if len(own)
        ]
        return torch.cat(parts)

    def _maps(self, z: Tensor, rows: Tensor) -> Tensor:
        vectors = self.prototypes.vectors[rows]
        with torch.autocast(vectors.device.type, enabled=False):
            return self.prototypes.similarity_map(z, vectors)

    def result(self) -> Candidates:
        """The candidates of all prototypes, in their order."""
        return self.best

    def _best_cells(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """The best cells of maps, with their similarities: (P, H * W) -> two (P, r)."""
        if self.settings.unique != "patch":
            cells = maps.argmax(dim=1, keepdim=True)  # ties: the first cell
            return maps.gather(1, cells), cells
        similarity, cells = maps.sort(
            dim=1, descending=True, stable=True
        )  # topk: ties in any order
        return similarity[:, : self.size], cells[:, : self.size]


def merge_candidates(parts: Sequence[Candidates]) -> Candidates:
    """The candidates of several collectors as one, whatever the order of the parts.

    A patch that two processes saw counts once.
    """
    size = max(part.image.shape[1] for part in parts)
    joined = join_columns(parts, dim=1)
    similarity, kept = _best_distinct(joined.similarity, _patch_ids(joined), size)
    empty = similarity == -torch.inf
    columns = (joined.image, joined.row, joined.col)
    image, row, col = (
        column.gather(1, kept).masked_fill(empty, blank)
        for column, blank in zip(columns, (EMPTY, 0, 0), strict=True)
    )
    vector = _gather_vectors(joined.vector, kept).masked_fill(empty[..., None], 0)
    return Candidates(similarity, image, row, col, vector)


def choose(
    candidates: Candidates,
    classes: Tensor,
    levels: Tensor,
    unique: Unique,
    class_names: Sequence[str] | None = None,
    annotated_only: bool = False,
) -> Choice:
    """Each prototype's candidate, greedily by descending similarity within each class and level.

    classes, levels (m,). With unique "image" (or "patch") no two prototypes of a class and level take the
    same image (or patch). UserError where a group has more prototypes than there are images for it;
    `annotated_only`: what it says of them.
    """
    similarity = candidates.similarity.tolist()
    images = candidates.image.tolist()
    ids = candidates.image.tolist() if unique == "image" else _patch_ids(candidates).tolist()
    groups = list(zip(classes.tolist(), levels.tolist(), strict=True))
    _check_numbers(candidates.similarity)
    # A prototype offers its next candidate when its last was taken: the order is that of all sorted.
    offers = [(-similarity[j][0], j, 0) for j in range(len(groups)) if images[j][0] != EMPTY]
    heapify(offers)
    chosen: dict[int, int] = {}
    taken: set[tuple[tuple[int, int], int]] = set()
    while offers:
        _, j, r = heappop(offers)
        key = (groups[j], ids[j][r])
        if unique == "none" or key not in taken:
            chosen[j] = r
            taken.add(key)
        elif r + 1 < len(images[j]) and images[j][r + 1] != EMPTY:
            heappush(offers, (-similarity[j][r + 1], j, r + 1))
    _check_all_chosen(chosen, groups, unique, class_names, annotated_only)
    index = torch.tensor(
        [chosen[j] for j in range(len(groups))], device=candidates.image.device, dtype=torch.long
    )
    at = index[:, None]
    return Choice(
        index,
        candidates.image.gather(1, at)[:, 0],
        candidates.row.gather(1, at)[:, 0],
        candidates.col.gather(1, at)[:, 0],
        candidates.similarity.gather(1, at)[:, 0],
        index > 0,
    )


@torch.no_grad()
def project(
    prototypes: PrototypeLayer,
    candidates: Candidates,
    settings: ProjectionConfig,
    class_names: Sequence[str] | None = None,
) -> ProjectionReport:
    """Copy the chosen patch into each prototype, exactly, and report what that changed."""
    choice = choose(
        candidates,
        prototypes.classes,
        prototypes.levels,
        settings.unique,
        class_names,
        settings.annotated_only,
    )
    old = prototypes.vectors.detach().clone()
    new = _gather_vectors(candidates.vector, choice.candidate[:, None])[:, 0].to(old.dtype)
    cosine = prototypes.similarity.kind == "cosine"
    moved = 1 - F.cosine_similarity(old, new, dim=1) if cosine else (old - new).norm(dim=1)
    prototypes.vectors.copy_(new)
    columns = (
        torch.arange(len(old)),
        prototypes.classes,
        prototypes.levels,
        choice.image,
        choice.row,
        choice.col,
        choice.similarity,
        candidates.similarity[:, 0],
        moved,
        choice.second_choice,
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return ProjectionReport([ProjectedPrototype(*row) for row in rows], cosine)


def _candidates_needed(prototypes: PrototypeLayer, settings: ProjectionConfig) -> int:
    if settings.unique == "none":
        return 1
    groups = Counter(zip(prototypes.classes.tolist(), prototypes.levels.tolist(), strict=True))
    return max(settings.candidates, *groups.values())


def _no_candidates(m: int, size: int, d: int, like: Tensor) -> Candidates:
    def full(value: int) -> Tensor:
        return torch.full((m, size), value, device=like.device, dtype=torch.long)

    similarity = torch.full((m, size), -torch.inf, device=like.device)
    vector = torch.zeros(m, size, d, device=like.device, dtype=like.dtype)
    return Candidates(similarity, full(EMPTY), full(0), full(0), vector)


def _insert(best: Candidates, new: _Patches, images: Tensor) -> None:
    """Let new patches compete with the candidates so far, in place. images (B,): dataset indices."""
    if not len(new.prototype):
        return
    touched, owner = torch.unique(new.prototype, return_inverse=True)
    pool = _pool_index(owner, len(touched), best.image.shape[1])

    def joined(old: Tensor, more: Tensor, blank: float) -> Tensor:
        end = more.new_full((1, *more.shape[1:]), blank)  # what the gaps of the pool point to
        return torch.cat([old[touched].flatten(0, 1), more.to(old.dtype), end.to(old.dtype)])

    similarity = joined(best.similarity, new.similarity, -torch.inf)
    image = joined(best.image, images[new.image], EMPTY)
    row, col = joined(best.row, new.row, 0), joined(best.col, new.col, 0)
    kept_similarity, kept = _best_distinct(
        similarity[pool], _numbers(image, row, col)[pool], best.image.shape[1]
    )
    chosen = pool.gather(1, kept).masked_fill(kept_similarity == -torch.inf, len(image) - 1)
    best.similarity[touched] = kept_similarity
    best.image[touched], best.row[touched] = image[chosen], row[chosen]
    best.col[touched] = col[chosen]
    best.vector[touched] = joined(best.vector, new.vector, 0)[chosen]


def _pool_index(owner: Tensor, count: int, size: int) -> Tensor:
    """Where the candidates of each of `count` prototypes lie in a list: size old ones each, then P new ones.

    owner (P,): whose the new ones are. -> (count, size + most new ones of one), gaps point past the end.
    """
    numbers = torch.bincount(owner, minlength=count)
    order = owner.argsort(stable=True)
    starts = numbers.cumsum(0) - numbers
    place = torch.arange(len(owner), device=owner.device) - starts[owner[order]]
    old = torch.arange(count * size, device=owner.device).view(count, size)
    new = torch.full((count, int(numbers.max())), count * size + len(owner), device=owner.device)
    new[owner[order], place] = count * size + order
    return torch.cat([old, new], dim=1)


def _patch_ids(candidates: Candidates) -> Tensor:
    """A number for each patch (m, R), ascending with image, then row, then column."""
    return _numbers(candidates.image, candidates.row, candidates.col)


def _numbers(image: Tensor, row: Tensor, col: Tensor) -> Tensor:
    return (image << 32) | (row << 16) | col


def _best_distinct(similarity: Tensor, ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Similarities and columns of the `size` best distinct patches of a pool (m, P): both (m, size).

    Ties go to the lower image, then cell, so that the result does not depend on the order of the columns.
    Of a patch that is there twice the better copy is kept, and the other counts as empty.
    """
    order = similarity.argsort(dim=1, descending=True, stable=True)
    order = order.gather(1, ids.gather(1, order).argsort(dim=1, stable=True))
    ids, similarity = ids.gather(1, order), similarity.gather(1, order)
    again = F.pad(ids[:, 1:] == ids[:, :-1], (1, 0))
    similarity, best = similarity.masked_fill(again, -torch.inf).sort(
        dim=1, descending=True, stable=True
    )
    return similarity[:, :size], order.gather(1, best[:, :size])


def _gather_vectors(vectors: Tensor, index: Tensor) -> Tensor:
    """vectors (m, P, d), index (m, k) -> (m, k, d)."""
    return vectors.gather(1, index[..., None].expand(-1, -1, vectors.shape[2]))


def _check_numbers(similarity: Tensor) -> None:
    broken = similarity.isnan().any(dim=1).nonzero()[:, 0].tolist()
    if broken:
        raise UserError(
            f"projection: the similarities of prototypes {broken[:5]} are not finite: training "
            "diverged; lower the learning rates in train.schedule"
        )


def _check_all_chosen(
    chosen: Mapping[int, int],
    groups: Sequence[tuple[int, int]],
    unique: Unique,
    class_names: Sequence[str] | None,
    annotated_only: bool,
) -> None:
    missing = [j for j in range(len(groups)) if j not in chosen]
    if not missing:
        return
    number, level = group = groups[missing[0]]
    name = f'"{class_names[number]}"' if class_names else f"number {number}"
    wanted, found = groups.count(group), sum(groups[j] == group for j in chosen)
    things = "images" if unique == "image" else "patches"
    kind = "annotated " if annotated_only else ""
    advice = ' or set projection.unique = "patch"' if unique == "image" and found else ""
    if annotated_only:
        advice = " or set projection.annotated_only = false"
    raise UserError(
        f"projection: class {name} has {wanted} prototypes on level {level} but only {found} eligible "
        f"{kind}training {things} for them; give it fewer prototypes (model.prototypes.per_class), more "
        f"{kind}images{',' if advice else ''}{advice}"
    )
