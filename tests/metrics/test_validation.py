"""AUROC against scikit-learn and a count over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from protopyramid.metrics.auroc import auroc, class_aurocs
from protopyramid.metrics.validation import ValidationMetrics, validation_metrics

CLASSES = ("circumscribed", "indistinct", "spiculated", "negative")


@given(
    st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40).filter(
        lambda pairs: len({positive for _, positive in pairs}) == 2
    )
)
@settings(max_examples=80, deadline=None)
def test_auroc_is_the_share_of_pairs_in_order(pairs: list[tuple[int, bool]]) -> None:
    scores = np.array([float(value) for value, _ in pairs])
    positive = np.array([flag for _, flag in pairs])
    counted = [
        (one > zero) + 0.5 * (one == zero) for one in scores[positive] for zero in scores[~positive]
    ]
    assert auroc(scores, positive) == pytest.approx(np.mean(counted))
    assert auroc(scores, positive) == pytest.approx(roc_auc_score(positive, scores))


@pytest.mark.parametrize("positive", [[True, True], [False, False]])
def test_auroc_of_one_side_alone_is_undefined(positive: list[bool]) -> None:
    assert auroc(np.array([0.1, 0.2]), np.array(positive)) is None


def made_up(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = np.arange(60) % 4
    return random.normal(size=(60, 4)) + 1.5 * np.eye(4)[labels], labels


def test_margin_aurocs_leave_out_the_rows_of_the_negative_class() -> None:
    logits, labels = made_up()
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found = class_aurocs(probabilities, labels, CLASSES, "negative")
    rows = labels != 3
    expected = {
        name: roc_auc_score(labels[rows] == number, probabilities[rows, number])
        for number, name in enumerate(CLASSES[:3])
    }
    assert found == pytest.approx(expected)


def test_without_a_negative_class_all_classes_count() -> None:
    logits, labels = made_up()
    found = class_aurocs(logits, labels, CLASSES, "")
    assert list(found) == list(CLASSES)


def test_the_score_of_logits() -> None:
    logits, labels = made_up()
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found = validation_metrics(logits, labels, CLASSES, "negative")
    expected = class_aurocs(probabilities, labels, CLASSES, "negative")
    assert found.auroc == pytest.approx(np.mean(list(expected.values())))
    assert found.accuracy == pytest.approx((logits.argmax(1) == labels).mean())
    assert found.cross_entropy == pytest.approx(log_loss(labels, probabilities))


def test_huge_logits_do_not_overflow() -> None:
    found = validation_metrics(np.array([[1e4, 0.0], [0.0, 1e4]]), np.array([0, 1]), ("a", "b"), "")
    assert found == ValidationMetrics(1.0, 1.0, 0.0)


def test_a_class_that_is_absent_is_left_out_of_the_mean() -> None:
    logits, labels = made_up()
    rows = labels != 2
    found = validation_metrics(logits[rows], labels[rows], CLASSES, "negative")
    assert found.auroc is not None
    only = labels == 3
    assert validation_metrics(logits[only], labels[only], CLASSES, "negative").auroc is None


def test_candidates_are_compared_by_auroc_then_cross_entropy() -> None:
    better, worse = ValidationMetrics(0.8, 0.1, 2.0), ValidationMetrics(0.7, 0.9, 0.1)
    assert better.key > worse.key
    assert ValidationMetrics(0.8, 0.1, 1.0).key > better.key
    assert worse.key > ValidationMetrics(None, 1.0, 0.0).key
