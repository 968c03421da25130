"""How well a column alone tells the class."""

from __future__ import annotations

import numpy as np
import pytest

from protopyramid.metrics.auroc import class_aurocs
from protopyramid.metrics.column_control import shares_by_value

CLASSES = ["x", "y", "z"]


def told(values: list[str], labels: list[int]) -> dict[str, float | None]:
    """AUROC of each class from the values alone, learned from and asked on the same rows."""
    numbers = np.array(labels)
    return class_aurocs(shares_by_value(values, numbers, values, 3), numbers, CLASSES, "")


def test_a_source_that_tells_the_class_exactly_has_auroc_1() -> None:
    assert told(["a", "b", "c"] * 5, [0, 1, 2] * 5) == {"x": 1.0, "y": 1.0, "z": 1.0}


def test_a_source_that_tells_nothing_has_auroc_a_half() -> None:
    values = [source for source in "abc" for _ in range(6)]
    assert told(values, [0, 1, 2] * 6) == {"x": 0.5, "y": 0.5, "z": 0.5}


def test_shares_are_those_of_a_plain_count() -> None:
    random = np.random.default_rng(0)
    known = random.choice(list("abcd"), 200).tolist()
    labels = random.integers(0, 3, 200)
    found = shares_by_value(known, labels, ["c", "a", "never seen"], 3)
    for row, value in enumerate(["c", "a"]):
        rows = [number for number in range(200) if known[number] == value]
        for label in range(3):
            expected = sum(labels[number] == label for number in rows) / len(rows)
            assert found[row, label] == pytest.approx(expected)
    assert found[2].tolist() == pytest.approx([(labels == label).mean() for label in range(3)])
