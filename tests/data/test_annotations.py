"""A shape covers the pixels whose centre is inside."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from protopyramid.data.annotations import Circle, Polygons, bounds, drawn_mask

points = st.lists(st.tuples(st.floats(-3, 13), st.floats(-3, 13)), min_size=3, max_size=6)


@given(points)
def test_a_polygon_covers_the_pixels_whose_centre_is_inside(outline) -> None:
    mask = drawn_mask(Polygons((tuple(outline),)), 10, 9)
    for row in range(10):
        for column in range(9):
            assert mask[row, column] == centre_inside(outline, column + 0.5, row + 0.5)


def centre_inside(outline, x: float, y: float) -> bool:
    """Crossings of the ray to the left, one edge after the other."""
    inside = False
    for (x0, y0), (x1, y1) in zip(outline, [*outline[1:], outline[0]], strict=True):
        if (y0 <= y) != (y1 <= y):
            inside ^= x0 + (y - y0) / (y1 - y0) * (x1 - x0) <= x
    return inside


def test_outlines_are_taken_together_and_a_rectangle_is_exact() -> None:
    first = ((1, 1), (4, 1), (4, 5), (1, 5))
    second = ((3, 3), (7, 3), (7, 8), (3, 8))
    mask = drawn_mask(Polygons((first, second)), 10, 10)
    expected = np.zeros((10, 10), bool)
    expected[1:5, 1:4] = expected[3:8, 3:7] = True
    assert (mask == expected).all()


@given(st.floats(-4, 14), st.floats(-4, 14), st.floats(0.1, 9))
def test_a_circle_covers_the_pixels_whose_centre_is_inside(x: float, y: float, r: float) -> None:
    mask = drawn_mask(Circle((x, y), r), 9, 10)
    rows, columns = np.mgrid[:9, :10] + 0.5
    assert (mask == ((columns - x) ** 2 + (rows - y) ** 2 <= r**2)).all()


@given(points)
def test_bounds_enclose_every_pixel_that_a_shape_covers(outline) -> None:
    shape = Polygons((tuple(outline),))
    x0, y0, x1, y1 = bounds(shape)
    rows, columns = np.nonzero(drawn_mask(shape, 10, 9))
    assert ((columns + 0.5 >= x0) & (columns + 0.5 <= x1)).all()
    assert ((rows + 0.5 >= y0) & (rows + 0.5 <= y1)).all()
    assert bounds(Circle((3, 4), 2)) == (1, 2, 5, 6)
