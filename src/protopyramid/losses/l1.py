"""L1 penalty on the head: a prototype should argue for its own class, not against the others."""

from __future__ import annotations

import torch
from torch import Tensor

from protopyramid.utils.arguments import checked_tensors


@checked_tensors(weight="C m", classes="m")
def l1(weight: Tensor, classes: Tensor) -> Tensor:
    """Sum of |w| over the weights between a prototype and the classes that are not its own.

    weight (C, m), classes (m,) -> scalar.

    >>> l1(torch.tensor([[1.0, -0.5], [-0.5, 1.0]]), torch.tensor([0, 1])).item()
    1.0
    """
    other = torch.arange(len(weight), device=weight.device)[:, None] != classes[None, :]
    return torch.where(other, weight, 0.0).abs().sum()
