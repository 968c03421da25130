"""Statistics of a reader study: several readers, several cases, each read unaided and then with the model.

Arrays: J readers, N cases, C classes, R resamples. A reading counts once both answers are given.

Intervals are multi-reader multi-case: in each of the resamples, readers are drawn with replacement and,
independently, patients with all their cases; a reading weighs how often its reader times how often its case
was drawn. So they speak of other readers and other cases than those of the study. With a single reader only
cases are drawn, and they speak of that reader alone.

Example::

    summary = summarise(readings, ["circumscribed", "spiculated"], negative="")
    summary.auroc.aided.value, summary.auroc.difference.ci95
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from protopyramid.metrics.agreement import cohen_kappa, resampled_kappas
from protopyramid.metrics.auroc import (
    class_aurocs,
    mean_of_known,
    mean_of_resamples,
    resampled_class_aurocs,
)
from protopyramid.metrics.bootstrap import RESAMPLES, Interval, interval, resample_weights

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Chosen = NDArray[np.bool_]

METHOD = (
    "95 % intervals: multi-reader multi-case bootstrap, {resamples} resamples; readers and, independently, "
    "patients with all their cases are drawn with replacement (percentiles)."
)
METHOD_OF_ONE = (
    "95 % intervals: bootstrap over patients, {resamples} resamples (percentiles). There is one reader, so "
    "they speak of that reader alone."
)


@dataclass(frozen=True)
class Answers:
    """What readers said: margin (J, N) class numbers, confidence (J, N) 0 to 100, seconds (J, N).

    A margin of -1 is an answer that is not given yet; confidence and seconds do not matter there.
    """

    margin: Labels
    confidence: Array
    seconds: Array


@dataclass(frozen=True)
class Readings:
    """All readings of a study.

    truth (N,): class numbers, -1 where unknown; model (J, N): what the model said when it was shown;
    patients: N names, by which cases are drawn; readers: J names.
    """

    unaided: Answers
    aided: Answers
    truth: Labels
    model: Labels
    patients: Sequence[str]
    readers: Sequence[str]

    @property
    def complete(self) -> Chosen:
        """Which readings (J, N) have both answers."""
        complete: Chosen = (self.unaided.margin >= 0) & (self.aided.margin >= 0)
        return complete

    @property
    def judged(self) -> Chosen:
        """Which complete readings (J, N) are of a case whose truth is known."""
        judged: Chosen = self.complete & (self.truth >= 0)
        return judged


@dataclass(frozen=True)
class Estimate:
    """A mean over readers with its interval, and the value of each reader; None where undefined."""

    value: float | None
    ci95: Interval
    per_reader: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Compared:
    """A metric unaided, aided, and aided minus unaided."""

    unaided: Estimate
    aided: Estimate
    difference: Estimate


@dataclass(frozen=True)
class Rate:
    """How often something happened, of the times that it could have."""

    happened: int
    could: int
    share: float | None
    ci95: Interval
    per_reader: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Summary:
    """The results of a reader study."""

    readers: tuple[str, ...]
    cases: int
    readings: int
    auroc: Compared
    accuracy: Compared
    seconds: Compared
    confidence: Compared
    kappa_readers: Compared
    kappa_truth: Compared
    kappa_model: Compared
    changed: Rate
    over_reliance: Rate
    correction: Rate
    method: str


@dataclass(frozen=True)
class _Draws:
    """How often readers (R, J) and cases (R, N) are drawn; of fewer than two patients, nothing can be."""

    readers: Array
    cases: Array
    possible: bool

    def interval(self, values: Array) -> Interval:
        """The interval of resampled values (R,)."""
        return interval(values) if self.possible else None


def summarise(
    readings: Readings,
    classes: Sequence[str],
    negative: str = "",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Summary:
    """Everything that is reported of a reader study.

    AUROC is one-vs-rest, the mean over the classes but `negative` and over readers, among cases whose truth
    is not negative, as in an evaluation; the rating of a class is the confidence where the reader chose it
    and minus the confidence elsewhere.
    """
    draws = _draws(readings, resamples, seed)
    complete, judged = readings.complete, readings.judged
    count = len(classes)
    known = readings.model >= 0
    truth = np.broadcast_to(readings.truth, complete.shape)
    sides = (readings.unaided, readings.aided)
    method = METHOD if len(readings.readers) > 1 else METHOD_OF_ONE
    right, aided_right = (side.margin == truth for side in sides)
    model_right = readings.model == truth
    return Summary(
        readers=tuple(readings.readers),
        cases=int(complete.any(0).sum()) if complete.size else 0,
        readings=int(complete.sum()),
        auroc=_compare(draws, *(_aurocs(readings, side, classes, negative) for side in sides)),
        accuracy=_compare(draws, *(_means(side.margin == truth, judged) for side in sides)),
        seconds=_compare(draws, *(_means(side.seconds, complete) for side in sides)),
        confidence=_compare(draws, *(_means(side.confidence, complete) for side in sides)),
        kappa_readers=_compare_pairs(draws, readings, count),
        kappa_truth=_compare(
            draws, *(_kappas(side.margin, truth, judged, count) for side in sides)
        ),
        kappa_model=_compare(
            draws,
            *(_kappas(side.margin, readings.model, complete & known, count) for side in sides),
        ),
        changed=_rate(draws, readings.unaided.margin != readings.aided.margin, complete),
        over_reliance=_rate(
            draws,
            readings.aided.margin == readings.model,
            judged & known & right & ~model_right,
        ),
        correction=_rate(draws, aided_right, judged & known & ~right & model_right),
        method=method.format(resamples=resamples),
    )


def ratings(margin: Labels, confidence: Array, classes: int) -> Array:
    """The rating of each class, (N,) and (N,) -> (N, C): confidence if it was chosen, else minus that.

    >>> ratings(np.array([1]), np.array([80.0]), 3).tolist()
    [[-80.0, 80.0, -80.0]]
    """
    chosen = margin[:, None] == np.arange(classes)
    return np.where(chosen, confidence[:, None], -confidence[:, None])


# A metric of one reader: its value, and its resamples (R,) given how cases are drawn (R, N).
_OfReader = tuple[float | None, Callable[[Array], Array]]


def _draws(readings: Readings, resamples: int, seed: int) -> _Draws:
    cases = resample_weights(readings.patients, resamples, seed)
    read = {readings.patients[int(case)] for case in np.flatnonzero(readings.complete.any(0))}
    if len(readings.readers) < 2:
        return _Draws(np.ones((resamples, len(readings.readers))), cases, len(read) > 1)
    drawn = resample_weights(readings.readers, resamples, seed + 1)
    return _Draws(drawn, cases, len(read) > 1)


def _compare(draws: _Draws, unaided: list[_OfReader], aided: list[_OfReader]) -> Compared:
    before, after = (_resampled(draws, side) for side in (unaided, aided))
    first, second = (tuple(value for value, _ in side) for side in (unaided, aided))
    gained = tuple(
        None if a is None or b is None else b - a for a, b in zip(first, second, strict=True)
    )
    return Compared(
        _estimate(first, before, draws),
        _estimate(second, after, draws),
        _estimate(gained, after - before, draws),
    )


def _resampled(draws: _Draws, side: list[_OfReader]) -> Array:
    """The resamples of every reader's metric, (R, J)."""
    if not side:
        return np.zeros((len(draws.cases), 0))
    return np.stack([resample(draws.cases) for _, resample in side], axis=1)


