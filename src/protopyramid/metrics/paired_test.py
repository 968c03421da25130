"""Paired bootstrap test of two runs' AUROC on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopyramid.metrics.auroc import (
    class_aurocs,
    mean_of_known,
    mean_of_resamples,
    resampled_class_aurocs,
)
from protopyramid.metrics.bootstrap import Interval, interval

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Difference:
    """A difference with its 95 % interval and two-sided p; all None where it is undefined."""

    difference: float | None
    ci95: Interval
    p: float | None


@dataclass(frozen=True)
class Pair:
    """Two runs on the same rows: probabilities (N, C), labels (N,) and how rows are drawn (R, N)."""

    first: Array
    second: Array
    labels: Labels
    weights: Array


def paired_differences(
    pairs: Sequence[Pair], classes: Sequence[str], negative: str
) -> dict[str, Difference]:
    """AUROC of the second runs minus that of the first, {class or "mean": difference}.

    Both runs of a pair are resampled alike. With several pairs, such as seeds or folds, it is the mean
    over pairs, and resample r of the mean is made of resample r of every pair. p is twice the share of
    resamples on the rarer side of zero.
    """
    sides = [
        [
            _aurocs(each, pair.labels, classes, negative, pair.weights)
            for each in (pair.first, pair.second)
        ]
        for pair in pairs
    ]
    results = {}
    for name in sides[0][0]:
        values = [
            mean_of_known({str(number): pair[side][name][0] for number, pair in enumerate(sides)})
            for side in (0, 1)
        ]
        drawn = np.mean([second[name][1] - first[name][1] for first, second in sides], axis=0)
        results[name] = _difference(values, drawn)
    return results


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; None where it is undefined."""

    value: float | None
    ci95: Interval


@dataclass(frozen=True)
class Scored:
    """A run on some rows: probabilities (N, C), labels (N,) and how rows are drawn (R, N)."""

    probabilities: Array
    labels: Labels
    weights: Array


def mean_aurocs(
    runs: Sequence[Scored], classes: Sequence[str], negative: str
) -> dict[str, Estimate]:
    """Mean AUROC over runs, such as folds, {class or "mean": estimate}; undefined ones are left out."""
    found = [_aurocs(r.probabilities, r.labels, classes, negative, r.weights) for r in runs]
    estimates = {}
    for name in found[0]:
        known = [each[name] for each in found if each[name][0] is not None]
        value = mean_of_known({str(number): point for number, (point, _) in enumerate(known)})
        drawn = np.mean([resampled for _, resampled in known], axis=0) if known else np.zeros(0)
        estimates[name] = Estimate(value, interval(drawn))
    return estimates


def _aurocs(
    probabilities: Array, labels: Labels, classes: Sequence[str], negative: str, weights: Array
) -> dict[str, tuple[float | None, Array]]:
    """AUROC and its resamples (R,), {class or "mean": ...}."""
    points = class_aurocs(probabilities, labels, classes, negative)
    drawn = resampled_class_aurocs(probabilities, labels, classes, negative, weights)
    mean = (mean_of_known(points), mean_of_resamples(points, drawn, len(weights)))
    return {**{name: (points[name], drawn[name]) for name in points}, "mean": mean}


def _difference(values: Sequence[float | None], drawn: Array) -> Difference:
    first, second = values
    limits = interval(drawn)
    if first is None or second is None or limits is None:
        return Difference(None, None, None)
    drawn = drawn[~np.isnan(drawn)]
    # A difference of exactly zero counts on both sides; the 1 keeps p above 0.
    rarer = min(int((drawn <= 0).sum()), int((drawn >= 0).sum())) + 1
    return Difference(second - first, limits, min(1.0, 2 * rarer / (len(drawn) + 1)))
