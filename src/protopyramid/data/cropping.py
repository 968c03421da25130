"""Cropping of one lesion from its image, with its mask: functions on arrays, without files.

Pixels are squares: the centre of the first one is at .5, so that the whole image is the box
(0, 0, width, height).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.manifest import Box

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]

LARGEST = 65535
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
