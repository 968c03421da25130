"""Area under the ROC curve, of one class against the rest, with bootstrap intervals.

Arrays: probabilities (N, C), labels (N,) class numbers, weights (R, N) of bootstrap resamples. What is
undefined (a class without rows) is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopyramid.metrics.bootstrap import Interval, interval

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

BLOCK = 4_000_000  # elements of a block of resamples, so that memory stays small


@dataclass(frozen=True)
class Auroc:
    """One-vs-rest AUROC of each class and their mean, with 95 % intervals."""

    mean: float | None
    per_class: Mapping[str, float | None]
    ci95: Interval
    ci95_per_class: Mapping[str, Interval]


def auroc(scores: Array, positive: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve: the chance that a positive outranks a negative, ties counting half.

    scores (N,), positive (N,) -> value in [0, 1], or None where one of the two sides is empty.

    >>> auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    0.75
    """
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def weighted_aurocs(scores: Array, positive: NDArray[np.bool_], weights: Array) -> Array:
    """AUROC of each resample, ties counting half; NaN where one side is empty.

    scores (N,), positive (N,), weights (R, N) -> (R,).
    """
    if not len(scores):
        return np.full(len(weights), np.nan)
    order = np.argsort(scores, kind="stable")
    ranked, positive = scores[order], positive[order]
    starts = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    values = np.empty(len(weights))
    step = max(1, BLOCK // len(scores))
    for start in range(0, len(weights), step):
        drawn = weights[start : start + step, order]
        ones = np.add.reduceat(drawn * positive, starts, axis=1)
        zeros = np.add.reduceat(drawn * ~positive, starts, axis=1)
        below = np.cumsum(zeros, axis=1) - zeros
        pairs = ones.sum(1) * zeros.sum(1)
        wins = (ones * (below + zeros / 2)).sum(1)
        values[start : start + step] = np.where(pairs > 0, wins / np.maximum(pairs, 1), np.nan)
    return values


def class_aurocs(
    probabilities: Array, labels: Labels, classes: Sequence[str], negative: str
) -> dict[str, float | None]:
    """One-vs-rest AUROC of each class but `negative`, among the rows whose label is not negative.

    probabilities (N, C): softmax over all classes; labels (N,). With `negative` "", all rows and classes.
    """
    margins = [number for number, name in enumerate(classes) if name != negative]
    rows = np.isin(labels, margins)
    return {
        classes[number]: auroc(probabilities[rows, number], labels[rows] == number)
        for number in margins
    }


def resampled_class_aurocs(
    probabilities: Array,
    labels: Labels,
    classes: Sequence[str],
    negative: str,
    weights: Array,
) -> dict[str, Array]:
    """As `class_aurocs`, in each resample: {class: (R,)}."""
    margins = [number for number, name in enumerate(classes) if name != negative]
    rows = np.isin(labels, margins)
    return {
        classes[number]: weighted_aurocs(
            probabilities[rows, number], labels[rows] == number, weights[:, rows]
        )
        for number in margins
    }


def mean_of_known(values: Mapping[str, float | None]) -> float | None:
    """Mean of the values that are defined; None when none is."""
    known = [value for value in values.values() if value is not None]
    return float(np.mean(known)) if known else None


def mean_of_resamples(
    per_class: Mapping[str, float | None], drawn: Mapping[str, Array], resamples: int
) -> Array:
    """Mean over the defined classes in each resample, NaN where one of them was not drawn."""
    known = [drawn[name] for name, value in per_class.items() if value is not None]
    return np.mean(known, axis=0) if known else np.full(resamples, np.nan)


def auroc_with_intervals(
    probabilities: Array,
    labels: Labels,
    classes: Sequence[str],
    negative: str,
    weights: Array,
) -> Auroc:
    """The one-vs-rest AUROC with intervals.

    Rows of the class `negative` are left out; "" keeps all rows and classes.
    """
    per_class = class_aurocs(probabilities, labels, classes, negative)
    drawn = resampled_class_aurocs(probabilities, labels, classes, negative, weights)
    return Auroc(
        mean=mean_of_known(per_class),
        per_class=per_class,
        ci95=interval(mean_of_resamples(per_class, drawn, len(weights))),
        ci95_per_class={
            name: None if per_class[name] is None else interval(values)
            for name, values in drawn.items()
        },
    )


def roc_curve(scores: Array, positive: NDArray[np.bool_]) -> tuple[Array, Array] | None:
    """False and true positive rates, from (0, 0) to (1, 1); None where one side is empty."""
    if not positive.any() or positive.all():
        return None
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.r_[np.diff(scores[order]) != 0, True])
    true_rates = np.cumsum(positive[order])[last] / positive.sum()
    false_rates = np.cumsum(~positive[order])[last] / (~positive).sum()
    return np.r_[0.0, false_rates], np.r_[0.0, true_rates]
