"""Activation precision is the share of a map's strongest 5 % inside the annotation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.metrics import localisation
from protopyramid.metrics.localisation import LocalisationPass, box_masks, places, summarise
from protopyramid.model.activation import strongest_region

CLASSES = ["circumscribed", "indistinct", "negative"]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 23), st.integers(1, 23), st.booleans())
def test_strongest_region_is_what_reaches_numpys_percentile(
    seed: int, height: int, width: int, ties: bool
) -> None:
    values = np.random.default_rng(seed).normal(size=(3, height, width)).astype(np.float32)
    values = values.round(0) if ties else values
    found = strongest_region(torch.from_numpy(values)).numpy()
    for each, region in zip(values.astype(np.float64), found, strict=True):
        # A hair below: interpolating between two equal values may round above both.
        np.testing.assert_array_equal(region, each >= np.percentile(each, 95) - 1e-12)


def test_places_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    maps = rng.normal(size=(20, 24, 24))
    fine, lesion = rng.random((20, 24, 24)) < 0.2, rng.random((20, 24, 24)) < 0.5
    found = places(torch.from_numpy(maps), torch.from_numpy(fine), torch.from_numpy(lesion))
    for number in range(20):
        each = maps[number].astype(np.float32)
        kept = each >= np.percentile(each, 95)
        assert found.fine[number] == pytest.approx((kept & fine[number]).sum() / kept.sum())
        assert found.lesion[number] == pytest.approx((kept & lesion[number]).sum() / kept.sum())
        peak = np.unravel_index(each.argmax(), each.shape)
        assert found.pointing_fine[number] == fine[number][peak]
        assert found.pointing_lesion[number] == lesion[number][peak]
        assert found.area[number] == pytest.approx((each >= (each.min() + each.max()) / 2).mean())


def test_a_map_inside_the_annotation_has_precision_1_and_one_outside_0() -> None:
    mask = torch.zeros(1, 40, 40, dtype=torch.bool)
    mask[0, 5:15, 5:15] = True
    bump = torch.zeros(1, 40, 40)
    bump[0, 6:15, 6:15] = torch.rand(9, 9) + 1
    inside, outside = places(bump, mask, mask), places(bump.flip(2), mask, mask)
    assert inside.fine[0] == inside.pointing_fine[0] == 1
    assert outside.fine[0] == outside.pointing_fine[0] == 0
    assert inside.area[0] == pytest.approx(81 / 1600)


def test_without_an_annotation_there_is_no_precision() -> None:
    nothing = torch.zeros(1, 16, 16, dtype=torch.bool)
    found = places(torch.rand(1, 16, 16), nothing, ~nothing)
    assert np.isnan(found.fine[0]) and np.isnan(found.pointing_fine[0])
    assert found.lesion[0] == 1


def test_a_constant_map_has_chance_precision_and_covers_all() -> None:
    mask = torch.zeros(1, 16, 16, dtype=torch.bool)
    mask[0, :4] = True
    found = places(torch.full((1, 16, 16), 0.3), mask, mask)
    assert found.fine[0] == pytest.approx(0.25)
    assert found.area[0] == 1


def test_random_maps_have_chance_precision() -> None:
    mask = torch.zeros(300, 32, 32, dtype=torch.bool)
    mask[:, 4:20, 4:20] = True
    generator = torch.Generator().manual_seed(0)
    found = places(torch.rand(300, 32, 32, generator=generator), mask, mask)
    assert found.fine.mean() == pytest.approx(0.25, abs=0.02)


def test_boxes_become_the_pixels_whose_centre_they_hold() -> None:
    boxes = torch.tensor(
        [[1.0, 2.0, 3.0, 5.0], [0.6, 0, 8, 8], [torch.nan] * 4, [3.1, 3.1, 3.2, 3.2]]
    )
    found = box_masks(boxes, 8)
    expected = torch.zeros(8, 8, dtype=torch.bool)
    expected[2:5, 1:3] = True
    assert (found[0] == expected).all()
    assert found[1].sum() == 7 * 8  # the centre .5 of the first column is left of the box
    assert not found[2].any()
    assert found[3].nonzero().tolist() == [[3, 3]]  # thinner than a pixel, but not nothing


def naive_pairs(
    maps: dict[int, torch.Tensor], owners: list[int], levels: list[int], labels: list[int], mask
) -> dict[tuple[int, int], float]:
    """Fine precision of each (image, own-class prototype), by upsampling one map at a time."""
    found = {}
    for image, label in enumerate(labels):
        for prototype, (owner, level) in enumerate(zip(owners, levels, strict=True)):
            if owner != label or not mask[image].any():
                continue
            place = prototype - levels.index(level)
            one = maps[level][image, place][None, None]
            large = F.interpolate(one, size=mask.shape[1:], mode="bilinear").numpy()[0, 0]
            kept = large >= np.percentile(large.astype(np.float64), 95)
            found[image, prototype] = (kept & mask[image].numpy()).sum() / kept.sum()
    return found


@pytest.mark.parametrize("block", [4_000_000, 3000])
def test_a_pass_takes_own_class_prototypes_of_every_level(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(localisation, "BLOCK", block)
    torch.manual_seed(0)
    levels, owners = [3, 3, 3, 5, 5, 5], [0, 0, 1, 0, 1, 2]
    labels = [0, 1, 2, 1, 0]
    maps = {3: torch.rand(5, 3, 8, 8), 5: torch.rand(5, 3, 4, 4)}
    mask = torch.rand(5, 32, 32) < 0.3
    mask[2] = mask[4] = False
    collector = LocalisationPass(torch.tensor(owners), torch.tensor(levels))
    for part in (slice(0, 2), slice(2, 5)):
        batch = {level: values[part] for level, values in maps.items()}
        collector.update(batch, torch.tensor(labels[part]), mask[part], mask[part])
    result = collector.result()
    expected = naive_pairs(maps, owners, levels, labels, mask)
    pairs = zip(result.image.tolist(), result.prototype.tolist(), strict=True)
    found = {
        pair: value
        for pair, value in zip(pairs, result.places.fine, strict=True)
        if not np.isnan(value)
    }
    assert found == pytest.approx(expected)

    figures = summarise(result, np.array(labels), np.array(levels), CLASSES, np.ones((10, 5)))
    fine = figures.activation_precision.fine
    assert fine.mean == pytest.approx(np.mean(list(expected.values())))
    for number, name in enumerate(CLASSES[:2]):
        of_class = [value for (image, _), value in expected.items() if labels[image] == number]
        assert fine.per_class[name] == pytest.approx(np.mean(of_class))
    for level in (3, 5):
        of_level = [value for (_, j), value in expected.items() if levels[j] == level]
        assert fine.per_level[str(level)] == pytest.approx(np.mean(of_level))
    assert fine.per_class["negative"] is None  # never 0
    shares = mask.float().mean((1, 2))
    assert fine.chance == pytest.approx(np.mean([shares[image] for image, _ in expected]))
    assert fine.ci95 == pytest.approx([fine.mean] * 2)  # all resamples were the rows themselves
    assert (fine.images, fine.pairs) == (3, len(expected))
    assert figures.activation_area.images == 5


def test_one_prototype_and_no_annotation_give_none_and_an_area() -> None:
    collector = LocalisationPass(torch.tensor([0]), torch.tensor([5]))
    nothing = torch.zeros(2, 16, 16, dtype=torch.bool)
    collector.update({5: torch.rand(2, 1, 1, 1)}, torch.tensor([0, 1]), nothing, nothing)
    figures = summarise(
        collector.result(), np.array([0, 1]), np.array([5]), CLASSES, np.ones((5, 2))
    )
    for scale in ("fine", "lesion"):
        precision = getattr(figures.activation_precision, scale)
        assert precision.mean is precision.ci95 is precision.chance is None
        assert precision.per_level == {"5": None}
    assert figures.activation_area.mean == 1  # one cell: a constant map


def test_precision_and_chance_by_class_and_level_are_those_of_a_plain_loop() -> None:
    """The naive twin of margin precision: for every image, prototype and pixel by itself."""
    rng = np.random.default_rng(3)
    classes, levels = torch.tensor([0, 0, 1, 0, 1, 1]), torch.tensor([2, 2, 2, 5, 5, 5])
    labels = torch.tensor([0, 1, 0, 1, 2])
    bands = torch.from_numpy(rng.random((5, 16, 16)) < np.linspace(0.1, 0.6, 5)[:, None, None])
    bands[2] = False  # a lesion without an outline
    maps = {level: torch.from_numpy(rng.normal(size=(5, 3, 16, 16))).float() for level in (2, 5)}
    collected = LocalisationPass(classes, levels)
    collected.update(maps, labels, bands, bands)
    found = summarise(
        collected.result(), labels.numpy(), levels.numpy(), CLASSES, np.ones((4, 5))
    ).activation_precision.fine
    shares: dict[tuple[int, int], list[float]] = {}
    chances: dict[int, list[float]] = {}
    for image in range(5):
        for prototype in range(6):
            own = int(classes[prototype]) == int(labels[image])
            if not own or not bands[image].any():
                continue
            level = int(levels[prototype])
            place = [each for each in range(6) if levels[each] == level].index(prototype)
            values = maps[level][image, place].numpy()
            limit, inside, kept, covered = np.percentile(values, 95), 0, 0, 0
            for row in range(16):
                for column in range(16):
                    covered += bool(bands[image, row, column])
                    if values[row, column] >= limit:
                        kept += 1
                        inside += bool(bands[image, row, column])
            shares.setdefault((int(labels[image]), level), []).append(inside / kept)
            chances.setdefault(level, []).append(covered / 256)
    for (label, level), values in shares.items():
        assert found.per_class_and_level[CLASSES[label]][str(level)] == pytest.approx(
            np.mean(values)
        )
    for level, values in chances.items():
        assert found.chance_per_level[str(level)] == pytest.approx(np.mean(values))
    assert found.per_class_and_level["negative"] == {"2": None, "5": None}
