"""Geometry: file pixels <-> region <-> model input, for points, boxes and masks.

Pixels are squares: the centre of the first one is at .5, and a box (x0, y0, x1, y1) is in the same
coordinates, so that the whole image is (0, 0, width, height). Images are resized in the same
convention (antialiased bilinear, corners not aligned). A film that is MONOCHROME1 has other grey values,
not another geometry.

Examples:
    >>> mapping = Mapping(Region(100, 200, 300, 400), size=50)
    >>> mapping.box_to_input((100, 200, 200, 300))
    (0.0, 0.0, 25.0, 25.0)
    >>> mapping.box_to_file((0, 0, 25, 25))
    (100.0, 200.0, 200.0, 300.0)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Point = tuple[float, float]  # x, y
Box = tuple[float, float, float, float]  # x0, y0, x1, y1
Mask = NDArray[np.bool_]

ORIENTATIONS = 8  # the symmetries of a square


class NoCrop(Exception):
    """A crop cannot be made; the message is the reason."""


class Spacing(NamedTuple):
    """Millimetres from one pixel of a file to the next."""

    x: float
    y: float

    def to_pixels(self, box: Box) -> Box:
        """A box in millimetres from the upper left corner of the image, in pixels of the file."""
        x0, y0, x1, y1 = box
        return x0 / self.x, y0 / self.y, x1 / self.x, y1 / self.y

    def to_millimetres(self, box: Box) -> Box:
        """A box in pixels of the file, in millimetres from the upper left corner of the image."""
        x0, y0, x1, y1 = box
        return x0 * self.x, y0 * self.y, x1 * self.x, y1 * self.y


# -- regions -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Region:
    """A rectangle of whole pixels of an image file; it may reach beyond the image."""

    x0: int
    y0: int
    x1: int
    y1: int

    @classmethod
    def square(cls, left: int, top: int, side: int) -> Region:
        """A square region by its upper left corner."""
        return cls(left, top, left + side, top + side)

    @classmethod
    def whole(cls, height: int, width: int) -> Region:
        """All of an image."""
        return cls(0, 0, width, height)

    def __str__(self) -> str:
        return f"{self.x0},{self.y0},{self.x1},{self.y1}"

    @property
    def width(self) -> int:
        """Pixels from left to right."""
        return self.x1 - self.x0

    @property
    def height(self) -> int:
        """Pixels from top to bottom."""
        return self.y1 - self.y0

    @property
    def box(self) -> Box:
        """The region as a box of the file."""
        return float(self.x0), float(self.y0), float(self.x1), float(self.y1)

    def within(self, height: int, width: int) -> bool:
        """Whether the region lies inside an image."""
        return self.x0 >= 0 and self.y0 >= 0 and self.x1 <= width and self.y1 <= height

    def overlaps(self, height: int, width: int) -> bool:
        """Whether any pixel of an image lies in the region."""
        return self.x0 < width and self.y0 < height and self.x1 > 0 and self.y1 > 0

    def from_file(self, box: Box) -> Box:
        """A box of the file in pixels of the region."""
        x0, y0, x1, y1 = box
        return x0 - self.x0, y0 - self.y0, x1 - self.x0, y1 - self.y0


def square_around(box: Box, margin: float, height: int, width: int) -> Region:
    """The square around a box with `margin` times its longer side on each side.

    It is shifted to stay inside the image; where it is larger than the image, it holds all of it.

    >>> square_around((40, 40, 60, 50), 0.5, 100, 200)
    Region(x0=30, y0=25, x1=70, y1=65)
    >>> square_around((0, 40, 20, 60), 0.5, 100, 200)
    Region(x0=0, y0=30, x1=40, y1=70)
    """
    x0, y0, side = _centred_square(box, margin)
    return Region.square(_shifted(x0, side, width), _shifted(y0, side, height), side)


def squared(box: Box) -> Region:
    """The square around the centre of a box, as wide as its longer side; it may leave the image.

    >>> squared((40, 40, 60, 50))
    Region(x0=40, y0=35, x1=60, y1=55)
    """
    return Region.square(*_centred_square(box, 0.0))


def _centred_square(box: Box, margin: float) -> tuple[int, int, int]:
    """Left, top and side of the square of whole pixels around a box."""
    x0, y0 = math.floor(box[0]), math.floor(box[1])
    x1, y1 = math.ceil(box[2]), math.ceil(box[3])
    side = math.ceil(max(x1 - x0, y1 - y0) * (1 + 2 * margin) - 1e-9)
    return (x0 + x1 - side) // 2, (y0 + y1 - side) // 2, side


def _shifted(start: int, side: int, length: int) -> int:
    room = length - side
    return min(max(start, min(room, 0)), max(room, 0))


def cut(image: NDArray[np.generic], region: Region) -> NDArray[np.generic]:
    """The region (h, w) or (h, w, C) of an image (H, W) or (H, W, C); zero beyond the image's edge."""
    height, width = image.shape[:2]
    out = np.zeros((region.height, region.width, *image.shape[2:]), image.dtype)
    target, source = _overlap(region, height, width)
    out[target] = image[source]
    return out


