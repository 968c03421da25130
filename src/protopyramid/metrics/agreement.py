"""Agreement of two people, or of a person and a model, beyond chance: Cohen's kappa.

Arrays: answers (N,) class numbers, weights (R, N) of bootstrap resamples. What is undefined is None or NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from protopyramid.metrics.confusion import confusion_matrix

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def cohen_kappa(first: Labels, second: Labels, classes: int) -> float | None:
    """Cohen's kappa of two raters (N,): 1 = always agree, 0 = as often as by chance.

    None where chance alone would make them agree always (both gave one and the same answer), or without
    cases.

    >>> cohen_kappa(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]), 2)
    0.5
    """
    kappa = _kappas(confusion_matrix(first, second, classes)[None].astype(np.float64))[0]
    return None if np.isnan(kappa) else float(kappa)


def resampled_kappas(first: Labels, second: Labels, classes: int, weights: Array) -> Array:
    """Kappa of each resample: first, second (N,), weights (R, N) -> (R,); NaN where it is undefined."""
    pairs = np.eye(classes * classes)[first * classes + second]  # (N, C * C)
    return _kappas((weights @ pairs).reshape(-1, classes, classes))


def _kappas(counts: Array) -> Array:
    """Kappa of tables of agreement (R, C, C)."""
    total = counts.sum((1, 2))
    agreed = np.trace(counts, axis1=1, axis2=2)
    chance = (counts.sum(1) * counts.sum(2)).sum(1)  # times the square of the total
    room = total * total - chance
    return np.where(room > 0, (agreed * total - chance) / np.where(room > 0, room, 1), np.nan)
