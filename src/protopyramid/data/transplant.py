"""A lesion in other surroundings: what lies outside its annotation comes from a negative image.

A network that has learned the surroundings of a lesion instead of the lesion loses by this; one whose
evidence lies in the lesion does not. Ours; the paper does nothing of the kind.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

Image = NDArray[np.float32]
EDGE = 3.0  # pixels over which one image fades into the other, as in the measures of faithfulness


def transplanted(
    image: Image, mask: NDArray[np.uint8], background: Image, margin: float = 0.05
) -> Image:
    """The annotated part of an image (C, S, S) in the surroundings of another (C, S, S); values in [0, 1].

    mask (S, S): 1 inside. `margin`, a fraction of the side, is how far around the annotation the image stays
    as it is. The background takes the mean and the spread of what it replaces, so that exposure does not give
    it away.
    """
    if not mask.any():
        raise ValueError("expected an annotated image, got an empty mask")
    kept = _kept_share(mask, margin * image.shape[-1])
    outside = kept < 0.5
    if not outside.any():
        return image
    matched = _matched(background, image[:, outside], background[:, outside])
    result: Image = np.clip(kept * image + (1 - kept) * matched, 0, 1).astype(np.float32)
    return result


def _kept_share(mask: NDArray[np.uint8], margin: float) -> Image:
    """The share (S, S) of the image itself: 1 up to `margin` pixels from the mask, then falling to 0."""
    distance = distance_transform_edt(mask == 0)
    share: Image = np.clip(0.5 + (margin - distance) / EDGE, 0, 1).astype(np.float32)
    return np.where(mask > 0, np.float32(1), share)


def _matched(background: Image, like: Image, replacing: Image) -> Image:
    """The background with the mean and standard deviation of `like`; values (C, N) each."""
    spread = replacing.std(dtype=np.float64)
    ratio = like.std(dtype=np.float64) / spread if spread > 0 else 1.0
    mean, own = like.mean(dtype=np.float64), replacing.mean(dtype=np.float64)
    matched: Image = ((background - own) * ratio + mean).astype(np.float32)
    return matched