def _estimate(values: tuple[float | None, ...], drawn: Array, draws: _Draws) -> Estimate:
    point = mean_of_known({str(number): value for number, value in enumerate(values)})
    limits = None if point is None else draws.interval(_mean(drawn, draws.readers))
    return Estimate(point, limits, values)


def _mean(values: Array, weights: Array) -> Array:
    """Weighted mean along the last axis of what is defined, (R, K) and (R, K) -> (R,)."""
    weights = np.where(np.isnan(values), 0.0, weights)
    total = weights.sum(1)
    summed = (np.nan_to_num(values) * weights).sum(1)
    return np.where(total > 0, summed / np.where(total > 0, total, 1), np.nan)


def _aurocs(
    readings: Readings, side: Answers, classes: Sequence[str], negative: str
) -> list[_OfReader]:
    def of_reader(reader: int) -> _OfReader:
        rows = np.flatnonzero(readings.judged[reader])
        rated = ratings(side.margin[reader, rows], side.confidence[reader, rows], len(classes))
        truth = readings.truth[rows]
        values = class_aurocs(rated, truth, classes, negative)

        def resample(weights: Array) -> Array:
            drawn = resampled_class_aurocs(rated, truth, classes, negative, weights[:, rows])
            return mean_of_resamples(values, drawn, len(weights))

        return mean_of_known(values), resample

    return [of_reader(reader) for reader in range(len(readings.readers))]


