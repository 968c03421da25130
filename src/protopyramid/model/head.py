"""The head: logits = W scores, no bias; the black box may have hidden layers before it."""

from __future__ import annotations

from collections.abc import Sequence

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


class HiddenLayers(nn.Sequential):
    """Linear layer, ReLU and dropout for each number of units: scores (B, inputs) -> (B, units[-1]).

    With such layers a logit is not a sum over scores any more: there are no contributions.

    >>> HiddenLayers(8, [6, 4], dropout=0.5)(torch.zeros(2, 8)).shape
    torch.Size([2, 4])
    """

    def __init__(self, inputs: int, units: Sequence[int], dropout: float = 0.0) -> None:
        layers: list[nn.Module] = []
        self.inputs, self.outputs = inputs, units[-1]
        for outputs in units:
            linear = nn.Linear(inputs, outputs)
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
            nn.init.zeros_(linear.bias)
            layers += [linear, nn.ReLU(inplace=True), nn.Dropout(dropout)]
            inputs = outputs
        super().__init__(*layers)


def linear_head(
    inputs: int, outputs: int, weights: Tensor | None = None, bias: bool = False
) -> nn.Linear:
    """A linear layer, scores (B, inputs) -> logits (B, outputs); `bias` is for hidden layers before it.

    It starts with `weights` (outputs, inputs) or, without them, with random ones.
    """
    head = nn.Linear(inputs, outputs, bias=bias)
    if weights is not None:
        with torch.no_grad():
            head.weight.copy_(weights)
    return head
