"""The metrics by which a model is chosen on validation: AUROC over the margin classes, accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopyramid.metrics.auroc import class_aurocs, mean_of_known
from protopyramid.metrics.softmax import log_softmax

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ValidationMetrics:
    """How well a model does on a split. `auroc` is None where it is undefined."""

    auroc: float | None
    accuracy: float
    cross_entropy: float

    @property
    def key(self) -> tuple[float, float]:
        """What two candidates are compared by, greater is better: AUROC, then cross entropy."""
        return (-1.0 if self.auroc is None else self.auroc, -self.cross_entropy)


def validation_metrics(
    logits: Array, labels: NDArray[np.int64], classes: Sequence[str], negative: str
) -> ValidationMetrics:
    """The metrics of logits (N, C) for labels (N,)."""
    log_probabilities = log_softmax(logits)
    by_class = class_aurocs(np.exp(log_probabilities), labels, classes, negative)
    return ValidationMetrics(
        auroc=mean_of_known(by_class),
        accuracy=float((logits.argmax(1) == labels).mean()),
        cross_entropy=float(-log_probabilities[np.arange(len(labels)), labels].mean()),
    )