def paste(
    patch: NDArray[np.generic], region: Region, height: int, width: int
) -> NDArray[np.generic]:
    """An image (height, width) that holds a patch (h, w) in the region and zeros elsewhere."""
    out = np.zeros((height, width, *patch.shape[2:]), patch.dtype)
    target, source = _overlap(region, height, width)
    out[source] = patch[target]
    return out


def _overlap(
    region: Region, height: int, width: int
) -> tuple[tuple[slice, slice], tuple[slice, slice]]:
    """Rows and columns that region and image have in common: within the region, within the image."""
    x0, y0 = min(max(region.x0, 0), width), min(max(region.y0, 0), height)
    x1, y1 = max(min(region.x1, width), x0), max(min(region.y1, height), y0)
    here = slice(y0 - region.y0, y1 - region.y0), slice(x0 - region.x0, x1 - region.x0)
    return here, (slice(y0, y1), slice(x0, x1))


# -- boxes and masks of an image -------------------------------------------------------------------
def clip_box(box: Box, height: int, width: int) -> Box | None:
    """The part of a box inside the image, or None when there is none."""
    x0, y0 = max(box[0], 0.0), max(box[1], 0.0)
    x1, y1 = min(box[2], float(width)), min(box[3], float(height))
    return (x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None


def clipped(box: Box, height: int, width: int) -> Box:
    """The part of a lesion box inside the image; NoCrop when there is none."""
    if not all(math.isfinite(edge) for edge in box) or box[2] <= box[0] or box[3] <= box[1]:
        raise NoCrop("the lesion box is empty or inverted")
    inside = clip_box(box, height, width)
    if inside is None:
        raise NoCrop("the lesion box is outside the image")
    return inside


def extent(mask: Mask) -> Box:
    """The box of a mask's pixels."""
    columns, rows = np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))
    if not columns.size:
        raise NoCrop("the mask is empty")
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def ellipse_mask(box: Box, height: int, width: int) -> Mask:
    """The ellipse inscribed in a box, as a mask (height, width); never empty inside the image."""
    x0, y0, x1, y1 = box
    x = (np.arange(width) + 0.5 - (x0 + x1) / 2) / ((x1 - x0) / 2)
    y = (np.arange(height) + 0.5 - (y0 + y1) / 2) / ((y1 - y0) / 2)
    inside: Mask = x**2 + y[:, None] ** 2 <= 1
    if not inside.any():
        row = min(max(int((y0 + y1) / 2), 0), height - 1)
        column = min(max(int((x0 + x1) / 2), 0), width - 1)
        inside[row, column] = True
    return inside


# -- a rectangle and the square input --------------------------------------------------------------
def fitted_size(height: int, width: int, size: int, fit: str) -> tuple[int, int]:
    """Height and width of the image within the model's input."""
    if fit == "stretch":
        return size, size
    longest = max(height, width)
    return max(1, round(height * size / longest)), max(1, round(width * size / longest))


