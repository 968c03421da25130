"""The paired test agrees with DeLong and with plain resampling."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from protopyramid.metrics.auroc import auroc_with_intervals
from protopyramid.metrics.bootstrap import resample_weights
from protopyramid.metrics.paired_test import Difference, Pair, paired_differences

from .made_up import CLASSES, made_up


def delong(scores: np.ndarray, positive: np.ndarray) -> np.ndarray:
    """Covariance of the AUROCs of the columns of scores (N, k) by DeLong, in plain loops."""
    hits, misses = scores[positive], scores[~positive]
    ten = [
        [np.mean((x > misses[:, k]) + 0.5 * (x == misses[:, k])) for x in hits[:, k]]
        for k in (0, 1)
    ]
    one = [
        [np.mean((hits[:, k] > x) + 0.5 * (hits[:, k] == x)) for x in misses[:, k]] for k in (0, 1)
    ]
    return np.cov(ten) / len(hits) + np.cov(one) / len(misses)


def test_interval_and_paired_test_agree_with_delong_where_patients_are_rows() -> None:
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 400)
    signal = labels + rng.normal(scale=1.0, size=400)
    columns = np.stack([signal, signal + rng.normal(scale=1.2, size=400)], 1)
    covariance = delong(columns, labels == 1)
    weights = resample_weights([str(i) for i in range(400)], 4000, 0)
    both = [np.stack([-column, column], 1) for column in columns.T]
    first = auroc_with_intervals(both[0], labels, ["no", "yes"], "", weights)
    low, high = first.ci95_per_class["yes"]
    assert high - low == pytest.approx(2 * 1.96 * covariance[0, 0] ** 0.5, rel=0.08)
    found = paired_differences([Pair(both[0], both[1], labels, weights)], ["no", "yes"], "")["yes"]
    points = [sk.roc_auc_score(labels, column) for column in columns.T]
    assert found.difference == pytest.approx(points[1] - points[0])
    spread = (covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]) ** 0.5
    low, high = found.ci95
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.08)
    expected = 2 * stats.norm.sf(abs(found.difference) / spread)
    assert found.p == pytest.approx(expected, abs=0.02)


def test_a_model_does_not_differ_from_itself() -> None:
    probabilities, labels = made_up(3)
    weights = resample_weights([str(i // 3) for i in range(200)], 200, 0)
    found = paired_differences(
        [Pair(probabilities, probabilities, labels, weights)], CLASSES, "negative"
    )
    assert set(found) == {*CLASSES[:3], "mean"}
    assert all(each == Difference(0, (0, 0), 1) for each in found.values())


def test_the_mean_over_seeds_is_tested_on_the_same_resamples() -> None:
    """Independently: resample patients one at a time, and average the differences of the seeds."""
    pairs = [(made_up(seed)[0], made_up(seed + 10)[0]) for seed in (1, 2)]
    labels = made_up(1)[1]
    patients = np.array([str(i // 3) for i in range(200)])
    weights = resample_weights(list(patients), 50, 0)
    margins = labels != CLASSES.index("negative")

    def macro(probabilities: np.ndarray, rows: np.ndarray) -> float:
        return float(
            np.mean([sk.roc_auc_score(labels[rows] == c, probabilities[rows, c]) for c in range(3)])
        )

    drawn = []
    for counts in weights:
        rows = np.repeat(np.flatnonzero(margins), counts[margins].astype(int))
        drawn.append(np.mean([macro(second, rows) - macro(first, rows) for first, second in pairs]))
    both = [Pair(first, second, labels, weights) for first, second in pairs]
    found = paired_differences(both, CLASSES, "negative")["mean"]
    rows = np.flatnonzero(margins)
    expected = np.mean([macro(second, rows) - macro(first, rows) for first, second in pairs])
    assert found.difference == pytest.approx(expected)
    assert found.ci95 == pytest.approx(np.quantile(drawn, [0.025, 0.975]))
