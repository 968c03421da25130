"""Confusion, sensitivity and specificity agree with scikit-learn; None where undefined."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as sk

from protopyramid.metrics.confusion import (
    confusion_matrix,
    row_normalised,
    sensitivities,
    specificities,
)

from .made_up import made_up


def test_confusion_sensitivity_and_specificity_are_those_of_scikit_learn() -> None:
    probabilities, labels = made_up(8)
    predicted = probabilities.argmax(1)
    counts = confusion_matrix(labels, predicted, 4)
    np.testing.assert_array_equal(counts, sk.confusion_matrix(labels, predicted, labels=range(4)))
    np.testing.assert_allclose(
        np.array(row_normalised(counts), float),
        sk.confusion_matrix(labels, predicted, normalize="true"),
    )
    np.testing.assert_allclose(
        sensitivities(counts), sk.recall_score(labels, predicted, average=None)
    )
    expected = [sk.recall_score(labels != number, predicted != number) for number in range(4)]
    np.testing.assert_allclose(specificities(counts), expected)


def test_rates_of_an_absent_class_are_none() -> None:
    counts = confusion_matrix(np.array([0, 0, 0]), np.array([0, 1, 0]), 2)
    assert sensitivities(counts) == [pytest.approx(2 / 3), None]
    assert specificities(counts) == [None, pytest.approx(2 / 3)]
    assert row_normalised(counts)[1] == [None, None]