def fit_transform(
    height: int, width: int, size: int, fit: str
) -> tuple[float, float, float, float]:
    """scale_x, scale_y, offset_x, offset_y: input = scale * file + offset, in pixels.

    >>> fit_transform(100, 200, 50, "stretch")
    (0.25, 0.5, 0, 0)
    >>> fit_transform(100, 200, 50, "pad")
    (0.25, 0.25, 0, 12)
    """
    high, wide = fitted_size(height, width, size, fit)
    return wide / width, high / height, (size - wide) // 2, (size - high) // 2


def fit_planes(planes: Tensor, size: int, fit: str) -> Tensor:
    """Planes (C, H, W) resized with antialiasing and padded with zeros to (C, size, size)."""
    from torch.nn.functional import interpolate  # geometry without pixels needs no torch

    height, width = planes.shape[1:]
    high, wide = fitted_size(height, width, size, fit)
    if (high, wide) != (height, width):
        planes = interpolate(planes[None], (high, wide), mode="bilinear", antialias=True)[0]
    if (high, wide) == (size, size):
        return planes
    top, left = (size - high) // 2, (size - wide) // 2
    padded = planes.new_zeros(planes.shape[0], size, size)
    padded[:, top : top + high, left : left + wide] = planes
    return padded


def fit_mask(mask: Mask, size: int, fit: str) -> Tensor:
    """A mask (H, W) as uint8 (size, size): pixels at least half covered.

    Where none is (a tiny lesion), those that are covered most.
    """
    import torch

    coverage = fit_planes(torch.from_numpy(mask.astype(np.float32))[None], size, fit)[0]
    least = min(0.5, float(coverage.max())) if mask.any() else 0.5
    return (coverage >= least).to(torch.uint8)


