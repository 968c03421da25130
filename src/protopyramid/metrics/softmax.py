"""Probabilities of logits, in double precision and safe for logits of any size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis. (..., C) -> (..., C).

    >>> softmax(np.array([[0.0, 0.0], [1000.0, 0.0]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(exponents / exponents.sum(-1, keepdims=True))


def log_softmax(logits: Array) -> Array:
    """Logarithms of the probabilities along the last axis; finite where a probability is 0.

    >>> log_softmax(np.array([1000.0, 0.0])).tolist()
    [0.0, -1000.0]
    """
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
