"""Films whose breast is known, and what overlaps on them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.negatives.tissue import tissue_mask

HEIGHT, WIDTH = 480, 320
LESION = (60.0, 200.0, 110.0, 240.0)


def breast(height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.bool_]:
    """Half an ellipse at the left edge: the known truth."""
    y, x = np.mgrid[:height, :width]
    return ((y - height / 2) / (0.4 * height)) ** 2 + (x / (0.7 * width)) ** 2 < 1


@cache
def tissue_of(seed: int) -> NDArray[np.bool_]:
    return tissue_mask(scanned_film(seed))


def digital_film(seed: int = 0) -> NDArray[np.float64]:
    """Tissue of about .5 with texture on a background of exactly zero."""
    texture = np.random.default_rng(seed).normal(0, 0.05, (HEIGHT, WIDTH))
    return np.where(breast(), np.clip(0.5 + texture, 0.2, 1), 0.0)


def scanned_film(seed: int = 0) -> NDArray[np.float64]:
    """The same with a grey, noisy background, a white frame, letters and a solid label."""
    noise = np.abs(np.random.default_rng(seed).normal(0, 0.01, (HEIGHT, WIDTH)))
    film = np.maximum(digital_film(seed), 0.03 + noise)
    film[:6] = film[-5:] = 1.0
    film[:, :4] = film[:, -7:] = 0.95
    for column in range(200, 270, 14):  # letters
        film[30:60, column : column + 5] = 1.0
    film[400:440, 240:290] = 0.9  # a label
    return film


def touches(patch: Sequence[float], box: Sequence[float]) -> bool:
    return patch[0] < box[2] and box[0] < patch[2] and patch[1] < box[3] and box[1] < patch[3]
