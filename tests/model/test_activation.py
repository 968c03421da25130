"""Activation maps and their strongest region against numpy's percentile and plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.model.activation import activation_maps, region_box, strongest_region


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
