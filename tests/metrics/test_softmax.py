"""One softmax, that of torch, for logits of any size."""

from __future__ import annotations

import numpy as np
import torch

from protopyramid.metrics.softmax import log_softmax, softmax


def test_softmax_is_that_of_torch() -> None:
    logits = np.random.default_rng(0).normal(scale=300, size=(20, 4))
    expected = torch.from_numpy(logits).softmax(1).numpy()
    np.testing.assert_allclose(softmax(logits), expected, atol=1e-12)
    np.testing.assert_allclose(softmax(logits[0]), expected[0], atol=1e-12)
    logs = torch.from_numpy(logits).log_softmax(1).numpy()
    np.testing.assert_allclose(log_softmax(logits), logs, atol=1e-12)
