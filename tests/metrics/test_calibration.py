"""Calibration error and reliability curve against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from protopyramid.metrics.calibration import (
    ReliabilityBin,
    expected_calibration_error,
    reliability,
)

from .made_up import made_up


def test_calibration_error_is_that_of_a_plain_loop() -> None:
    probabilities, labels = made_up(9, n=500)
    curve = reliability(probabilities, labels)
    found = expected_calibration_error(curve)
    naive = 0.0
    for low in range(15):
        rows = [p for p in range(500) if low / 15 < probabilities[p].max() <= (low + 1) / 15]
        right = sum(probabilities[p].argmax() == labels[p] for p in rows)
        naive += abs(sum(probabilities[p].max() for p in rows) - right) / 500
    assert found == pytest.approx(naive)
    assert sum(entry.count for entry in curve) == 500


def test_certain_and_right_is_perfectly_calibrated() -> None:
    curve = reliability(np.eye(3), np.arange(3))
    assert expected_calibration_error(curve) == 0
    assert curve[-1] == ReliabilityBin(low=14 / 15, high=1, count=3, confidence=1, accuracy=1)
    assert curve[0].confidence is None
    assert expected_calibration_error([]) is None
