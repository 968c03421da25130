"""Figures of a classifier from its probabilities: AUROC with intervals, confusion, calibration.

All are pure functions of arrays: probabilities (N, C), labels (N,) class numbers, groups (N,)
patients. Intervals resample patients, not images: two views of one breast are not two witnesses.
What is undefined (a class without rows) is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopyramid.metrics.validation import class_aurocs

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Interval = list[float] | None

COVERAGE = 0.95
CALIBRATION_BINS = 15  # Guo et al. 2017
BLOCK = 4_000_000  # elements of a block of resamples, so that memory stays small
LEAST_DEFINED = 0.5  # share of resamples in which a figure must exist for its interval to be given


def softmax(logits: Array) -> Array:
    """Probabilities of logits. (N, C) -> (N, C)."""
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(exponents / exponents.sum(1, keepdims=True))


# -- bootstrap -----------------------------------------------------------------------------------
def resample_weights(groups: Sequence[str], resamples: int, seed: int) -> Array:
    """How often each row is drawn when whole groups are drawn with replacement.

    N groups' names -> (resamples, N); rows of one group share their weight.
    """
    names, rows = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    if not len(names):
        return np.zeros((resamples, 0))
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    return np.asarray(draws[:, rows], dtype=np.float64)


def interval(values: Array) -> Interval:
    """The central 95 % of resampled values (R,), NaN where the figure did not exist."""
    known = values[~np.isnan(values)]
    if not len(known) or len(known) < LEAST_DEFINED * len(values):
        return None
    low, high = np.quantile(known, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return [float(low), float(high)]


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


def resampled_aurocs(
    probabilities: Array,
    labels: Labels,
    classes: Sequence[str],
    negative: str,
    weights: Array,
) -> dict[str, Array]:
    """One-vs-rest AUROC of each class but `negative` in each resample, {class: (R,)}.

    As in `class_aurocs`, rows of the negative class are left out.
    """
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


def auroc_figures(
    probabilities: Array,
    labels: Labels,
    classes: Sequence[str],
    negative: str,
    weights: Array,
) -> dict[str, Any]:
    """`mean`, `per_class`, `ci95` (of the mean) and `ci95_per_class` of the one-vs-rest AUROC.

    Rows of the class `negative` are left out; "" keeps all rows and classes.
    """
    per_class = class_aurocs(probabilities, labels, classes, negative)
    drawn = resampled_aurocs(probabilities, labels, classes, negative, weights)
    return {
        "mean": mean_of_known(per_class),
        "per_class": per_class,
        "ci95": interval(_mean_of_resamples(per_class, drawn, len(weights))),
        "ci95_per_class": {
            name: None if per_class[name] is None else interval(values)
            for name, values in drawn.items()
        },
    }


def _mean_of_resamples(
    per_class: Mapping[str, float | None], drawn: Mapping[str, Array], resamples: int
) -> Array:
    """Mean over the defined classes in each resample, NaN where one of them was not drawn."""
    known = [drawn[name] for name, value in per_class.items() if value is not None]
    return np.mean(known, axis=0) if known else np.full(resamples, np.nan)


@dataclass(frozen=True)
class Pair:
    """Two runs on the same rows: probabilities (N, C), labels (N,) and how rows are drawn (R, N)."""

    first: Array
    second: Array
    labels: Labels
    weights: Array


def paired_differences(
    first: Array,
    second: Array,
    labels: Labels,
    classes: Sequence[str],
    negative: str,
    weights: Array,
) -> dict[str, dict[str, Any]]:
    """Paired test of the AUROC of `second` against `first` on the same rows, {class or "mean": ...}.

    first, second (N, C). Both are resampled alike. `difference` = second - first, `ci95`, and `p`,
    two-sided: twice the share of resamples on the rarer side of zero.
    """
    pair = Pair(first, second, labels, weights)
    return mean_paired_differences([pair], classes, negative)


def mean_paired_differences(
    pairs: Sequence[Pair], classes: Sequence[str], negative: str
) -> dict[str, dict[str, Any]]:
    """As `paired_differences`, of the mean over several pairs of runs, as those of seeds or folds.

    Resample r of the mean is made of resample r of every pair.
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


