"""Metrics agree with scikit-learn and with plain loops, and say None where nothing is defined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from protopyramid.metrics import classification as metrics

CLASSES = ["circumscribed", "indistinct", "spiculated", "negative"]


def made_up(seed: int, n: int = 200, decimals: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (N, 4), a little informative, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    logits = rng.normal(size=(n, 4))
    logits[np.arange(n), labels] += 1
    return metrics.softmax(logits.round(decimals)), labels


def test_softmax_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    logits = np.random.default_rng(0).normal(scale=300, size=(20, 4))
    expected = torch.from_numpy(logits).softmax(1).numpy()
    np.testing.assert_allclose(metrics.softmax(logits), expected, atol=1e-12)


@pytest.mark.parametrize("decimals", [8, 0])
def test_auroc_of_margins_is_that_of_scikit_learn_without_negatives(decimals: int) -> None:
    probabilities, labels = made_up(1, decimals=decimals)
    weights = metrics.resample_weights([str(i) for i in range(200)], 10, 0)
    found = metrics.auroc_figures(probabilities, labels, CLASSES, "negative", weights)
    margin = labels != 3
    for number, name in enumerate(CLASSES[:3]):
        expected = sk.roc_auc_score(labels[margin] == number, probabilities[margin, number])
        assert found["per_class"][name] == pytest.approx(expected, abs=1e-12)
    assert list(found["per_class"]) == CLASSES[:3]
    assert found["mean"] == pytest.approx(np.mean(list(found["per_class"].values())))
    together = metrics.auroc_figures(probabilities, labels, CLASSES, "", weights)
    expected = sk.roc_auc_score(labels, probabilities, multi_class="ovr", average="macro")
    assert together["mean"] == pytest.approx(expected, abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 4))
def test_weighted_auroc_is_that_of_the_rows_written_out(seed: int, n: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    scores, positive = rng.integers(0, steps + 1, n) / steps, rng.random(n) < 0.5
    weights = rng.integers(0, 4, (3, n)).astype(float)
    found = metrics.weighted_aurocs(scores, positive, weights)
    for row, value in zip(weights.astype(int), found, strict=True):
        rows = np.repeat(np.arange(n), row)
        if len(set(positive[rows])) < 2:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(sk.roc_auc_score(positive[rows], scores[rows]))


def test_weighted_auroc_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities, labels = made_up(2)
    weights = metrics.resample_weights([str(i) for i in range(200)], 7, 0)
    whole = metrics.weighted_aurocs(probabilities[:, 0], labels == 0, weights)
    monkeypatch.setattr(metrics, "BLOCK", 450)
    np.testing.assert_array_equal(
        metrics.weighted_aurocs(probabilities[:, 0], labels == 0, weights), whole
    )


def test_bootstrap_draws_whole_patients() -> None:
    groups = ["a", "b", "a", "c", "b", "a"]
    weights = metrics.resample_weights(groups, 500, seed=3)
    for name in set(groups):
        columns = weights[:, [group == name for group in groups]]
        assert (columns == columns[:, :1]).all()
    firsts = weights[:, [0, 1, 3]]
    assert (firsts.sum(1) == 3).all()
    assert firsts.mean() == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(weights, metrics.resample_weights(groups, 500, seed=3))


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
    weights = metrics.resample_weights([str(i) for i in range(400)], 4000, 0)
    both = [np.stack([-column, column], 1) for column in columns.T]
    first = metrics.auroc_figures(both[0], labels, ["no", "yes"], "", weights)
    low, high = first["ci95_per_class"]["yes"]
    assert high - low == pytest.approx(2 * 1.96 * covariance[0, 0] ** 0.5, rel=0.08)
    found = metrics.paired_differences(both[0], both[1], labels, ["no", "yes"], "", weights)["yes"]
    points = [sk.roc_auc_score(labels, column) for column in columns.T]
    assert found["difference"] == pytest.approx(points[1] - points[0])
    spread = (covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]) ** 0.5
    low, high = found["ci95"]
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.08)
    expected = 2 * stats.norm.sf(abs(found["difference"]) / spread)
    assert found["p"] == pytest.approx(expected, abs=0.02)


def test_a_model_does_not_differ_from_itself() -> None:
    probabilities, labels = made_up(3)
    weights = metrics.resample_weights([str(i // 3) for i in range(200)], 200, 0)
    found = metrics.paired_differences(
        probabilities, probabilities, labels, CLASSES, "negative", weights
    )
    assert set(found) == {*CLASSES[:3], "mean"}
    assert all(each == {"difference": 0, "ci95": [0, 0], "p": 1} for each in found.values())


def test_the_mean_over_seeds_is_tested_on_the_same_resamples() -> None:
    """Independently: resample patients one at a time, and average the differences of the seeds."""
    pairs = [(made_up(seed)[0], made_up(seed + 10)[0]) for seed in (1, 2)]
    labels = made_up(1)[1]
    patients = np.array([str(i // 3) for i in range(200)])
    weights = metrics.resample_weights(list(patients), 50, 0)
    margins = labels != CLASSES.index("negative")

    def macro(probabilities: np.ndarray, rows: np.ndarray) -> float:
        return float(
            np.mean([sk.roc_auc_score(labels[rows] == c, probabilities[rows, c]) for c in range(3)])
        )

    drawn = []
    for counts in weights:
        rows = np.repeat(np.flatnonzero(margins), counts[margins].astype(int))
        drawn.append(np.mean([macro(second, rows) - macro(first, rows) for first, second in pairs]))
    both = [metrics.Pair(first, second, labels, weights) for first, second in pairs]
    found = metrics.mean_paired_differences(both, CLASSES, "negative")["mean"]
    rows = np.flatnonzero(margins)
    expected = np.mean([macro(second, rows) - macro(first, rows) for first, second in pairs])
    assert found["difference"] == pytest.approx(expected)
    assert found["ci95"] == pytest.approx(np.quantile(drawn, [0.025, 0.975]))


def test_patients_with_many_images_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(rng.integers(0, 2, 40), 10)
    scores = np.repeat(rng.normal(size=40), 10) + labels + 0.01 * rng.normal(size=400)
    both = np.stack([-scores, scores], 1)
    widths = []
    for groups in ([str(i) for i in range(400)], [str(i // 10) for i in range(400)]):
        weights = metrics.resample_weights(groups, 1000, 0)
        low, high = metrics.auroc_figures(both, labels, ["no", "yes"], "", weights)["ci95"]
        widths.append(high - low)
    assert widths[1] > 2 * widths[0]


def test_the_interval_covers_the_truth_about_95_times_of_100() -> None:
    truth, covered = stats.norm.cdf(1 / 2**0.5), 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 2, 120)
        scores = labels + rng.normal(size=120)
        weights = metrics.resample_weights([str(i) for i in range(120)], 200, seed)
        low, high = metrics.interval(metrics.weighted_aurocs(scores, labels == 1, weights))
        covered += low <= truth <= high
    assert 0.90 <= covered / 200 <= 0.99


def test_a_class_that_is_absent_has_no_auroc_and_leaves_the_mean_to_the_others() -> None:
    probabilities, labels = made_up(6)
    labels[labels == 1] = 0
    weights = metrics.resample_weights([str(i) for i in range(200)], 50, 0)
    found = metrics.auroc_figures(probabilities, labels, CLASSES, "negative", weights)
    assert found["per_class"]["indistinct"] is None
    assert found["ci95_per_class"]["indistinct"] is None
    known = [found["per_class"][name] for name in ("circumscribed", "spiculated")]
    assert found["mean"] == pytest.approx(np.mean(known))
    assert found["ci95"][0] < found["mean"] < found["ci95"][1]


def test_one_class_alone_has_nothing() -> None:
    probabilities, _ = made_up(7)
    weights = metrics.resample_weights(["one"] * 200, 20, 0)
    found = metrics.auroc_figures(
        probabilities, np.zeros(200, np.int64), CLASSES, "negative", weights
    )
    assert found["mean"] is None and found["ci95"] is None
    assert set(found["per_class"].values()) == {None}


def test_confusion_sensitivity_and_specificity_are_those_of_scikit_learn() -> None:
    probabilities, labels = made_up(8)
    predicted = probabilities.argmax(1)
    counts = metrics.confusion_matrix(labels, predicted, 4)
    np.testing.assert_array_equal(counts, sk.confusion_matrix(labels, predicted, labels=range(4)))
    np.testing.assert_allclose(
        np.array(metrics.row_normalised(counts), float),
        sk.confusion_matrix(labels, predicted, normalize="true"),
    )
    np.testing.assert_allclose(
        metrics.sensitivities(counts), sk.recall_score(labels, predicted, average=None)
    )
    expected = [sk.recall_score(labels != number, predicted != number) for number in range(4)]
    np.testing.assert_allclose(metrics.specificities(counts), expected)


def test_rates_of_an_absent_class_are_none() -> None:
    counts = metrics.confusion_matrix(np.array([0, 0, 0]), np.array([0, 1, 0]), 2)
    assert metrics.sensitivities(counts) == [pytest.approx(2 / 3), None]
    assert metrics.specificities(counts) == [None, pytest.approx(2 / 3)]
    assert metrics.row_normalised(counts)[1] == [None, None]


def test_calibration_error_is_that_of_torchmetrics_and_of_a_plain_loop() -> None:
    torch = pytest.importorskip("torch")
    from torchmetrics.functional.classification import multiclass_calibration_error

    probabilities, labels = made_up(9, n=500)
    curve = metrics.reliability(probabilities, labels)
    found = metrics.expected_calibration_error(curve)
    expected = multiclass_calibration_error(
        torch.from_numpy(probabilities), torch.from_numpy(labels), num_classes=4, n_bins=15
    )
    assert found == pytest.approx(float(expected), abs=1e-6)
    naive = 0.0
    for low in range(15):
        rows = [p for p in range(500) if low / 15 < probabilities[p].max() <= (low + 1) / 15]
        right = sum(probabilities[p].argmax() == labels[p] for p in rows)
        naive += abs(sum(probabilities[p].max() for p in rows) - right) / 500
    assert found == pytest.approx(naive)
    assert sum(entry["count"] for entry in curve) == 500


def test_certain_and_right_is_perfectly_calibrated() -> None:
    curve = metrics.reliability(np.eye(3), np.arange(3))
    assert metrics.expected_calibration_error(curve) == 0
    assert curve[-1] == {"low": 14 / 15, "high": 1, "count": 3, "confidence": 1, "accuracy": 1}
    assert curve[0]["confidence"] is None
    assert metrics.expected_calibration_error([]) is None


@pytest.mark.parametrize("decimals", [6, 1])
def test_roc_curve_encloses_the_auroc(decimals: int) -> None:
    probabilities, labels = made_up(10)
    scores = probabilities[:, 0].round(decimals)
    alarms, hits = metrics.roc_curve(scores, labels == 0)
    assert np.trapezoid(hits, alarms) == pytest.approx(sk.roc_auc_score(labels == 0, scores))
    expected = sk.roc_curve(labels == 0, scores, drop_intermediate=False)
    np.testing.assert_allclose(alarms, expected[0])
    np.testing.assert_allclose(hits, expected[1])
    assert metrics.roc_curve(scores, np.ones(200, bool)) is None
