"""Cropping of one lesion from its image, with its mask: functions on arrays, without files.

Pixels are squares: the centre of the first one is at .5, so that the whole image is the box
(0, 0, width, height).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.importers.base import Circle, Point, Polygons
from protopyramid.data.manifest import Box

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]

LARGEST = 65535
ASPECT_TOLERANCE = 0.05  # masks that differ more in shape are of another image
GREY_WEIGHTS = (0.299, 0.587, 0.114)  # ITU-R BT.601


class NoCrop(Exception):
    """A crop cannot be made; the message is the reason."""


@dataclass(frozen=True)
class Square:
    """A square window in pixels of the full image; it may reach beyond it."""

    left: int
    top: int
    side: int

    def within(self, height: int, width: int) -> bool:
        """Whether the window lies inside an image."""
        inside = self.left >= 0 and self.top >= 0
        return inside and self.left + self.side <= width and self.top + self.side <= height


def square_around(box: Box, margin: float, height: int, width: int) -> Square:
    """The square around a box with `margin` times its longer side on each side.

    It is shifted to stay inside the image; where it is larger than the image, it holds all of it.

    >>> square_around((40, 40, 60, 50), 0.5, 100, 200)
    Square(left=30, top=25, side=40)
    >>> square_around((0, 40, 20, 60), 0.5, 100, 200)
    Square(left=0, top=30, side=40)
    """
    x0, y0 = math.floor(box[0]), math.floor(box[1])
    x1, y1 = math.ceil(box[2]), math.ceil(box[3])
    side = math.ceil(max(x1 - x0, y1 - y0) * (1 + 2 * margin) - 1e-9)
    left = _shifted((x0 + x1 - side) // 2, side, width)
    top = _shifted((y0 + y1 - side) // 2, side, height)
    return Square(left, top, side)


def _shifted(start: int, side: int, length: int) -> int:
    room = length - side
    return min(max(start, min(room, 0)), max(room, 0))


def cut(image: NDArray[np.generic], square: Square) -> NDArray[np.generic]:
    """The window (side, side) of an image (H, W); zero beyond the image's edge."""
    height, width = image.shape
    out = np.zeros((square.side, square.side), image.dtype)
    x0, x1 = max(square.left, 0), min(square.left + square.side, width)
    y0, y1 = max(square.top, 0), min(square.top + square.side, height)
    if x0 < x1 and y0 < y1:
        rows = slice(y0 - square.top, y1 - square.top)
        out[rows, x0 - square.left : x1 - square.left] = image[y0:y1, x0:x1]
    return out


def clipped(box: Box, height: int, width: int) -> Box:
    """The part of a lesion box inside the image."""
    if not all(math.isfinite(edge) for edge in box) or box[2] <= box[0] or box[3] <= box[1]:
        raise NoCrop("the lesion box is empty or inverted")
    x0, y0 = max(box[0], 0.0), max(box[1], 0.0)
    x1, y1 = min(box[2], float(width)), min(box[3], float(height))
    if x1 <= x0 or y1 <= y0:
        raise NoCrop("the lesion box is outside the image")
    return x0, y0, x1, y1


def extent(mask: Mask) -> Box:
    """The box of a mask's pixels."""
    columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    if not columns.size:
        raise NoCrop("the mask is empty")
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def is_coloured(image: Array) -> bool:
    """Whether an image (H, W) or (H, W, 3) has a colour other than grey."""
    return image.ndim == 3 and not bool((image == image[..., :1]).all())


def to_grey(image: Array) -> Array:
    """A grey image (H, W) of a grey or colour one (H, W, 3)."""
    if not is_coloured(image):
        return image if image.ndim == 2 else image[..., 0]
    grey: Array = image @ np.array(GREY_WEIGHTS, np.float32)
    return grey


def to_16_bits(image: Array) -> NDArray[np.uint16]:
    """Values in [0, 1] as 16-bit ones; those of an 8- or 16-bit file come back exactly."""
    values: NDArray[np.uint16] = np.rint(np.clip(image, 0, 1) * LARGEST).astype(np.uint16)
    return values


def scaled_mask(mask: Mask, height: int, width: int) -> Mask:
    """A mask at the size of its image: each pixel takes the mask's value at its centre."""
    if mask.shape == (height, width):
        return mask
    rows, columns = mask.shape
    if abs(math.log(rows * width / (columns * height))) > ASPECT_TOLERANCE:
        raise NoCrop(
            f"the mask has another shape than its image: {columns} x {rows} and {width} x {height}"
        )
    at_row = ((np.arange(height) + 0.5) * rows / height).astype(int)
    at_column = ((np.arange(width) + 0.5) * columns / width).astype(int)
    scaled: Mask = mask[at_row[:, None], at_column]
    return scaled


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


def _draw_outline(mask: Mask, outline: tuple[Point, ...]) -> None:
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
