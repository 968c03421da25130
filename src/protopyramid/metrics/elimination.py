"""Classification by elimination: how much of a logit comes from evidence against other classes.

A logit is a sum of weight x score over prototypes. A prototype with a negative weight supports a class by
being absent, or opposes it by being present: either way the reader sees no part that resembles the class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Elimination:
    """Share of contributions from negative weights: mean over all logits of all images, over the
    logits of the images' own classes, and over the logits of each class."""

    mean: float
    own: float
    per_class: Mapping[str, float]


def negative_share(weight: Tensor, scores: Tensor) -> Tensor:
    """Share of each logit's contributions, by size, that comes from negative weights: (N, C).

    weight (C, m), scores (N, m). A logit without any contribution has the share 0.

    >>> negative_share(torch.tensor([[2.0, -1.0]]), torch.tensor([[1.0, 2.0], [1.0, 0.0]])).tolist()
    [[0.5], [0.0]]
    """
    sizes = scores.abs().double()
    total = sizes @ weight.abs().double().T
    negative = sizes @ weight.clamp(max=0).abs().double().T
    return torch.where(total > 0, negative / total.clamp(min=1e-300), torch.zeros(()).double())


def elimination(
    weight: Tensor, scores: Tensor, labels: NDArray[np.int64], classes: Sequence[str]
) -> Elimination:
    """How far a head (C, m) classifies images with scores (N, m) and labels (N,) by elimination."""
    shares = negative_share(weight, scores).numpy()
    own = shares[np.arange(len(labels)), labels]
    return Elimination(
        mean=float(shares.mean()),
        own=float(own.mean()),
        per_class={name: float(shares[:, number].mean()) for number, name in enumerate(classes)},
    )
