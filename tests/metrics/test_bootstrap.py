"""The bootstrap draws whole patients, and its intervals cover the truth as often as promised."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from protopyramid.metrics.auroc import auroc_with_intervals, weighted_aurocs
from protopyramid.metrics.bootstrap import interval, resample_weights


def test_bootstrap_draws_whole_patients() -> None:
    groups = ["a", "b", "a", "c", "b", "a"]
    weights = resample_weights(groups, 500, seed=3)
    for name in set(groups):
        columns = weights[:, [group == name for group in groups]]
        assert (columns == columns[:, :1]).all()
    firsts = weights[:, [0, 1, 3]]
    assert (firsts.sum(1) == 3).all()
    assert firsts.mean() == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(weights, resample_weights(groups, 500, seed=3))


def test_patients_with_many_images_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(rng.integers(0, 2, 40), 10)
    scores = np.repeat(rng.normal(size=40), 10) + labels + 0.01 * rng.normal(size=400)
    both = np.stack([-scores, scores], 1)
    widths = []
    for groups in ([str(i) for i in range(400)], [str(i // 10) for i in range(400)]):
        weights = resample_weights(groups, 1000, 0)
        low, high = auroc_with_intervals(both, labels, ["no", "yes"], "", weights).ci95
        widths.append(high - low)
    assert widths[1] > 2 * widths[0]


def test_the_interval_covers_the_truth_about_95_times_of_100() -> None:
    truth, covered = stats.norm.cdf(1 / 2**0.5), 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, 120)
        scores = labels + rng.normal(size=120)
        weights = resample_weights([str(i) for i in range(120)], 200, seed)
        low, high = interval(weighted_aurocs(scores, labels == 1, weights))
        covered += low <= truth <= high
    assert 0.90 <= covered / 200 <= 0.99
