"""Masks of images: reading them, the one rule for a mask of another size, and the band of the margin."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.geometry import Mask
from protopyramid.data.io.decoding import read_marks
from protopyramid.errors import UserError


class MaskSizeError(Exception):
    """A mask has another aspect ratio than its image; the message gives both sizes."""


def read_mask(path: str | Path, size: tuple[int, int]) -> Mask:
    """The mask (H, W) of an image of that size: non-zero is inside.

    A mask of another size but the same aspect ratio is resized with a warning. A JPEG mask is thresholded
    at half of the range, since compression leaves faint traces outside.
    """
    mask = read_marks(path)
    try:
        resized = resized_mask(mask, size)
    except MaskSizeError as error:
        raise UserError(f"{path}: {error}; draw the mask on the image at the same size") from None
    if mask.shape != size:
        warnings.warn(
            f"{path}: the mask ({_in_words(mask.shape)}) was resized to the size of its image "
            f"({_in_words(size)})",
            stacklevel=2,
        )
    return resized


def resized_mask(mask: Mask, size: tuple[int, int]) -> Mask:
    """A mask (h, w) at the size (H, W) of its image: each pixel takes the mask's value at its centre.

    The aspect ratios must be the same but for rounding to whole pixels: one pixel of the coarser of the
    two, along the longer side.

    >>> resized_mask(np.array([[True, False]]), (2, 4)).astype(int).tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0]]
    """
    (height, width), (rows, columns) = size, mask.shape
    if (rows, columns) == (height, width):
        return mask
    if abs(height * columns - width * rows) > max(height, width, rows, columns):
        raise MaskSizeError(
            f"the mask has another aspect ratio than its image: {_in_words(mask.shape)} and "
            f"{_in_words(size)}"
        )
    at_row = ((np.arange(height) + 0.5) * rows / height).astype(int)
    at_column = ((np.arange(width) + 0.5) * columns / width).astype(int)
    resized: Mask = mask[at_row[:, None], at_column]
    return resized


def margin_band(mask: Mask, inner: float, outer: float) -> Mask:
    """The band around the outline of a lesion's mask (H, W): where its margin is.

    inner, outer: how far the band reaches to either side, as fractions of the lesion's size, the diameter
    of a disc of the same area. A pixel belongs to it by the distance of its centre from the outline, which
    runs between pixels. The pixels along the outline always belong to it, unless their side is 0 wide.
    The border of the image is not an outline: a lesion that is cut off there has no margin there.
    """
    # Here, since most commands need no band and the import takes time.
    from scipy.ndimage import distance_transform_edt

    band = np.zeros_like(mask)
    if not mask.any():
        return band
    size = 2 * math.sqrt(np.count_nonzero(mask) / math.pi)
    reach = outer * size  # nothing farther away can be in the band
    rows = _window(np.asarray(mask.any(1)), reach)
    columns = _window(np.asarray(mask.any(0)), reach)
    inside = mask[rows, columns]
    for part, share in ((inside, inner), (~inside, outer)):
        if share > 0 and not part.all():
            distance = distance_transform_edt(part) - 0.5
            band[rows, columns] |= part & (distance <= max(share * size, 0.5))
    return band


def _window(occupied: NDArray[np.bool_], reach: float) -> slice:
    """The occupied part of an axis, extended on both sides by a number of pixels."""
    places = np.flatnonzero(occupied)
    more = math.ceil(reach) + 2
    return slice(max(0, int(places[0]) - more), int(places[-1]) + 1 + more)


def _in_words(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]} pixels"
