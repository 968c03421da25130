"""Outlines are checked, and run-length masks become rectangles of exactly their pixels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from protopyramid.data.importers.outlines import (
    Outline,
    as_box,
    as_outline,
    mask_outlines,
    overlap,
    run_lengths,
)
from protopyramid.data.importers.reading import Unusable


def painted(outlines: tuple[Outline, ...], height: int, width: int) -> NDArray[np.int64]:
    """How often each pixel is covered by axis-aligned rectangles with whole corners."""
    cover = np.zeros((height, width), int)
    for outline in outlines:
        (x0, y0), (x1, y1) = np.min(outline, 0).astype(int), np.max(outline, 0).astype(int)
        assert set(outline) == {(x0, y0), (x1, y0), (x1, y1), (x0, y1)}
        cover[y0:y1, x0:x1] += 1
    return cover


def counted(mask: NDArray[np.bool_]) -> list[int]:
    """Run lengths down the columns, the first one of pixels outside: the COCO definition."""
    counts, inside = [0], False
    for value in mask.T.reshape(-1):
        if value != inside:
            counts.append(0)
            inside = bool(value)
        counts[-1] += 1
    return counts


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        # Pairs that tools which read and write COCO publish.
        ("52203", [5, 2, 2, 2, 5]),
        ("61X13mN000`0", [6, 1, 40, 4, 5, 4, 5, 4, 21]),
        ("e75S10000000ST1", [245, 5, 35, 5, 35, 5, 35, 5, 35, 5, 1190]),
        ("", []),
    ],
)
def test_compressed_counts_are_those_that_were_written(text: str, counts: list[int]) -> None:
    assert run_lengths(text) == counts


@pytest.mark.parametrize("text", ["5 2", "X", "\x7f", "é", "o" * 20])
def test_a_broken_compressed_mask_is_refused(text: str) -> None:
    with pytest.raises(Unusable, match="unusable mask"):
        run_lengths(text)


@given(
    st.integers(1, 7).flatmap(
        lambda height: st.lists(
            st.lists(st.booleans(), min_size=height, max_size=height), min_size=1, max_size=7
        )
    )
)
def test_the_rectangles_of_a_mask_cover_each_of_its_pixels_once(columns: list[list[bool]]) -> None:
    mask = np.array(columns).T
    height, width = mask.shape
    if not mask.any():
        with pytest.raises(Unusable, match="empty"):
            mask_outlines(counted(mask), [height, width])
        return
    cover = painted(mask_outlines(counted(mask), [height, width]), height, width)
    np.testing.assert_array_equal(cover, mask.astype(int))


def test_a_mask_of_equal_columns_is_one_rectangle() -> None:
    mask = np.zeros((9, 12), bool)
    mask[2:7, 3:11] = True
    assert len(mask_outlines(counted(mask), [9, 12])) == 1


@pytest.mark.parametrize(
    ("counts", "size"),
    [
        ([3, 2], [2, 3]),  # too few pixels
        ([3, 9], [2, 3]),
        ([-1, 7], [2, 3]),
        ([3.0, 3], [2, 3]),
        (None, [2, 3]),
        ([0, 6], [2]),
        ([0, 6], [2, "3"]),
        ([0, 10**12], [10**6, 10**6]),  # nobody has such an image
        ([0, 0], [0, 0]),
    ],
)
def test_a_mask_that_does_not_fit_its_size_is_refused(counts: object, size: object) -> None:
    with pytest.raises(Unusable, match="unusable mask"):
        mask_outlines(counts, size)


@pytest.mark.parametrize(
    ("points", "reason"),
    [
        ([(3, 4)], "1 distinct point"),
        ([(3, 4), (5, 6), (3, 4), (5, 6)], "2 distinct point"),
        ([(1, 1), (5, 1), (9, 1)], "on one line"),
        ([(1, 1), (5, float("nan")), (9, 9)], "not a number"),
        ([(1, 1), (5, "x"), (9, 9)], "not a number"),
        ([(1, 1), (5, 1e300), (9, 9)], "outside any image"),
        ([(place, place**2 % 7) for place in range(20_001)], "20001 points, the limit is 20000"),
        ([(50, 1), (60, 1), (60, 9)], "outside its image: the image has 40 x 30 pixels"),
        ([(-9, 1), (-5, 1), (-5, 9)], "outside its image"),
    ],
)
def test_points_that_enclose_nothing_in_the_image_are_refused(
    points: list[tuple[float, float]], reason: str
) -> None:
    with pytest.raises(Unusable, match=reason):
        as_outline(points, (40, 30))


def test_an_outline_that_leaves_the_image_in_part_is_kept_as_it_is() -> None:
    points = [(-5, 2), (5, 2), ("5", "9.5")]
    assert as_outline(points, (40, 30)) == ((-5.0, 2.0), (5.0, 2.0), (5.0, 9.5))


@pytest.mark.parametrize("box", [(5, 5, 5, 9), (9, 5, 5, 9), (40, 0, 50, 9), ("", 1, 2, 3)])
def test_a_box_without_area_in_the_image_is_refused(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(Unusable):
        as_box(*box, (40, 30))


def square(x: float, y: float, side: float) -> Outline:
    return (x, y), (x + side, y), (x + side, y + side), (x, y + side)


def ring(radius: float, count: int) -> Outline:
    angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
    return tuple((100 + radius * np.cos(angle), 100 + radius * np.sin(angle)) for angle in angles)


CROSS = (
    ((2.0, 0.0), (3.0, 0.0), (3.0, 9.0), (2.0, 9.0)),
    ((0.0, 4.0), (9.0, 4.0), (9.0, 5.0), (0.0, 5.0)),
)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (square(0, 0, 10), square(8, 8, 10), True),
        (square(0, 0, 10), square(3, 3, 2), True),  # one inside the other
        (square(0, 0, 10), square(20, 0, 5), False),
        (square(0, 0, 10), ((8.0, 12.0), (12.0, 8.0), (12.0, 12.0)), False),  # only boxes overlap
        (square(0, 0, 10), square(0, 0, 10), True),
        (square(0, 0, 10)[2:] + square(0, 0, 10)[:2], square(0, 0, 10)[::-1], True),
        (ring(50, 20_000), ring(20, 20_000), True),
        (ring(50, 20_000), ring(50, 20_000), True),
        (*CROSS, True),  # no corner of one is inside the other
        (square(0, 0, 4), tuple(reversed(square(2, 2, 4))), True),  # drawn the other way round
    ],
)
def test_outlines_overlap_when_their_insides_do(
    first: Outline, second: Outline, expected: bool
) -> None:
    for one, other in itertools.permutations((first, second)):
        assert overlap(one, other) is expected
