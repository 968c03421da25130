"""The confusion matrix and what follows from it: sensitivity and specificity of each class."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[np.int64]


def confusion_matrix(labels: Labels, predicted: Labels, classes: int) -> Labels:
    """Counts (C, C): rows are the true class, columns the predicted one.

    >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    counts = np.bincount(labels * classes + predicted, minlength=classes * classes)
    return counts.reshape(classes, classes).astype(np.int64)


def row_normalised(counts: Labels) -> list[list[float | None]]:
    """Each row as shares of its sum; None where the class has no rows."""
    return [
        [None if not row.sum() else float(value / row.sum()) for value in row] for row in counts
    ]


def sensitivities(counts: Labels) -> list[float | None]:
    """Share of each class's rows that are predicted as that class, from the confusion matrix (C, C)."""
    return [_share(counts[number, number], counts[number].sum()) for number in range(len(counts))]


def specificities(counts: Labels) -> list[float | None]:
    """Share of the other classes' rows that are not predicted as the class, for each class."""
    others = counts.sum() - counts.sum(1)
    false_positives = counts.sum(0) - counts.diagonal()
    return [_share(n - wrong, n) for n, wrong in zip(others, false_positives, strict=True)]


def _share(part: float, whole: float) -> float | None:
    return float(part / whole) if whole else None
