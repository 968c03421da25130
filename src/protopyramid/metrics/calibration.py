"""Calibration: whether a confidence of 80 % is right in 80 % of cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BINS = 15  # Guo et al. 2017


@dataclass(frozen=True)
class ReliabilityBin:
    """Rows whose confidence is in (low, high]: their mean confidence and accuracy, None without rows."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class Calibration:
    """Expected calibration error (None without rows) and the reliability curve."""

    ece: float | None
    reliability: tuple[ReliabilityBin, ...]


def calibration(probabilities: Array, labels: NDArray[np.int64], bins: int = BINS) -> Calibration:
    """The calibration of probabilities (N, C) for labels (N,)."""
    curve = reliability(probabilities, labels, bins)
    return Calibration(expected_calibration_error(curve), curve)


def reliability(
    probabilities: Array, labels: NDArray[np.int64], bins: int = BINS
) -> tuple[ReliabilityBin, ...]:
    """The reliability curve over equal bins of confidence, the greatest probability of a row."""
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == labels
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    curve = []
    for number in range(bins):
        chosen = place == number
        count = int(chosen.sum())
        curve.append(
            ReliabilityBin(
                low=number / bins,
                high=(number + 1) / bins,
                count=count,
                confidence=float(confidence[chosen].mean()) if count else None,
                accuracy=float(right[chosen].mean()) if count else None,
            )
        )
    return tuple(curve)


def expected_calibration_error(curve: Sequence[ReliabilityBin]) -> float | None:
    """Mean gap between confidence and accuracy, weighted by count (ECE); None without rows."""
    total = sum(each.count for each in curve)
    if not total:
        return None
    gaps = (
        each.count * abs(each.confidence - each.accuracy)
        for each in curve
        if each.confidence is not None and each.accuracy is not None
    )
    return float(sum(gaps) / total)
