"""Shapes of fine annotations, and the masks that they draw.

Points are x, y in pixels of the full image, whose upper left corner is (0, 0): the centre of its first pixel
is at (.5, .5).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from protopyramid.data.geometry import Box, Mask, NoCrop, Point


@dataclass(frozen=True)
class Circle:
    """A disc, given by its centre and radius in pixels of the full image."""

    centre: Point
    radius: float


Outline = tuple[Point, ...]


@dataclass(frozen=True)
class Polygons:
    """The union of closed outlines."""

    outlines: tuple[Outline, ...]


@dataclass(frozen=True)
class MaskFile:
    """The non-zero pixels of a file that shows the full image's extent, at any resolution."""

    path: Path


Annotation = Circle | Polygons | MaskFile


def outline_bounds(outlines: Iterable[Outline]) -> Box:
    """The smallest box around outlines."""
    points = [point for outline in outlines for point in outline]
    across, down = [x for x, _ in points], [y for _, y in points]
    return min(across), min(down), max(across), max(down)


def bounds(shape: Annotation) -> Box | None:
    """The box around a shape; None for a mask file, since no pixels are read here."""
    if isinstance(shape, MaskFile):
        return None
    if isinstance(shape, Circle):
        (x, y), radius = shape.centre, shape.radius
        return x - radius, y - radius, x + radius, y + radius
    return outline_bounds(shape.outlines)


def drawn_mask(shape: Circle | Polygons, height: int, width: int) -> Mask:
    """The mask (height, width) of a shape: the pixels whose centre is inside."""
    mask = np.zeros((height, width), np.bool_)
    if isinstance(shape, Circle):
        _draw_circle(mask, shape)
    else:
        for outline in shape.outlines:
            _draw_outline(mask, outline)
    return mask


def _draw_circle(mask: Mask, circle: Circle) -> None:
    (x, y), radius = circle.centre, circle.radius
    if not all(math.isfinite(value) for value in (x, y, radius)) or radius <= 0:
        raise NoCrop("the circle has no size")
    height, width = mask.shape
    left, right = _reach(x, radius, width)
    top, bottom = _reach(y, radius, height)
    columns = np.arange(left, right) + 0.5 - x
    rows = np.arange(top, bottom) + 0.5 - y
    mask[top:bottom, left:right] |= columns**2 + rows[:, None] ** 2 <= radius**2


def _reach(centre: float, radius: float, length: int) -> tuple[int, int]:
    """First pixel and the one after the last that a circle can touch, within the image."""
    start, stop = math.floor(centre - radius), math.ceil(centre + radius)
    start = min(max(start, 0), length)
    return start, max(min(stop, length), start)


def _draw_outline(mask: Mask, outline: Outline) -> None:
    """Fill a closed outline row by row: inside is where an odd number of its edges are left."""
    points = np.asarray(outline, dtype=float).reshape(-1, 2)
    if not np.isfinite(points).all():
        raise NoCrop("the outline is not finite")
    if len(points) < 3:
        return
    x0, y0 = points.T
    x1, y1 = np.roll(points, -1, 0).T
    height, width = mask.shape
    for row in range(max(math.floor(y0.min()), 0), min(math.ceil(y0.max()), height)):
        centre = row + 0.5
        crossing = (y0 <= centre) != (y1 <= centre)
        share = (centre - y0[crossing]) / (y1[crossing] - y0[crossing])
        at = np.sort(x0[crossing] + share * (x1[crossing] - x0[crossing]))
        ends = np.clip(np.ceil(at - 0.5), 0, width).astype(int)
        for start, stop in zip(ends[::2], ends[1::2], strict=True):
            mask[row, start:stop] = True