def _aurocs(
    probabilities: Array, labels: Labels, classes: Sequence[str], negative: str, weights: Array
) -> dict[str, tuple[float | None, Array]]:
    """AUROC and its resamples (R,), {class or "mean": ...}."""
    points = class_aurocs(probabilities, labels, classes, negative)
    drawn = resampled_aurocs(probabilities, labels, classes, negative, weights)
    mean = (mean_of_known(points), _mean_of_resamples(points, drawn, len(weights)))
    return {**{name: (points[name], drawn[name]) for name in points}, "mean": mean}


def _difference(values: Sequence[float | None], drawn: Array) -> dict[str, Any]:
    first, second = values
    limits = interval(drawn)
    if first is None or second is None or limits is None:
        return {"difference": None, "ci95": None, "p": None}
    drawn = drawn[~np.isnan(drawn)]
    # A difference of exactly zero counts on both sides; the 1 keeps p above 0.
    rarer = min(int((drawn <= 0).sum()), int((drawn >= 0).sum())) + 1
    return {
        "difference": second - first,
        "ci95": limits,
        "p": min(1.0, 2 * rarer / (len(drawn) + 1)),
    }


def mean_interval(sums: Array, counts: Array, weights: Array) -> Interval:
    """Interval of sum(sums) / sum(counts) over rows. sums, counts (N,); weights (R, N)."""
    total = weights @ counts
    values = np.where(total > 0, (weights @ sums) / np.maximum(total, 1e-300), np.nan)
    return interval(values)


# -- decisions -----------------------------------------------------------------------------------
def confusion_matrix(labels: Labels, predicted: Labels, classes: int) -> Labels:
    """Counts (C, C): rows are the true class, columns the predicted one.

    >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    counts = np.bincount(labels * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.int64)


def row_normalised(counts: Labels) -> list[list[float | None]]:
    """Each row as shares of its sum; None where the class has no rows."""
    return [
        [None if not row.sum() else float(value / row.sum()) for value in row] for row in counts
    ]


def sensitivities(counts: Labels) -> list[float | None]:
    """Share of each class's rows that are predicted as it, from the confusion matrix (C, C)."""
    return [_share(counts[number, number], counts[number].sum()) for number in range(len(counts))]


def specificities(counts: Labels) -> list[float | None]:
    """Share of the other classes' rows that are not predicted as the class, each class."""
    others = counts.sum() - counts.sum(1)
    false_alarms = counts.sum(0) - counts.diagonal()
    return [_share(n - wrong, n) for n, wrong in zip(others, false_alarms, strict=True)]


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None


# -- calibration ---------------------------------------------------------------------------------
def reliability(
    probabilities: Array, labels: Labels, bins: int = CALIBRATION_BINS
) -> list[dict[str, Any]]:
    """The reliability curve: for equal bins of confidence, its mean and the share that was right.

    Confidence is the greatest probability of a row. Empty bins have None. Bins are (low, high].
    """
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == labels
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    curve = []
    for number in range(bins):
        chosen = place == number
        count = int(chosen.sum())
        curve.append(
            {
                "low": number / bins,
                "high": (number + 1) / bins,
                "count": count,
                "confidence": float(confidence[chosen].mean()) if count else None,
                "accuracy": float(right[chosen].mean()) if count else None,
            }
        )
    return curve


def expected_calibration_error(curve: Sequence[Mapping[str, Any]]) -> float | None:
    """ECE of a reliability curve: mean gap between confidence and accuracy, weighted by count."""
    total = sum(entry["count"] for entry in curve)
    if not total:
        return None
    filled = [entry for entry in curve if entry["count"]]
    gaps = (entry["count"] * abs(entry["confidence"] - entry["accuracy"]) for entry in filled)
    return float(sum(gaps) / total)


def roc_curve(scores: Array, positive: NDArray[np.bool_]) -> tuple[Array, Array] | None:
    """False-alarm rates and hit rates, from (0, 0) to (1, 1); None where one side is empty."""
    if not positive.any() or positive.all():
        return None
    order = np.argsort(-scores, kind="stable")
    last = np.flatnonzero(np.r_[np.diff(scores[order]) != 0, True])
    hits = np.cumsum(positive[order])[last] / positive.sum()
    alarms = np.cumsum(~positive[order])[last] / (~positive).sum()
    return np.r_[0.0, alarms], np.r_[0.0, hits]
