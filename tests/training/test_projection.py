"""Projection against a search in plain loops over every image and cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from protopyramid.config.schema import ProjectionConfig
from protopyramid.errors import UserError
from protopyramid.model.pooling import Pooling
from protopyramid.model.prototypes import PrototypeLayer, classes_and_levels
from protopyramid.model.similarity import Similarity
from protopyramid.training.patches import PyramidBatch
from protopyramid.training.projection import (
    CandidateCollector,
    Candidates,
    choose,
    merge_candidates,
    project,
)

COUNTS = {0: {3: 3, 5: 2}, 1: {3: 2, 5: 1}, 2: {5: 2}}
SIZES = {3: (6, 6), 5: (3, 3)}
DIM, SIDE, NAMES = 5, 24, ("round", "vague", "spiky")
SIMILARITIES = {
    "cosine": Similarity(),
    "log-l2": Similarity(kind="log-l2"),
    "log-l2 squared": Similarity(kind="log-l2", squared=True),
}


@dataclass
class World:
    """Training images as pyramids of random maps; z {level: (N, d, H, W)}."""

    z: dict[int, Tensor]
    labels: Tensor
    masks: Tensor
    annotated: Tensor


def world(seed: int = 0, count: int = 17) -> World:
    generator = torch.Generator().manual_seed(seed)
    masks = torch.zeros(count, SIDE, SIDE, dtype=torch.uint8)
    for mask in masks:
        row, col = torch.randint(0, SIDE - 6, (2,), generator=generator).tolist()
        mask[row : row + 5, col : col + 4] = 1
    return World(
        {
            level: torch.randn(count, DIM, *size, generator=generator)
            for level, size in SIZES.items()
        },
        torch.arange(count) % 3,
        masks,
        torch.rand(count, generator=generator) < 0.6,
    )


def layer(kind: str = "cosine", seed: int = 1) -> PrototypeLayer:
    torch.manual_seed(seed)
    prototypes = PrototypeLayer(*classes_and_levels(COUNTS), DIM, SIMILARITIES[kind], Pooling(k=1))
    prototypes.vectors.data = torch.randn_like(prototypes.vectors)
    return prototypes


def collect(
    prototypes: PrototypeLayer,
    data: World,
    rule: ProjectionConfig,
    order: list[int] | None = None,
    batch: int = 4,
    negative: int | None = None,
) -> Candidates:
    collector = CandidateCollector(prototypes, rule, negative)
    order = list(range(len(data.labels))) if order is None else order
    for start in range(0, len(order), batch):
        at = torch.tensor(order[start : start + batch])
        z = {level: maps[at] for level, maps in data.z.items()}
        batch_of = (data.labels[at], data.masks[at], data.annotated[at])
        collector.update(PyramidBatch(z, at, *batch_of))
    return collector.result()


def naive_similarity(kind: str, z: np.ndarray, p: np.ndarray) -> float:
    if kind == "cosine":
        return float(z @ p / np.sqrt((z @ z) * (p @ p)))
    distance = float(np.sqrt(((z - p) ** 2).sum()))
    distance = distance**2 if kind == "log-l2 squared" else distance
    return float(np.log((distance + 1) / (distance + 1e-4)))


def naive_cells(
    data: World, image: int, level: int, rule: ProjectionConfig
) -> list[tuple[int, int]]:
    height, width = SIZES[level]
    cells = [(row, col) for row in range(height) for col in range(width)]
    if not (rule.inside_annotation and data.annotated[image]):
        return cells
    tall, wide = SIDE // height, SIDE // width
    mask = data.masks[image].numpy()
    return [
        (row, col)
        for row, col in cells
        if mask[row * tall : (row + 1) * tall, col * wide : (col + 1) * wide].any()
    ]


def naive_patches(
    prototypes: PrototypeLayer,
    data: World,
    rule: ProjectionConfig,
    kind: str,
    j: int,
    negative: int | None = None,
) -> list[tuple[float, int, int, int]]:
    """Every eligible patch of prototype j as (-similarity, image, row, col), best first."""
    level = int(prototypes.levels[j])
    p = prototypes.vectors[j].detach().double().numpy()
    found = []
    for image in range(len(data.labels)):
        if rule.source == "class" and data.labels[image] != prototypes.classes[j]:
            continue
        if rule.annotated_only and not data.annotated[image] and data.labels[image] != negative:
            continue
        for row, col in naive_cells(data, image, level, rule):
            patch = data.z[level][image, :, row, col].double().numpy()
            found.append((-naive_similarity(kind, patch, p), image, row, col))
    return sorted(found)


def naive_choice(
    prototypes: PrototypeLayer, data: World, rule: ProjectionConfig, kind: str
) -> list[tuple[int, int, int]]:
    """Greedy over all patches of all prototypes of a group at once, with everything in memory."""
    m = len(prototypes.vectors)
    groups = list(zip(prototypes.classes.tolist(), prototypes.levels.tolist(), strict=True))
    everything = sorted(
        (minus, j, image, row, col)
        for j in range(m)
        for minus, image, row, col in naive_patches(prototypes, data, rule, kind, j)
    )
    chosen: dict[int, tuple[int, int, int]] = {}
    taken = set()
    for _, j, image, row, col in everything:
        thing = {"image": (image,), "patch": (image, row, col), "none": (j, image, row, col)}
        key = (groups[j], thing[rule.unique])
        if j not in chosen and key not in taken:
            chosen[j] = (image, row, col)
            taken.add(key)
    return [chosen[j] for j in range(m)]


@pytest.mark.parametrize("kind", SIMILARITIES)
@pytest.mark.parametrize("unique", ["image", "patch", "none"])
@pytest.mark.parametrize("source", ["class", "any"])
@pytest.mark.parametrize("inside", [False, True])
def test_choice_is_that_of_a_search_over_all_images_and_cells(
    kind: str, unique: str, source: str, inside: bool
) -> None:
    data, prototypes = world(), layer(kind)
    rule = ProjectionConfig.model_validate(
        {"unique": unique, "source": source, "inside_annotation": inside, "candidates": 1}
    )
    expected = naive_choice(prototypes, data, rule, kind)
    choice = choose(
        collect(prototypes, data, rule), prototypes.classes, prototypes.levels, rule.unique
    )
    got = list(zip(choice.image.tolist(), choice.row.tolist(), choice.col.tolist(), strict=True))
    assert got == expected


@pytest.mark.parametrize("source", ["class", "any"])
@pytest.mark.parametrize("negative", [None, 1])
def test_only_annotated_images_and_negatives_are_projected_onto(
    source: str, negative: int | None
) -> None:
    data, prototypes = world(), layer()
    rule = ProjectionConfig.model_validate(
        {"unique": "none", "source": source, "annotated_only": True}
    )
    found = collect(prototypes, data, rule, negative=negative)
    anywhere = collect(prototypes, data, rule.model_copy(update={"annotated_only": False}))
    for j in range(len(prototypes.vectors)):
        minus, *place = naive_patches(prototypes, data, rule, "cosine", j, negative)[0]
        assert [int(x[j, 0]) for x in (found.image, found.row, found.col)] == place
        assert float(found.similarity[j, 0]) == pytest.approx(-minus, abs=1e-5)
    eligible = data.annotated | (data.labels == negative if negative is not None else False)
    assert eligible[found.image].all()
    assert not eligible[anywhere.image].all()  # without the rule, others are nearer


def test_a_class_without_annotated_images_is_told_and_what_to_do() -> None:
    data, prototypes = world(), layer()
    data.annotated[data.labels == 2] = False
    rule = ProjectionConfig(annotated_only=True, unique="none")
    candidates = collect(prototypes, data, rule)
    message = r'class "spiky".*only 0 eligible annotated.*projection\.annotated_only = false'
    with pytest.raises(UserError, match=message):
        project(prototypes, candidates, rule, NAMES)
    project(prototypes, collect(prototypes, data, rule, negative=2), rule, NAMES)


@pytest.mark.parametrize("unique", ["image", "patch"])
def test_candidates_are_the_nearest_images_or_patches_in_order(unique: str) -> None:
    data, prototypes = world(), layer()
    rule = ProjectionConfig.model_validate({"unique": unique, "candidates": 5})
    candidates = collect(prototypes, data, rule)
    for j in range(len(prototypes.vectors)):
        expected, seen = [], set()
        for minus, image, row, col in naive_patches(prototypes, data, rule, "cosine", j):
            if unique == "patch" or image not in seen:
                seen.add(image)
                expected.append((-minus, image, row, col))
        similarity, *places = zip(*expected[:5], strict=True)
        assert candidates.similarity[j].tolist() == pytest.approx(similarity, abs=1e-5)
        found = [candidates.image[j], candidates.row[j], candidates.col[j]]
        assert [tuple(column.tolist()) for column in found] == places


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    batch=st.integers(1, 20),
    unique=st.sampled_from(["image", "patch", "none"]),
)
def test_batches_and_their_order_change_nothing(seed: int, batch: int, unique: str) -> None:
    data, prototypes = world(seed), layer()
    rule = ProjectionConfig.model_validate({"unique": unique, "candidates": 4})
    order = torch.randperm(17, generator=torch.Generator().manual_seed(seed)).tolist()
    same(collect(prototypes, data, rule), collect(prototypes, data, rule, order, batch))


@pytest.mark.parametrize("unique", ["image", "patch", "none"])
def test_merged_halves_are_the_whole_even_when_an_image_is_in_both(unique: str) -> None:
    data, prototypes = world(), layer()
    rule = ProjectionConfig.model_validate({"unique": unique, "candidates": 4})
    whole = collect(prototypes, data, rule)
    odd = collect(prototypes, data, rule, [1, 3, 5, 7, 9, 11, 13, 15, 0, 2])
    even = collect(prototypes, data, rule, [16, 14, 12, 10, 8, 6, 4, 2, 0])
    same(whole, merge_candidates([odd, even]))
    same(whole, merge_candidates([even, odd]))


def test_equal_patches_go_to_the_lower_image_and_cell_in_any_order() -> None:
    data, prototypes = world(), layer()
    data.z = {level: torch.ones_like(maps) for level, maps in data.z.items()}
    rule = ProjectionConfig(unique="patch", candidates=4)
    for order in (list(range(17)), list(reversed(range(17)))):
        found = collect(prototypes, data, rule, order, batch=5)
        own = [image for image in range(17) if image % 3 == 0]
        assert found.image[0].tolist() == [own[0]] * 4
        assert (found.row[0] * SIZES[3][1] + found.col[0]).tolist() == [0, 1, 2, 3]
    found = collect(prototypes, data, ProjectionConfig(candidates=4), list(reversed(range(17))))
    assert found.image[0].tolist() == own[:4]
    assert found.row[0].tolist() == found.col[0].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("kind", SIMILARITIES)
def test_projection_gives_each_prototype_an_existing_patch(kind: str) -> None:
    data, prototypes = world(), layer(kind)
    before = prototypes.vectors.detach().clone()
    rule = ProjectionConfig()
    report = project(prototypes, collect(prototypes, data, rule), rule)
    assert [p.index for p in report.prototypes] == list(range(len(before)))
    for place, old in zip(report.prototypes, before, strict=True):
        patch = data.z[place.level][place.image, :, place.row, place.col]
        vector = prototypes.vectors[place.index].detach()
        assert torch.equal(vector, patch)
        assert data.labels[place.image] == place.class_number
        naive = naive_similarity(kind, patch.double().numpy(), old.double().numpy())
        assert place.similarity == pytest.approx(naive, abs=1e-5)
        assert place.similarity <= place.nearest + 1e-6
        if kind == "cosine":
            assert place.moved == pytest.approx(1 - naive, abs=1e-5)
        else:
            assert place.moved == pytest.approx(float((old - patch).norm()), abs=1e-5)


def test_a_projected_prototype_finds_itself_when_projected_again() -> None:
    data, prototypes = world(), layer()
    rule = ProjectionConfig()
    first = project(prototypes, collect(prototypes, data, rule), rule)
    again = project(prototypes, collect(prototypes, data, rule), rule)
    for a, b in zip(first.prototypes, again.prototypes, strict=True):
        assert (a.image, a.row, a.col) == (b.image, b.row, b.col)
        assert b.nearest == pytest.approx(1, abs=1e-6)
        assert b.moved == pytest.approx(0, abs=1e-6)


def test_equal_prototypes_of_a_group_take_different_images_and_say_so() -> None:
    data, prototypes = world(), layer()
    prototypes.vectors.data[:3] = prototypes.vectors.data[0].clone()  # class 0, level 3
    rule = ProjectionConfig(candidates=1)
    report = project(prototypes, collect(prototypes, data, rule), rule)
    group = report.prototypes[:3]
    assert len({p.image for p in group}) == 3
    assert [p.second_choice for p in group] == [False, True, True]
    ranked = naive_patches(layer(), data, rule, "cosine", 0)
    images = list(dict.fromkeys(image for _, image, _, _ in ranked))
    assert [p.image for p in group] == images[:3]


def test_without_the_rule_equal_prototypes_take_the_same_patch() -> None:
    data, prototypes = world(), layer()
    prototypes.vectors.data[:3] = prototypes.vectors.data[0].clone()
    rule = ProjectionConfig(unique="none")
    report = project(prototypes, collect(prototypes, data, rule), rule)
    assert len({(p.image, p.row, p.col) for p in report.prototypes[:3]}) == 1
    assert not any(p.second_choice for p in report.prototypes)


def test_more_prototypes_than_images_is_the_users_mistake() -> None:
    data, prototypes = world(count=4), layer()  # class 0 has images 0 and 3, but 3 prototypes
    rule = ProjectionConfig()
    with pytest.raises(UserError) as error:
        project(prototypes, collect(prototypes, data, rule), rule, NAMES)
    assert all(
        word in str(error.value)
        for word in ("round", "level 3", "3 prototypes", "only 2", 'projection.unique = "patch"')
    )
    rule = ProjectionConfig(unique="patch")
    project(prototypes, collect(prototypes, data, rule), rule, NAMES)


@pytest.mark.parametrize("unique", ["image", "patch", "none"])
def test_a_class_without_images_is_the_users_mistake(unique: str) -> None:
    data, prototypes = world(), layer()
    data.labels[data.labels == 2] = 0
    rule = ProjectionConfig.model_validate({"unique": unique})
    with pytest.raises(UserError, match=r"spiky.*only 0"):
        project(prototypes, collect(prototypes, data, rule), rule, NAMES)


def test_diverged_training_is_told_instead_of_projected() -> None:
    data, prototypes = world(), layer()
    data.z[5][3] = torch.nan
    for unique in ("image", "patch", "none"):
        rule = ProjectionConfig.model_validate({"unique": unique})
        with pytest.raises(UserError, match="diverged"):
            project(prototypes, collect(prototypes, data, rule), rule)


def test_the_summary_names_the_worst_prototype() -> None:
    data, prototypes = world(), layer()
    rule = ProjectionConfig()
    report = project(prototypes, collect(prototypes, data, rule), rule)
    worst = min(report.prototypes, key=lambda p: p.nearest)
    nearest = [p.nearest for p in report.prototypes]
    assert report.mean_nearest == pytest.approx(np.mean(nearest))
    assert report.worst_nearest == pytest.approx(np.min(nearest))
    assert f"prototype {worst.index}, {NAMES[worst.class_number]}" in report.summary(NAMES)
    far = sum(value < 0.8 for value in nearest)
    assert (f", {far} below 0.8;" in report.summary(NAMES)) == bool(far)
    assert ("lower loss.fine.weight" in report.advice) == bool(far)


def test_prototypes_that_are_patches_get_no_advice() -> None:
    data, prototypes = world(), layer()
    rule = ProjectionConfig()
    assert project(prototypes, collect(prototypes, data, rule), rule).advice
    again = project(prototypes, collect(prototypes, data, rule), rule)
    assert not again.advice
    assert "below" not in again.summary(NAMES)


def same(a: Candidates, b: Candidates) -> None:
    assert torch.equal(a.image, b.image)
    assert torch.equal(a.row, b.row)
    assert torch.equal(a.col, b.col)
    assert torch.equal(a.vector, b.vector)
    assert torch.allclose(a.similarity, b.similarity, atol=1e-6)
