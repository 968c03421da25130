"""Masks of images: reading them, and the one rule for a mask of another size than its image."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

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


def _in_words(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]} pixels"
