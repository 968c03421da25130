"""Initial prototypes: patches of their class and level, spread, reproducible."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from protopyramid.model.pooling import Pooling
from protopyramid.model.prototypes import PrototypeLayer, classes_and_levels
from protopyramid.model.similarity import Similarity
from protopyramid.training.initialise import (
    CollectedPatches,
    PatchCollector,
    initialise_prototypes,
    kmeans_plus_plus,
    merge_patches,
)
from protopyramid.training.patches import PyramidBatch

COUNTS = {0: {3: 3, 5: 2}, 1: {5: 2}}  # class 2 has no prototypes, class 1 none on level 3
SIZES = {3: (6, 6), 5: (3, 3)}
DIM, COUNT, SIDE = 4, 15, 24
LABELS = torch.arange(COUNT) % 3


def layer(kind: str = "cosine") -> PrototypeLayer:
    torch.manual_seed(0)
    return PrototypeLayer(*classes_and_levels(COUNTS), DIM, Similarity(kind), Pooling(k=1))


def pyramids() -> dict[int, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        level: torch.randn(COUNT, DIM, *size, generator=generator) for level, size in SIZES.items()
    }


def squares() -> Tensor:
    masks = torch.zeros(COUNT, SIDE, SIDE, dtype=torch.uint8)
    masks[:, 8:16, 4:8] = 1  # level 3: rows 2-3, column 1; level 5: row 1, column 0
    return masks


def collect(
    order: list[int] | None = None, batch: int = 4, seed: int = 0, patches: int = 2
) -> CollectedPatches:
    z, masks, collector = pyramids(), squares(), PatchCollector(layer(), seed, patches)
    order = list(range(COUNT)) if order is None else order
    for start in range(0, len(order), batch):
        at = torch.tensor(order[start : start + batch])
        some = {level: maps[at] for level, maps in z.items()}
        collector.update(PyramidBatch(some, at, LABELS[at], masks[at], at % 2 == 0))
    return collector.result()


def test_patches_exist_in_images_of_classes_with_prototypes_on_the_level() -> None:
    z, found = pyramids(), collect()
    for i in range(len(found.vectors)):
        level, image, cell = (int(x[i]) for x in (found.levels, found.images, found.cells))
        width = SIZES[level][1]
        assert torch.equal(found.vectors[i], z[level][image, :, cell // width, cell % width])
        assert found.classes[i] == LABELS[image]
        assert level in COUNTS[int(found.classes[i])]


def test_patches_of_annotated_images_touch_the_annotation() -> None:
    found = collect()
    annotated = found.images % 2 == 0
    assert set(found.cells[annotated & (found.levels == 3)].tolist()) == {13, 19}
    assert set(found.cells[annotated & (found.levels == 5)].tolist()) == {3}
    assert len(set(found.cells[~annotated & (found.levels == 3)].tolist())) > 2


def test_each_image_gives_its_number_of_different_patches() -> None:
    found = collect(patches=3)
    for image in range(COUNT):
        for level in SIZES:
            cells = found.cells[(found.images == image) & (found.levels == level)].tolist()
            eligible = {3: 2, 5: 1}[level] if image % 2 == 0 else 3
            expected = eligible if level in COUNTS.get(int(LABELS[image]), {}) else 0
            assert len(cells) == len(set(cells)) == expected


def test_batches_order_and_processes_change_nothing() -> None:
    whole = collect()
    same(whole, collect(order=list(reversed(range(COUNT))), batch=7))
    halves = [collect(order=[0, 2, 4, 6, 8, 10, 12, 14, 1]), collect(order=[13, 11, 9, 7, 5, 3, 1])]
    same(whole, merge_patches(halves))
    same(whole, merge_patches(halves[::-1]))


def test_another_seed_takes_other_patches() -> None:
    a, b = collect(seed=0), collect(seed=1)
    free = a.images % 2 == 1
    assert not torch.equal(a.cells[free], b.cells[free])


def test_all_cells_are_taken_about_equally_often() -> None:
    n = 900
    collector = PatchCollector(layer(), 5, 4)
    z = {level: torch.randn(n, DIM, *size) for level, size in SIZES.items()}
    masks = torch.zeros(n, SIDE, SIDE, dtype=torch.uint8)
    labels = torch.zeros(n, dtype=torch.long)
    free = torch.zeros(n, dtype=torch.bool)
    collector.update(PyramidBatch(z, torch.arange(n), labels, masks, free))
    found = collector.result()
    counts = torch.bincount(found.cells[found.levels == 3], minlength=36).double()
    expected = 4 * n / 36
    chi_squared = float(((counts - expected) ** 2 / expected).sum())
    assert chi_squared < 75  # 35 degrees of freedom: p = 1e-4


@pytest.mark.parametrize("kind", ["cosine", "log-l2"])
def test_prototypes_start_as_different_patches_of_their_class_and_level(kind: str) -> None:
    prototypes, found = layer(kind), collect()
    initialise_prototypes(prototypes, found, seed=0)
    rows = [tuple(v.tolist()) for v in prototypes.vectors.detach()]
    assert len(set(rows)) == len(rows)
    for vector, number, level in zip(rows, prototypes.classes, prototypes.levels, strict=True):
        own = found.vectors[(found.classes == number) & (found.levels == level)]
        assert vector in {tuple(v.tolist()) for v in own}


def test_the_start_is_reproducible_and_depends_on_the_seed() -> None:
    found = collect()
    starts = []
    for seed, order in ((0, None), (0, list(reversed(range(COUNT)))), (1, None)):
        prototypes = layer()
        initialise_prototypes(prototypes, found if order is None else collect(order), seed)
        starts.append(prototypes.vectors.detach().clone())
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


@pytest.mark.parametrize("cosine", [True, False])
def test_seeding_finds_each_of_some_far_clusters(cosine: bool) -> None:
    centres = torch.eye(6, dtype=torch.float64) * 5
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        sizes = [200, 100, 50, 20, 10, 5]
        points = torch.cat([centres[i].expand(n, 6) for i, n in enumerate(sizes)])
        points = points + 0.01 * torch.randn(points.shape, generator=generator, dtype=points.dtype)
        owner = torch.repeat_interleave(torch.arange(6), torch.tensor(sizes))
        chosen = kmeans_plus_plus(points, 6, cosine, generator)
        assert sorted(owner[chosen].tolist()) == list(range(6))


def test_cosine_seeding_sees_directions_not_lengths() -> None:
    direction = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    points = torch.cat([direction[:1] * scale for scale in (1, 50, 100)] + [direction[1:]])
    chosen = kmeans_plus_plus(points, 2, True, torch.Generator().manual_seed(0))
    assert 3 in chosen


def test_too_few_patches_are_repeated_with_noise_and_a_warning() -> None:
    prototypes = layer()
    found = collect()
    keep = (found.levels == 5) | (found.images == 0)
    keep[(found.levels == 3).nonzero()[1:, 0]] = False
    few = CollectedPatches(*(x[keep] for x in vars(found).values()))
    with pytest.warns(UserWarning, match="class number 0, level 3: 3 prototypes but only 1"):
        initialise_prototypes(prototypes, few, seed=0)
    group = prototypes.vectors.detach()[:3]
    assert torch.equal(group[0], few.vectors[few.levels == 3][0])
    assert torch.nn.functional.cosine_similarity(group[:1], group).min() > 0.99
    assert len({tuple(v.tolist()) for v in group}) == 3


def test_a_class_without_patches_keeps_its_vectors_and_warns() -> None:
    prototypes, found = layer(), collect()
    before = prototypes.vectors.detach().clone()
    keep = found.classes != 1
    with pytest.warns(UserWarning, match=r"class number 1, level 5.*no training patch"):
        initialise_prototypes(
            prototypes, CollectedPatches(*(x[keep] for x in vars(found).values())), seed=0
        )
    own = prototypes.classes == 1
    assert torch.equal(prototypes.vectors[own], before[own])
    assert not torch.equal(prototypes.vectors[~own], before[~own])


def test_nothing_collected_is_only_warned_about() -> None:
    prototypes = layer()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        initialise_prototypes(prototypes, PatchCollector(prototypes, 0).result(), seed=0)
    assert len(caught) == 3


def same(a: CollectedPatches, b: CollectedPatches) -> None:
    for name, column in vars(a).items():
        assert torch.equal(column, getattr(b, name))