def _means(values: NDArray[np.generic], chosen: Chosen) -> list[_OfReader]:
    """The mean of values (J, N) over each reader's chosen cases."""

    def of_reader(reader: int) -> _OfReader:
        rows = np.flatnonzero(chosen[reader])
        own = np.asarray(values[reader, rows], np.float64)

        def resample(weights: Array) -> Array:
            return _mean(np.broadcast_to(own, (len(weights), len(rows))), weights[:, rows])

        return float(own.mean()) if len(rows) else None, resample

    return [of_reader(reader) for reader in range(len(chosen))]


def _kappas(first: Labels, second: Labels, chosen: Chosen, classes: int) -> list[_OfReader]:
    """Kappa of answers (J, N) with others (J, N), over each reader's chosen cases."""
    return [
        _kappa(first[reader], second[reader], np.flatnonzero(chosen[reader]), classes)
        for reader in range(len(chosen))
    ]


def _kappa(first: Labels, second: Labels, rows: NDArray[np.intp], classes: int) -> _OfReader:
    one, other = first[rows], second[rows]
    return (
        cohen_kappa(one, other, classes),
        lambda weights: resampled_kappas(one, other, classes, weights[:, rows]),
    )


def _compare_pairs(draws: _Draws, readings: Readings, classes: int) -> Compared:
    """Kappa between readers: the mean over pairs of different readers, on the cases that both have read.

    A pair weighs the product of how often its two readers are drawn.
    """
    pairs = list(combinations(range(len(readings.readers)), 2))
    complete = readings.complete
    shared = [np.flatnonzero(complete[a] & complete[b]) for a, b in pairs]
    weights = (
        np.stack([draws.readers[:, a] * draws.readers[:, b] for a, b in pairs], axis=1)
        if pairs
        else np.zeros((len(draws.cases), 0))
    )
    of_pairs = _Draws(weights, draws.cases, draws.possible)
    sides = (
        [
            _kappa(side.margin[a], side.margin[b], rows, classes)
            for (a, b), rows in zip(pairs, shared, strict=True)
        ]
        for side in (readings.unaided, readings.aided)
    )
    return _compare(of_pairs, *sides)


def _rate(draws: _Draws, happened: Chosen, could: Chosen) -> Rate:
    """The share of readings (J, N) in which something happened, pooled over readers."""
    did = happened & could
    counts = np.array([did.sum(), could.sum()])
    drawn = [
        ((draws.readers @ each.astype(np.float64)) * draws.cases).sum(1) for each in (did, could)
    ]
    shares = np.where(drawn[1] > 0, drawn[0] / np.where(drawn[1] > 0, drawn[1], 1), np.nan)
    return Rate(
        happened=int(counts[0]),
        could=int(counts[1]),
        share=float(counts[0] / counts[1]) if counts[1] else None,
        # Where it happened never or always, resampling cannot tell how often it might have.
        ci95=draws.interval(shares) if 0 < counts[0] < counts[1] else None,
        per_reader=tuple(zip(did.sum(1).tolist(), could.sum(1).tolist(), strict=True)),
    )
