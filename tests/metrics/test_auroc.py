"""AUROC agrees with scikit-learn and with plain loops, and is None where it is undefined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from protopyramid.metrics import auroc as module
from protopyramid.metrics.auroc import auroc_with_intervals, roc_curve, weighted_aurocs
from protopyramid.metrics.bootstrap import resample_weights

from .made_up import CLASSES, made_up


@pytest.mark.parametrize("decimals", [8, 0])
def test_auroc_of_margins_is_that_of_scikit_learn_without_negatives(decimals: int) -> None:
    probabilities, labels = made_up(1, decimals=decimals)
    weights = resample_weights([str(i) for i in range(200)], 10, 0)
    found = auroc_with_intervals(probabilities, labels, CLASSES, "negative", weights)
    margin = labels != 3
    for number, name in enumerate(CLASSES[:3]):
        expected = sk.roc_auc_score(labels[margin] == number, probabilities[margin, number])
        assert found.per_class[name] == pytest.approx(expected, abs=1e-12)
    assert list(found.per_class) == CLASSES[:3]
    assert found.mean == pytest.approx(np.mean(list(found.per_class.values())))
    together = auroc_with_intervals(probabilities, labels, CLASSES, "", weights)
    expected = sk.roc_auc_score(labels, probabilities, multi_class="ovr", average="macro")
    assert together.mean == pytest.approx(expected, abs=1e-12)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.integers(2, 30), st.integers(1, 4))
def test_weighted_auroc_is_that_of_the_rows_written_out(seed: int, n: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    scores, positive = rng.integers(0, steps + 1, n) / steps, rng.random(n) < 0.5
    weights = rng.integers(0, 4, (3, n)).astype(float)
    found = weighted_aurocs(scores, positive, weights)
    for row, value in zip(weights.astype(int), found, strict=True):
        rows = np.repeat(np.arange(n), row)
        if len(set(positive[rows])) < 2:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(sk.roc_auc_score(positive[rows], scores[rows]))


def test_weighted_auroc_in_blocks_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    probabilities, labels = made_up(2)
    weights = resample_weights([str(i) for i in range(200)], 7, 0)
    whole = weighted_aurocs(probabilities[:, 0], labels == 0, weights)
    monkeypatch.setattr(module, "BLOCK", 450)
    np.testing.assert_array_equal(weighted_aurocs(probabilities[:, 0], labels == 0, weights), whole)


def test_a_class_that_is_absent_has_no_auroc_and_leaves_the_mean_to_the_others() -> None:
    probabilities, labels = made_up(6)
    labels[labels == 1] = 0
    weights = resample_weights([str(i) for i in range(200)], 50, 0)
    found = auroc_with_intervals(probabilities, labels, CLASSES, "negative", weights)
    assert found.per_class["indistinct"] is None
    assert found.ci95_per_class["indistinct"] is None
    known = [found.per_class[name] for name in ("circumscribed", "spiculated")]
    assert found.mean == pytest.approx(np.mean(known))
    assert found.ci95[0] < found.mean < found.ci95[1]


def test_one_class_alone_has_nothing() -> None:
    probabilities, _ = made_up(7)
    weights = resample_weights(["one"] * 200, 20, 0)
    found = auroc_with_intervals(
        probabilities, np.zeros(200, np.int64), CLASSES, "negative", weights
    )
    assert found.mean is None and found.ci95 is None
    assert set(found.per_class.values()) == {None}


@pytest.mark.parametrize("decimals", [6, 1])
def test_roc_curve_encloses_the_auroc(decimals: int) -> None:
    probabilities, labels = made_up(10)
    scores = probabilities[:, 0].round(decimals)
    alarms, hits = roc_curve(scores, labels == 0)
    assert np.trapezoid(hits, alarms) == pytest.approx(sk.roc_auc_score(labels == 0, scores))
    expected = sk.roc_curve(labels == 0, scores, drop_intermediate=False)
    np.testing.assert_allclose(alarms, expected[0])
    np.testing.assert_allclose(hits, expected[1])
    assert roc_curve(scores, np.ones(200, bool)) is None
