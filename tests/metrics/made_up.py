"""Made-up predictions for tests of metrics."""

from __future__ import annotations

import numpy as np

from protopyramid.metrics.softmax import softmax

CLASSES = ["circumscribed", "indistinct", "spiculated", "negative"]


def made_up(seed: int, n: int = 200, decimals: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (N, 4), a little informative, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    logits = rng.normal(size=(n, 4))
    logits[np.arange(n), labels] += 1
    return softmax(logits.round(decimals)), labels
