"""Pixels of a lesion's crop: functions on arrays, without files. Where it is cut is in geometry.py."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LARGEST = 65535
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
