"""Measures of part prototypes from the literature, as pure functions on arrays.

Several are defined on annotated object parts (beak, wing). Lesions have none, so the nearest honest
equivalent stands in: the *part* at a pixel is the fine annotation (2), the rest of the lesion box (1) or the
surroundings (0), and a prototype's part on an image is the one under the peak of its map.

Sources: Huang et al. 2023, "Evaluation and improvement of interpretability for self-explainable
part-prototype networks" (consistency, stability); Nauta et al. 2023, PIP-Net (purity), and the Co-12
properties (continuity, contrastivity, compactness), which Schlinge et al. 2025, QuanProto, measure on
prototypes; Xu-Darme et al., CaBRNet (focused and dual perturbation). docs/faithfulness.md says what differs.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.metrics.bootstrap import Interval, interval

Array = NDArray[np.float64]
Parts = NDArray[np.int64]

PARTS = ("surroundings", "lesion box", "annotation")
UNKNOWN = -1  # the part of a map on an image without any annotation
CONSISTENT = 0.8  # share of the images on which a consistent prototype has the same part (Huang)
NOISE, LARGEST_NOISE = 0.2, 0.25  # of normalised grey values: deviation and limit (their code)
PURITY_IMAGES = 10  # the images with the highest score (PIP-Net)
COVERED = 0.9  # of the contributions' sizes that an explanation should name
DARKER = 0.7  # brightness of the darkened copy


# -- parts ---------------------------------------------------------------------------------------
def part_maps(fine: Tensor, lesion: Tensor) -> Tensor:
    """The part at each pixel. Annotations bool (N, H, W) -> long (N, H, W), UNKNOWN without either."""
    parts = torch.where(fine, 2, torch.where(lesion, 1, 0))
    missing = ~(fine.flatten(1).any(1) | lesion.flatten(1).any(1))
    return parts.masked_fill(missing[:, None, None], UNKNOWN)


def parts_at_peaks(activation: Tensor, parts: Tensor) -> Parts:
    """The part under the highest pixel of each map. (N, H, W), long (N, H, W) -> (N,)."""
    peaks = activation.flatten(1).argmax(1, keepdim=True)
    found: Parts = parts.flatten(1).gather(1, peaks)[:, 0].numpy()
    return found


def consistency(parts: Parts, weights: Array) -> float | None:
    """Consistency (Huang 2023): share of prototypes with one part on at least 80 % of their images.

    parts (N, m), UNKNOWN where the image is not of the prototype's class or not annotated; weights (N,), how
    often each image counts. None where no prototype can be judged.
    """
    shares = []
    for column in parts.T:
        known = (column != UNKNOWN) & (weights > 0)
        if known.any():
            counts = np.bincount(column[known], weights[known], minlength=len(PARTS))
            shares.append(counts.max() / counts.sum())
    return float(np.mean(np.array(shares) >= CONSISTENT)) if shares else None


def consistency_interval(parts: Parts, weights: Array) -> Interval:
    """The interval of `consistency` over resampled patients. weights (R, N)."""
    found = [consistency(parts, row) for row in weights]
    return interval(np.array([np.nan if each is None else each for each in found]))


def purity(parts: Parts, scores: Array) -> float | None:
    """Purity (PIP-Net): on the ten images with a prototype's highest scores, the share of its commonest part.

    parts, scores (N, m), UNKNOWN where an image does not count; the mean over prototypes.
    """
    found = []
    for column, score in zip(parts.T, scores.T, strict=True):
        known = np.flatnonzero(column != UNKNOWN)
        if len(known):
            best = known[np.argsort(-score[known], kind="stable")[:PURITY_IMAGES]]
            found.append(np.bincount(column[best]).max() / len(best))
    return float(np.mean(found)) if found else None


# -- the same image again, and other prototypes ----------------------------------------------------
def noisy(images: Tensor, deviation: Tensor, seed: int) -> Tensor:
    """Images (N, C, S, S) in [0, 1] with Gaussian noise, limited as in Huang's code.

    deviation (C,): the standard deviation that grey values are normalised by.
    """
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed)) * NOISE
    return images + noise.clamp(-LARGEST_NOISE, LARGEST_NOISE) * deviation[:, None, None]


def overlap(first: Tensor, second: Tensor) -> Array:
    """Intersection over union of regions, bool (N, H, W) each -> (N,); 1 where both are empty.

    Continuity (Co-12) is the overlap of a prototype's regions before and after noise, 1 minus QuanProto's
    location change; contrastivity is 1 minus the overlap of two prototypes' regions on one image.
    """
    both, either = (first & second).flatten(1).sum(1), (first | second).flatten(1).sum(1)
    found: Array = torch.where(either > 0, both.double() / either, 1.0).numpy()
    return found


def explanation_size(contributions: Array, share: float = COVERED) -> NDArray[np.int64]:
    """Compactness (Co-12; the definition is ours): the fewest prototypes that make up most contributions.

    contributions (N, m) to a class -> (N,): how many sizes, largest first, add up to the share of all; 0
    where all are 0.
    """
    sizes = -np.sort(-np.abs(contributions), axis=1)
    total = sizes.sum(1, keepdims=True)
    short = np.cumsum(sizes, axis=1) < share * total * (1 - 1e-12)
    found: NDArray[np.int64] = np.where(total[:, 0] > 0, short.sum(1) + 1, 0)
    return found


# -- focused and dual perturbation -----------------------------------------------------------------
def darkened(image: Tensor) -> Tensor:
    """The image at 70 % of its brightness: the second perturbation, beside blur."""
    return image * DARKER


def peak_drop(before: Tensor, after: Tensor) -> Array:
    """How far the highest similarity falls, as a share of its height above the map's mean before.

    (N, h, w) each -> (N,), NaN for flat maps. CaBRNet's benchmark compares the drop when only the region that
    is shown is perturbed (focused) with the drop when only the rest is (dual): the first should be larger.
    """
    first, then = before.double().flatten(1), after.double().flatten(1)
    height = first.amax(1) - first.mean(1)
    drop = (first.amax(1) - then.amax(1)) / height
    found: Array = torch.where(height > 1e-6, drop, torch.nan).numpy()
    return found
