"""The head: logits = W scores, no bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from protopyramid.config.schema import HeadConfig


def first_weights(classes: Tensor, number_of_classes: int, config: HeadConfig) -> Tensor:
    """The head before training: own-class and other-class weights, times the scale of the scores.

    classes (m,) -> (C, m).

    >>> first_weights(torch.tensor([0, 1]), 2, HeadConfig())
    tensor([[ 1.0000, -0.5000],
            [-0.5000,  1.0000]])
    """
    own = classes[None, :] == torch.arange(number_of_classes, device=classes.device)[:, None]
    return torch.where(own, config.own, config.other) * config.scale


def build_head(classes: Tensor | None, inputs: int, outputs: int, config: HeadConfig) -> nn.Linear:
    """A linear layer without bias; without prototypes (`classes` None) its first weights are random."""
    head = nn.Linear(inputs, outputs, bias=False)
    if classes is not None:
        with torch.no_grad():
            head.weight.copy_(first_weights(classes, outputs, config))
    return head