# -- the mapping -----------------------------------------------------------------------------------
@dataclass(frozen=True)
class Mapping:
    """From pixels of an image file to the model's input, and back.

    The region is cut from the file, mirrored left-right where `mirrored` (data.dicom.flip), brought to
    `size` x `size` by `fit` ("stretch" or "pad"), then flipped and transposed as test-time augmentation
    does: `flip_x` mirrors left-right, `flip_y` up-down, `transposed` follows them and swaps x and y.
    `spacing` is that of the file, None where it does not tell.
    """

    region: Region
    size: int
    fit: str = "stretch"
    mirrored: bool = False
    flip_x: bool = False
    flip_y: bool = False
    transposed: bool = False
    spacing: Spacing | None = None

    def augmented(self, number: int) -> Mapping:
        """The mapping of a copy of test-time augmentation, by its number from 0 (as it is) to 7.

        The bits of the number are flip_x, flip_y and transposed, as in model/tta.py.
        """
        if not 0 <= number < ORIENTATIONS:
            raise ValueError(f"expected a number from 0 to {ORIENTATIONS - 1}, got {number}")
        flip_x, flip_y, transposed = (bool(number & bit) for bit in (1, 2, 4))
        return replace(self, flip_x=flip_x, flip_y=flip_y, transposed=transposed)

    @property
    def seen(self) -> Box:
        """What the model sees, in pixels of the file: the region, and its padding where it has one."""
        return self.box_to_file((0.0, 0.0, float(self.size), float(self.size)))

    def point_to_input(self, point: Point) -> Point:
        """A point of the file in pixels of the model's input."""
        x, y = point[0] - self.region.x0, point[1] - self.region.y0
        if self.mirrored:
            x = self.region.width - x
        scale_x, scale_y, offset_x, offset_y = self._transform()
        x, y = x * scale_x + offset_x, y * scale_y + offset_y
        x = self.size - x if self.flip_x else x
        y = self.size - y if self.flip_y else y
        return (y, x) if self.transposed else (x, y)

    def point_to_file(self, point: Point) -> Point:
        """A point of the model's input in pixels of the file."""
        x, y = (point[1], point[0]) if self.transposed else point
        x = self.size - x if self.flip_x else x
        y = self.size - y if self.flip_y else y
        scale_x, scale_y, offset_x, offset_y = self._transform()
        x, y = (x - offset_x) / scale_x, (y - offset_y) / scale_y
        if self.mirrored:
            x = self.region.width - x
        return x + self.region.x0, y + self.region.y0

    def box_to_input(self, box: Box) -> Box:
        """A box of the file in pixels of the model's input."""
        return _spanned(self.point_to_input(box[:2]), self.point_to_input(box[2:]))

    def box_to_file(self, box: Box) -> Box:
        """A box of the model's input in pixels of the file."""
        return _spanned(self.point_to_file(box[:2]), self.point_to_file(box[2:]))

    def fractions_to_file(self, box: Box) -> Box:
        """A box in fractions of the model's input, as explanations have it, in pixels of the file."""
        x0, y0, x1, y1 = (edge * self.size for edge in box)
        return self.box_to_file((x0, y0, x1, y1))

    def line_to_file(self, line: NDArray[np.float64]) -> list[list[float]]:
        """A line (n, 2) in fractions of the model's input, in pixels of the file, to a hundredth of one."""
        points = (self.point_to_file((x * self.size, y * self.size)) for x, y in line)
        return [[round(x, 2), round(y, 2)] for x, y in points]

    def image_to_input(self, image: NDArray[np.float32]) -> Tensor:
        """An image (H, W) or (H, W, 3) of the file as planes (C, size, size)."""
        import torch

        window = self._window(image)
        planes = window[None] if window.ndim == 2 else window.transpose(2, 0, 1)
        fitted = fit_planes(torch.from_numpy(np.ascontiguousarray(planes)), self.size, self.fit)
        return self._turned(fitted)

    def mask_to_input(self, mask: Mask) -> Tensor:
        """A mask (H, W) of the file as uint8 (size, size): pixels at least half covered."""
        return self._turned(fit_mask(np.asarray(self._window(mask), np.bool_), self.size, self.fit))

    def mask_to_file(self, mask: NDArray[np.generic], height: int, width: int) -> Mask:
        """A mask (size, size) of the input on the file's (height, width): its value at pixel centres."""
        columns = np.arange(self.region.width) + 0.5
        rows = np.arange(self.region.height) + 0.5
        upright = np.asarray(mask, np.bool_)
        upright = upright.T if self.transposed else upright
        upright = upright[:: -1 if self.flip_y else 1, :: -1 if self.flip_x else 1]
        scale_x, scale_y, offset_x, offset_y = self._transform()
        at_row = np.clip((rows * scale_y + offset_y).astype(int), 0, self.size - 1)
        at_column = np.clip((columns * scale_x + offset_x).astype(int), 0, self.size - 1)
        patch = upright[at_row[:, None], at_column]
        patch = patch[:, ::-1] if self.mirrored else patch
        return np.asarray(paste(patch, self.region, height, width), np.bool_)

    def _transform(self) -> tuple[float, float, float, float]:
        return fit_transform(self.region.height, self.region.width, self.size, self.fit)

    def _window(self, image: NDArray[np.generic]) -> NDArray[np.generic]:
        whole = self.region == Region.whole(*image.shape[:2])
        window = image if whole else cut(image, self.region)
        return window[:, ::-1] if self.mirrored else window

    def _turned(self, planes: Tensor) -> Tensor:
        axes = [axis for axis, flip in ((-1, self.flip_x), (-2, self.flip_y)) if flip]
        flipped = planes.flip(axes) if axes else planes
        return flipped.transpose(-2, -1) if self.transposed else flipped


def _spanned(first: Point, second: Point) -> Box:
    """The box with two opposite corners."""
    (xa, ya), (xb, yb) = first, second
    return min(xa, xb), min(ya, yb), max(xa, xb), max(ya, yb)
