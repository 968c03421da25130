"""The share of a logit that comes from negative weights."""

import numpy as np
import pytest
import torch

from protopyramid.metrics.elimination import elimination, negative_share


def naive(weight: np.ndarray, scores: np.ndarray) -> np.ndarray:
    shares = np.zeros((len(scores), len(weight)))
    for image, row in enumerate(scores):
        for number, weights in enumerate(weight):
            parts = [(w, abs(w * s)) for w, s in zip(weights, row, strict=True)]
            total = sum(size for _, size in parts)
            against = sum(size for w, size in parts if w < 0)
            shares[image, number] = against / total if total else 0.0
    return shares


def test_share_equals_a_loop_over_contributions():
    rng = np.random.default_rng(0)
    weight, scores = rng.normal(size=(4, 7)), rng.normal(size=(5, 7))
    found = negative_share(torch.from_numpy(weight), torch.from_numpy(scores)).numpy()
    np.testing.assert_allclose(found, naive(weight, scores), rtol=1e-12)


def test_no_negative_weight_is_no_elimination_and_no_evidence_is_none_either():
    scores = torch.tensor([[1.0, 2.0], [0.0, 0.0]])
    assert negative_share(torch.tensor([[1.0, 0.0]]), scores).tolist() == [[0.0], [0.0]]
    assert negative_share(torch.tensor([[-1.0, -2.0]]), scores).tolist() == [[1.0], [0.0]]


def test_the_figures_are_means_of_the_shares():
    rng = np.random.default_rng(1)
    weight, scores = rng.normal(size=(3, 4)), rng.normal(size=(6, 4))
    labels = np.array([0, 1, 2, 0, 1, 2])
    shares = naive(weight, scores)
    found = elimination(torch.from_numpy(weight), torch.from_numpy(scores), labels, ["a", "b", "c"])
    assert found.mean == pytest.approx(shares.mean())
    assert found.own == pytest.approx(np.mean([shares[i, labels[i]] for i in range(6)]))
    assert found.per_class["b"] == pytest.approx(shares[:, 1].mean())
