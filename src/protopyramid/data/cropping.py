"""Pixels and masks of a lesion's crop: functions on arrays, without files.

Coordinates, and where a crop is cut, are those of geometry.py.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.geometry import Mask, NoCrop, Point
from protopyramid.data.importers.base import Circle, Polygons

Array = NDArray[np.float32]

LARGEST = 65535
ASPECT_TOLERANCE = 0.05  # masks that differ more in shape are of another image
GREY_WEIGHTS = (0.299, 0.587, 0.114)  # ITU-R BT.601


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
