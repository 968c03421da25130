"""Activation maps and their strongest region against numpy's percentile and plain loops."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.model.activation import (
    activation_boxes,
    activation_maps,
    activation_region,
    activation_regions,
    region_box,
    region_of,
    strongest_region,
)


def test_activation_maps_are_bilinear_with_pixel_centres_aligned():
    maps = torch.tensor([[[[0.0, 1.0]]]])
    assert activation_maps(maps, 1, 4).flatten().tolist() == [0.0, 0.25, 0.75, 1.0]


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(1, 25), st.integers(1, 25)),
    seed=st.integers(0, 1000),
    steps=st.sampled_from([2, 5, 10**6]),  # few steps make many ties
    percentile=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
)
def test_region_is_where_a_map_reaches_its_percentile(size, seed, steps, percentile):
    drawn = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(seed))
    activation = (drawn * steps).floor() / 1024
    region = strongest_region(activation, percentile)
    for i in range(2):
        for j in range(3):
            values = activation[i, j].double().numpy()
            expected = values >= np.percentile(values, 100 * percentile) - 1e-9
            assert np.array_equal(region[i, j].numpy(), expected)


def test_a_constant_map_is_kept_whole():
    assert strongest_region(torch.full((1, 1, 4, 4), 0.3)).all()


def test_region_is_a_twentieth_of_a_map_without_ties():
    activation = torch.randperm(10_000).view(100, 100).float()
    assert strongest_region(activation).sum().item() == 500


@pytest.mark.parametrize("seed", range(5))
def test_box_is_the_smallest_that_holds_every_pixel_of_the_region(seed):
    g = torch.Generator().manual_seed(seed)
    region = torch.rand(9, 12, generator=g) > 0.93
    region[4, 5] = True
    inside = [(y, x) for y in range(9) for x in range(12) if region[y, x]]
    assert region_box(region) == (
        min(x for _, x in inside) / 12,
        min(y for y, _ in inside) / 9,
        (max(x for _, x in inside) + 1) / 12,
        (max(y for y, _ in inside) + 1) / 9,
    )


def test_box_of_an_empty_region_is_the_whole_image():
    assert region_box(torch.zeros(4, 4, dtype=torch.bool)) == (0.0, 0.0, 1.0, 1.0)


# -- region --------------------------------------------------------------------------------------
def inside(lines, height, width):
    """Which pixel centres lie inside closed lines: rays to the right cross them an odd number of times."""
    found = np.zeros((height, width), bool)
    for y in range(height):
        for x in range(width):
            px, py = (x + 0.5) / width, (y + 0.5) / height
            crossings = 0
            for line in lines:
                for (x0, y0), (x1, y1) in pairwise(line):
                    if (y0 > py) != (y1 > py) and px < x0 + (py - y0) / (y1 - y0) * (x1 - x0):
                        crossings += 1
            found[y, x] = crossings % 2
    return found


@pytest.mark.parametrize("seed", range(6))
def test_contour_holds_exactly_the_pixels_of_the_region(seed):
    drawn = torch.rand(5, 6, generator=torch.Generator().manual_seed(seed))
    region = activation_region(drawn, 24, 30)
    assert region.mask.any() and not region.mask.all()
    assert all((line[0] == line[-1]).all() for line in region.contour)
    np.testing.assert_array_equal(inside(region.contour, 24, 30), region.mask)


def test_contour_at_the_border_and_around_plateaus():
    activation = torch.zeros(20, 20)
    activation[:, 0] = 1  # a plateau of exactly 5 % at the border
    region = region_of(activation)
    assert region.mask.sum() == 20
    np.testing.assert_array_equal(inside(region.contour, 20, 20), region.mask)
    points = np.concatenate(region.contour)
    assert points.min() >= 0 and points.max() <= 1


@pytest.mark.parametrize("value", [0.3, float("nan")])
def test_a_map_without_a_region_of_its_own_has_no_contour(value):
    region = region_of(torch.full((6, 6), value))
    assert region.contour == [] and region.box == (0.0, 0.0, 1.0, 1.0)


def test_regions_of_many_maps_are_those_of_each():
    maps = torch.rand(4, 7, 7, generator=torch.Generator().manual_seed(1))
    for similarity, region in zip(maps, activation_regions(maps, 28, 21), strict=True):
        activation = activation_maps(similarity[None, None], 28, 21)[0, 0].numpy()
        np.testing.assert_array_equal(region.activation, activation)
        rows, columns = np.nonzero(activation >= np.percentile(activation, 95))
        expected = (
            columns.min() / 21,
            rows.min() / 28,
            (columns.max() + 1) / 21,
            (rows.max() + 1) / 28,
        )
        assert region.box == expected


@pytest.mark.parametrize("kind", ["noise", "smooth", "flat", "nan", "ties", "spike"])
@pytest.mark.parametrize("size", [(5, 7), (56, 56), (64, 48)])
def test_boxes_are_those_of_the_regions_and_the_threshold_that_of_a_sort(
    kind: str, size: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.rand(3, 7, 7, generator=generator)
    if kind == "smooth":
        maps = torch.linspace(0, 1, 7).outer(torch.linspace(0, 1, 7)).expand(3, 7, 7)
    elif kind == "flat":
        maps = torch.full((3, 7, 7), 0.5)
    elif kind == "nan":
        maps[1, 2, 3] = torch.nan
    elif kind == "ties":
        maps = (maps * 3).round()
    elif kind == "spike":
        maps = torch.zeros(3, 7, 7)
        maps[:, 3, 3] = 1
    regions = activation_regions(maps, *size)
    assert activation_boxes(maps, *size) == [region.box for region in regions]
    for region in regions:
        values = np.sort(region.activation.ravel())
        rank = int(np.ceil(round(0.95 * (values.size - 1), 6)))
        np.testing.assert_array_equal(region.mask, region.activation >= values[rank])


@pytest.mark.parametrize("seed", range(4))
def test_boxes_of_many_maps_are_those_of_their_regions(seed):
    maps = torch.rand(5, 3, 4, generator=torch.Generator().manual_seed(seed))
    maps[1] = 0.5  # constant: kept whole
    found = activation_boxes(maps, 17, 23)
    regions = activation_regions(maps, 17, 23)
    assert found == [pytest.approx(region.box) for region in regions]
