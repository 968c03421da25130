"""Outlines and boxes of a download: checked, compared, and converted from run-length masks.

Points are x, y in pixels of the full image, whose upper left corner is (0, 0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.annotations import Outline, outline_bounds
from protopyramid.data.geometry import Point
from protopyramid.data.importers.reading import Unusable, number
from protopyramid.data.manifest import Box

Size = tuple[float, float]  # width, height

LONGEST_SIDE = 2**16  # pixels; no image is larger
ENOUGH_POINTS = 1000
MOST_POINTS = 20_000  # of an outline; drawn ones have hundreds


def coordinate(value: object) -> float:
    """A number of pixels that some image could have, or a little beyond it."""
    found = number(value)
    if abs(found) > 2 * LONGEST_SIDE:
        raise Unusable(f"outside any image: {found:g}")
    return found


def as_outline(pairs: Iterable[Sequence[object]], size: Size | None) -> Outline:
    """A closed outline of some area, at least a part of it within the image."""
    points = tuple((coordinate(pair[0]), coordinate(pair[1])) for pair in pairs)
    if len(points) > MOST_POINTS:
        raise Unusable(f"unusable outline: {len(points)} points, the limit is {MOST_POINTS}")
    if len(set(points)) < 3:
        raise Unusable(f"unusable outline: {len(set(points))} distinct point(s), three are needed")
    bounds = outline_bounds([points])
    if bounds[0] == bounds[2] or bounds[1] == bounds[3]:
        raise Unusable("unusable outline: all points are on one line")
    check_within(bounds, size)
    return points


def as_box(x0: object, y0: object, x1: object, y1: object, size: Size | None) -> Box:
    """A box of some area, at least a part of it within the image."""
    box = (coordinate(x0), coordinate(y0), coordinate(x1), coordinate(y1))
    if box[2] <= box[0] or box[3] <= box[1]:
        raise Unusable("unusable box: it is empty or inverted")
    check_within(box, size)
    return box


def check_within(box: Box, size: Size | None) -> None:
    """Refuse a box outside the image; without a size, one to its left or above it."""
    width, height = size or (np.inf, np.inf)
    if box[0] >= width or box[1] >= height or box[2] <= 0 or box[3] <= 0:
        extent = f": the image has {width:g} x {height:g} pixels" if size else ""
        raise Unusable(f"outside its image{extent}")


def overlap(first: Outline, second: Outline) -> bool:
    """Whether the insides of two outlines share a part: an edge crosses, or one holds the other.

    Of outlines with more points than are drawn by hand, every second one (third, ...) is taken.
    """
    first, second = (outline[:: len(outline) // ENOUGH_POINTS + 1] for outline in (first, second))
    (left, top, right, bottom), other = outline_bounds([first]), outline_bounds([second])
    if left >= other[2] or top >= other[3] or right <= other[0] or bottom <= other[1]:
        return False
    return (
        _edges_cross(first, second)
        or _within(min(first), second)  # of equal outlines, the leftmost point is inside
        or _within(min(second), first)
    )


def _edges(outline: Outline) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    start = np.asarray(outline, dtype=float)
    return start, np.roll(start, -1, axis=0)


def _within(point: Point, outline: Outline) -> bool:
    """Whether a point is inside, by the number of edges to its right."""
    start, end = _edges(outline)
    x, y = point
    spans = (start[:, 1] > y) != (end[:, 1] > y)
    rise = np.where(end[:, 1] == start[:, 1], 1.0, end[:, 1] - start[:, 1])
    crossing = start[:, 0] + (y - start[:, 1]) * (end[:, 0] - start[:, 0]) / rise
    return bool((spans & (x < crossing)).sum() % 2)


def _edges_cross(first: Outline, second: Outline) -> bool:
    """Whether any edge of one has an end of an edge of the other on each side, and vice versa."""
    a, b = (ends[:, None] for ends in _edges(first))
    c, d = (ends[None] for ends in _edges(second))
    crossed = (_side(a, b, c) * _side(a, b, d) < 0) & (_side(c, d, a) * _side(c, d, b) < 0)
    return bool(crossed.any())


def _side(
    start: NDArray[np.float64], end: NDArray[np.float64], point: NDArray[np.float64]
) -> NDArray[np.float64]:
    along, to = end - start, point - start
    side: NDArray[np.float64] = np.sign(along[..., 0] * to[..., 1] - along[..., 1] * to[..., 0])
    return side


def run_lengths(text: str) -> list[int]:
    """The counts in the compressed string of a COCO mask.

    Six bits per character from "0" on: five of the value, low ones first, and one that says that more
    follow; the last value bit is the sign. From the fourth count on, it is the difference from the
    count two before.

    >>> run_lengths("52203")
    [5, 2, 2, 2, 5]
    """
    counts: list[int] = []
    value = shift = 0
    for letter in text:
        bits = ord(letter) - 48
        if not 0 <= bits < 64 or shift > 60:
            raise Unusable("unusable mask: invalid characters in the compressed counts")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
        value = shift = 0
    if shift:
        raise Unusable("unusable mask: the compressed counts are truncated")
    return counts


def mask_outlines(counts: object, size: object) -> tuple[Outline, ...]:
    """Rectangles that cover exactly the pixels of a COCO mask of size [height, width].

    The counts go down the columns: pixels outside, inside, outside and so on.
    """
    if isinstance(counts, str):
        counts = run_lengths(counts)
    height, width = _mask_size(size)
    if not isinstance(counts, list) or not all(isinstance(each, int) for each in counts):
        raise Unusable("unusable mask: counts are not integers")
    if min(counts, default=0) < 0 or sum(counts) != height * width:
        raise Unusable(f"unusable mask: the counts do not fill {width} x {height} pixels")
    outlines = tuple(_rectangles(_column_runs(counts, height)))
    if not outlines:
        raise Unusable("unusable mask: it is empty")
    return outlines


def _mask_size(size: object) -> tuple[int, int]:
    if isinstance(size, list) and len(size) == 2 and all(isinstance(each, int) for each in size):
        height, width = size
        if 0 < height <= LONGEST_SIDE and 0 < width <= LONGEST_SIDE:
            return height, width
    raise Unusable("unusable mask: invalid size [height, width]")


def _column_runs(counts: Sequence[int], height: int) -> Iterator[tuple[int, int, int]]:
    """x, y0, y1 of the parts of columns that are inside, from left to right."""
    position = 0
    for place, count in enumerate(counts):
        end = position + count
        while place % 2 and position < end:
            column, row = divmod(position, height)
            stop = min(height, row + end - position)
            yield column, row, stop
            position += stop - row
        position = end


def _rectangles(runs: Iterable[tuple[int, int, int]]) -> Iterator[Outline]:
    """Outlines of the runs; equal ones in neighbouring columns are one rectangle."""
    spans: dict[tuple[int, int], list[int]] = {}  # rows -> first and last column
    for column, row, stop in runs:
        span = spans.get((row, stop))
        if span is not None and span[1] == column - 1:
            span[1] = column
            continue
        if span is not None:
            yield _rectangle(span, row, stop)
        spans[row, stop] = [column, column]
    for (row, stop), span in spans.items():
        yield _rectangle(span, row, stop)


def _rectangle(span: Sequence[int], row: int, stop: int) -> Outline:
    left, right, top, bottom = float(span[0]), float(span[1] + 1), float(row), float(stop)
    return (left, top), (right, top), (right, bottom), (left, bottom)
