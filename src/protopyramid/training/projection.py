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
class _Running:
    """Candidates during the pass. Vectors stay where they are when better ones come in between:
    `slot` (m, R) is where in `vector` (m, R, d) each one lies. So a batch moves only its own patches.
    """

    similarity: Tensor
    image: Tensor
    row: Tensor
    col: Tensor
    slot: Tensor
    vector: Tensor

    def sorted(self) -> Candidates:
        """The candidates with their vectors, best first."""
        empty = self.image == EMPTY
        vector = _gather_vectors(self.vector, self.slot).masked_fill(empty[..., None], 0)
        return Candidates(self.similarity, self.image, self.row, self.col, vector)


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
        self.best = {
            level: _no_candidates(rows.stop - rows.start, self.size, d, prototypes.vectors)
            for level, rows in prototypes.slices.items()
        }
        self.count = m

    @torch.no_grad()
    def update(self, batch: PyramidBatch) -> None:
        """Take the patches of a batch into account."""
        device = self.prototypes.vectors.device
        images, labels = batch.images.to(device), batch.labels.to(device)
        inside = (batch.masks, batch.annotated)
        for level, rows in self.prototypes.slices.items():
            concerned = self._concerned(rows, labels)
            if len(concerned):
                best, chosen, z = self.best[level], concerned + rows.start, batch.z[level]
                found = self._best_patches(z, chosen, labels, inside)
                _insert(best, concerned, *found, images, z)

    def _concerned(self, rows: slice, labels: Tensor) -> Tensor:
        """Prototypes of a level, counted from its first, that a batch can change.

        With many classes, a batch holds few of them: the other prototypes need no similarities.
        """
        classes = self.prototypes.classes[rows]
        if self.settings.source != "class":
            return torch.arange(len(classes), device=classes.device)
        return torch.isin(classes, labels).nonzero()[:, 0]

    def _best_patches(
        self, z: Tensor, rows: Tensor, labels: Tensor, inside: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The best patches of a batch for some prototypes: similarity and cell, both (B, m, r)."""
        maps = self._similarity_map(z, rows)
        if self.settings.inside_annotation:
            masks, annotated = (part.to(maps.device) for part in inside)
            allowed = eligible_cells(masks, annotated, maps.shape[-2:])
            maps = maps.masked_fill(~allowed[:, None], -torch.inf)
        similarity, cells = self._best_cells(maps)
        if self.settings.source == "class":
            foreign = labels[:, None] != self.prototypes.classes[rows]
            similarity = similarity.masked_fill(foreign[..., None], -torch.inf)
        if self.settings.annotated_only:
            eligible = inside[1].to(labels.device)
            if self.negative is not None:
                eligible = eligible | (labels == self.negative)
            similarity = similarity.masked_fill(~eligible[:, None, None], -torch.inf)
        return similarity, cells

    def result(self) -> Candidates:
        """The candidates of all prototypes, in their order."""
        return join_columns([part.sorted() for part in self.best.values()], dim=0)

    def _similarity_map(self, z: Tensor, rows: Tensor) -> Tensor:
        """In full precision whatever the training's: the nearest patches differ little."""
        vectors = self.prototypes.vectors[rows]
        with torch.autocast(vectors.device.type, enabled=False):
            return self.prototypes.similarity_map(z.to(vectors.dtype), vectors)

    def _best_cells(self, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Best cells of each image and prototype: maps (B, m, H, W) -> two (B, m, r)."""
        flat = maps.flatten(2)
        if self.settings.unique != "patch":
            similarity, cells = flat.max(dim=2, keepdim=True)  # ties: the first cell
            return similarity, cells
        similarity, cells = flat.sort(
            dim=2, descending=True, stable=True
        )  # topk orders ties freely
        return similarity[..., : self.size], cells[..., : self.size]


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


def _no_candidates(m: int, size: int, d: int, like: Tensor) -> _Running:
    def full(value: int) -> Tensor:
        return torch.full((m, size), value, device=like.device, dtype=torch.long)

    similarity = torch.full((m, size), -torch.inf, device=like.device)
    slot = torch.arange(size, device=like.device).repeat(m, 1)
    vector = torch.zeros(m, size, d, device=like.device, dtype=like.dtype)
    return _Running(similarity, full(EMPTY), full(0), full(0), slot, vector)


def _insert(
    best: _Running,
    rows: Tensor,
    similarity: Tensor,
    cells: Tensor,
    images: Tensor,
    z: Tensor,
) -> None:
    """Let the patches of a batch compete with the candidates so far of some prototypes, in place.

    rows (m,) prototypes; similarity, cells (B, m, r); images (B,); z (B, d, H, W).
    """
    batch, m, r = similarity.shape
    size, width = best.image.shape[1], z.shape[-1]

    def beside(old: Tensor, new: Tensor) -> Tensor:
        return torch.cat([old[rows], new.transpose(0, 1).reshape(m, batch * r)], dim=1)

    similarity = beside(best.similarity, similarity)
    image = beside(best.image, images[:, None, None].expand(batch, m, r))
    image = image.masked_fill(similarity == -torch.inf, EMPTY)
    row, col = beside(best.row, cells // width), beside(best.col, cells % width)
    similarity, kept = _best_distinct(similarity, _numbers(image, row, col), size)
    new = kept >= size
    slot = _slots(best.slot[rows], kept, new)
    image, row, col = (column.gather(1, kept) for column in (image, row, col))
    at, column = new.nonzero(as_tuple=True)
    position = (kept[at, column] - size) // r
    patches = z[position, :, row[at, column], col[at, column]]
    best.vector[rows[at], slot[at, column]] = patches.to(best.vector.dtype)
    empty = similarity == -torch.inf
    best.similarity[rows], best.slot[rows] = similarity, slot
    best.image[rows] = image.masked_fill(empty, EMPTY)
    best.row[rows], best.col[rows] = row.masked_fill(empty, 0), col.masked_fill(empty, 0)


def _slots(slot: Tensor, kept: Tensor, new: Tensor) -> Tensor:
    """Where the vectors of the columns `kept` lie: old ones stay, new ones take what others left.

    slot (m, R) of the columns before; kept, new (m, R) which columns stay and whether they are new.
    """
    stays = slot.gather(1, torch.where(new, 0, kept))
    used = torch.zeros_like(new).scatter_(1, slot, _is_kept(kept, new))
    free = used.int().argsort(dim=1, stable=True)  # the free ones first
    turn = (new.cumsum(1) - 1).clamp(min=0)
    return torch.where(new, free.gather(1, turn), stays)


def _is_kept(kept: Tensor, new: Tensor) -> Tensor:
    """Which of the R columns before are among `kept` (m, R)."""
    size = kept.shape[1]
    marks = torch.zeros(len(kept), size + 1, dtype=torch.bool, device=kept.device)
    marks.scatter_(1, torch.where(new, size, kept), True)
    return marks[:, :size]


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
