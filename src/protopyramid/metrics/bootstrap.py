"""Intervals by the bootstrap over patients.

Whole patients are resampled, not images: two views of one breast are not independent. A resample is a row
of weights, how often each image is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float] | None

RESAMPLES = 1000
COVERAGE = 0.95
MIN_DEFINED = (
    0.5  # share of resamples in which a metric must be defined for its interval to be given
)


def resample_weights(groups: Sequence[str], resamples: int, seed: int) -> Array:
    """How often each row is drawn when whole groups are drawn with replacement.

    N group names -> (resamples, N); rows of one group share their weight.
    """
    names, rows = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    if not len(names):
        return np.zeros((resamples, 0))
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    return np.asarray(draws[:, rows], dtype=np.float64)


def interval(values: Array) -> Interval:
    """The central 95 % of resampled values (R,), NaN where the metric was undefined."""
    known = values[~np.isnan(values)]
    if not len(known) or len(known) < MIN_DEFINED * len(values):
        return None
    low, high = np.quantile(known, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


def mean_interval(sums: Array, counts: Array, weights: Array) -> Interval:
    """Interval of sum(sums) / sum(counts) over rows. sums, counts (N,); weights (R, N)."""
    total = weights @ counts
    values = np.where(total > 0, (weights @ sums) / np.maximum(total, 1e-300), np.nan)
    return interval(values)
