"""How well a column of the manifest tells the class by itself: the control for confounded data.

A dataset, a series or the kind of an outline says nothing about a lesion. Where it tells the class all the
same, a model can learn it instead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


def shares_by_value(
    known: Sequence[str], labels: Labels, asked: Sequence[str], classes: int
) -> Array:
    """What the value of a column lets one expect of the class: its shares among rows of the same value.

    known, labels (N,): values and class numbers of the rows that are learned from; asked (M,): values of
    other rows -> (M, classes). A value that is not known has the shares of all rows.

    >>> shares_by_value(["a", "a", "b"], np.array([0, 1, 1]), ["a", "b", "c"], 2).round(2).tolist()
    [[0.5, 0.5], [0.0, 1.0], [0.33, 0.67]]
    """
    everything = np.bincount(labels, minlength=classes) / max(len(labels), 1)
    values = np.asarray(known, dtype=str)
    table = {
        value: np.bincount(labels[values == value], minlength=classes) / (values == value).sum()
        for value in np.unique(values)
    }
    return np.array([table.get(value, everything) for value in asked]).reshape(-1, classes)
