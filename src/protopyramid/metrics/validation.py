"""The figures by which a model is chosen: AUROC over the margin classes, and accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def auroc(scores: Array, positive: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve: the chance that a positive outranks a negative, ties counting half.

    scores (N,), positive (N,) -> value in [0, 1], or None where one of the two sides is empty.

    >>> auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    0.75
    """
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[positive].sum() - ones * (ones + 1) / 2) / (ones * zeros))


def class_aurocs(
    probabilities: Array, labels: NDArray[np.int64], classes: Sequence[str], negative: str
) -> dict[str, float | None]:
    """One-vs-rest AUROC of each margin class among the rows whose label is not the negative class.

    probabilities (N, C): softmax over all classes; labels (N,).
    """
    margins = [number for number, name in enumerate(classes) if name != negative]
    rows = np.isin(labels, margins)
    return {
        classes[number]: auroc(probabilities[rows, number], labels[rows] == number)
        for number in margins
    }


@dataclass(frozen=True)
class ValidationMetrics:
    """How well a model does on a split; greater is better. `auroc` is None where it is undefined."""

    auroc: float | None
    accuracy: float
    cross_entropy: float

    @property
    def key(self) -> tuple[float, float]:
        """What two candidates are compared by: AUROC, then cross entropy."""
        return (-1.0 if self.auroc is None else self.auroc, -self.cross_entropy)


def validation_metrics(
    logits: Array, labels: NDArray[np.int64], classes: Sequence[str], negative: str
) -> ValidationMetrics:
    """The score of logits (N, C) for labels (N,)."""
    shifted = logits - logits.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    by_class = class_aurocs(np.exp(log_probabilities), labels, classes, negative)
    known = [value for value in by_class.values() if value is not None]
    return ValidationMetrics(
        auroc=float(np.mean(known)) if known else None,
        accuracy=float((logits.argmax(1) == labels).mean()),
        cross_entropy=float(-log_probabilities[np.arange(len(labels)), labels].mean()),
    )
