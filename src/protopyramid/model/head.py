"""The head: logits = W scores, no bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn

OWN_WEIGHT = 1.0  # ProtoPNet's initial weight of a prototype for its own class
OTHER_WEIGHT = -0.5  # ProtoPNet's for the other classes


def initial_weights(
    classes: Tensor,
    number_of_classes: int,
    own: float = OWN_WEIGHT,
    other: float = OTHER_WEIGHT,
    scale: float = 1.0,
) -> Tensor:
    """The head's weights before training: `own` and `other`, times the scale of the scores.

    classes (m,) -> (C, m).

    >>> initial_weights(torch.tensor([0, 1]), 2)
    tensor([[ 1.0000, -0.5000],
            [-0.5000,  1.0000]])
    """
    is_own = classes[None, :] == torch.arange(number_of_classes, device=classes.device)[:, None]
    return torch.where(is_own, own, other) * scale


def linear_head(inputs: int, outputs: int, weights: Tensor | None = None) -> nn.Linear:
    """A linear layer without bias, scores (B, inputs) -> logits (B, outputs).

    It starts with `weights` (outputs, inputs) or, without them, with random ones.
    """
    head = nn.Linear(inputs, outputs, bias=False)
    if weights is not None:
        with torch.no_grad():
            head.weight.copy_(weights)
    return head
