"""Cohen's kappa agrees with scikit-learn's, and its resamples with the rows written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from protopyramid.metrics.agreement import cohen_kappa, resampled_kappas


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(2, 5))
def test_kappa_is_that_of_scikit_learn(seed: int, count: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, classes, (2, count))
    found = cohen_kappa(first, second, classes)
    if len({*first.tolist(), *second.tolist()}) == 1:
        assert found is None  # chance alone agrees always
    else:
        assert found == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)


def test_kappa_of_a_published_table() -> None:
    """Cohen's own kind of table: 20 and 15 agreed, 5 and 10 not; kappa .4 (known value)."""
    counts = {(0, 0): 20, (0, 1): 5, (1, 0): 10, (1, 1): 15}
    pairs = [pair for pair, times in counts.items() for _ in range(times)]
    first, second = np.array(pairs).T
    assert cohen_kappa(first, second, 2) == pytest.approx(0.4)


def test_resampled_kappa_is_that_of_the_rows_written_out() -> None:
    rng = np.random.default_rng(4)
    first, second = rng.integers(0, 3, (2, 30))
    weights = rng.integers(0, 3, (6, 30)).astype(float)
    found = resampled_kappas(first, second, 3, weights)
    for value, row in zip(found, weights.astype(int), strict=True):
        expected = cohen_kappa_score(np.repeat(first, row), np.repeat(second, row))
        assert value == pytest.approx(expected, abs=1e-12)


def test_without_cases_kappa_is_undefined() -> None:
    nothing = np.zeros(0, np.int64)
    assert cohen_kappa(nothing, nothing, 3) is None
    assert np.isnan(resampled_kappas(nothing, nothing, 3, np.zeros((2, 0)))).all()
