"""Patches are placed at random on tissue, clear of lesions and of each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.data.negatives.patches import Limits, sample_patches

from .films import HEIGHT, WIDTH, digital_film, scanned_film, tissue_of, touches


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(8, 120), min_size=1, max_size=8),
    st.tuples(st.integers(0, 180), st.integers(60, 400), st.integers(2, 90), st.integers(2, 90)),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.25, 1.0]),
)
def test_no_patch_touches_a_lesion_and_each_is_tissue(
    seed: int,
    sides: list[int],
    lesion: tuple[int, int, int, int],
    gap: float,
    tissue: float,
    overlap: float,
) -> None:
    film = scanned_film()
    x, y, wide, high = lesion
    mask = np.zeros(film.shape, bool)
    mask[300:310, 40:60] = True
    limits = Limits(tissue, gap, overlap)
    found = sample_patches(
        film,
        sides,
        len(sides),
        [(x, y, x + wide, y + high), mask],
        np.random.default_rng(seed),
        limits,
    )
    assert len(found) + len(found.unplaced) == len(sides)
    assert sorted([*found.numbers, *(each.number for each in found.unplaced)]) == [
        *range(len(sides))
    ]
    truth, grown, other = tissue_of(0), gap * max(wide, high), gap * 20
    for number, (x0, y0, x1, y1) in zip(found.numbers, found, strict=True):
        assert (x1 - x0, y1 - y0) == (sides[number], sides[number])
        assert x0 >= 0 and y0 >= 0 and x1 <= WIDTH and y1 <= HEIGHT
        assert truth[y0:y1, x0:x1].mean() >= tissue - 1e-9
        lesion_box = (x - grown, y - grown, x + wide + grown, y + high + grown)
        assert not touches((x0, y0, x1, y1), lesion_box)
        assert not touches((x0, y0, x1, y1), (40 - other, 300 - other, 60 + other, 310 + other))
    for first in range(len(found)):
        for second in range(first):
            a, b = np.zeros(film.shape, bool), np.zeros(film.shape, bool)
            for mask, (x0, y0, x1, y1) in ((a, found[first]), (b, found[second])):
                mask[y0:y1, x0:x1] = True
            assert (a & b).sum() <= overlap * min(a.sum(), b.sum())


def test_patches_are_anywhere_in_the_tissue_with_equal_chance() -> None:
    film = np.zeros((200, 200))
    film[40:160, 40:160] = 1
    found = sample_patches(film, [40], 400, [], np.random.default_rng(0), Limits(overlap=1))
    corners = np.array(found)[:, :2]
    assert corners.min() >= 36 and corners.max() <= 124
    # Means of 400 draws from 40 to 120 have a standard deviation of 1.2.
    assert np.abs(corners.mean(0) - 80).max() < 6
    assert len({int(x) % 2 for x in corners[:, 0]}) == 2


def test_a_place_that_fits_to_the_pixel_is_found() -> None:
    film = digital_film()
    mask = np.ones(film.shape, bool)
    mask[200:237, 50:87] = False
    for seed in range(5):
        rng = np.random.default_rng(seed)
        assert sample_patches(film, [37], 1, [mask], rng, Limits(gap=0)) == [(50, 200, 87, 237)]
        assert not sample_patches(film, [38], 1, [mask], rng, Limits(gap=0))


def test_the_reason_says_why_there_is_no_room() -> None:
    rng = np.random.default_rng(0)
    film = digital_film()

    def why(sides: list[int], avoid: list[Any]) -> list[str]:
        return [
            each.reason for each in sample_patches(film, sides, len(sides), avoid, rng).unplaced
        ]

    assert why([1000], []) == ["the film is smaller than the patch"]
    assert why([300], []) == ["no place with 90% tissue away from the lesions"]
    assert why([30], [(0, 0, WIDTH, HEIGHT)]) == ["no place with 90% tissue away from the lesions"]
    assert set(why([150] * 9, [])) == {"no place left beside the other patches of the film"}


def test_patches_that_are_taken_are_kept_clear_of() -> None:
    film = digital_film()
    first = sample_patches(film, [60], 6, [], np.random.default_rng(0), Limits(overlap=0))
    rest = sample_patches(film, [20], 9, [], np.random.default_rng(1), Limits(overlap=0), first)
    assert first and rest
    assert not any(touches(one, other) for one in first for other in rest)
