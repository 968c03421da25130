"""Orthogonality loss: the prototypes of a group should differ from one another."""

from __future__ import annotations

import torch
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.model.similarity import SMALLEST_NORM
from protopyramid.utils.arguments import checked_tensors


@checked_tensors(vectors="m d", classes="m", levels="m")
def orthogonality(
    vectors: Tensor, classes: Tensor, levels: Tensor, group: str = "class-level"
) -> Tensor:
    """Sum over groups of |P_g P_g^T - I|_F^2, rows of P_g being the group's unit prototypes.

    vectors (m, d), classes (m,), levels (m,) -> scalar. `group` "class-level" (vectors of different
    levels live in different spaces) or "class".
    """
    if group not in ("class-level", "class"):
        raise UserError(f'expected group "class-level" or "class", got "{group}"')
    keys = classes if group == "class" else classes * (levels.max() + 1) + levels
    norms = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    unit = vectors / torch.where(norms > SMALLEST_NORM, norms, torch.inf)
    together = keys[:, None] == keys[None, :]
    # Pairs of different groups contribute nothing, so one Gram matrix serves all groups.
    excess = unit @ unit.T - torch.eye(len(vectors), dtype=unit.dtype, device=unit.device)
    return torch.where(together, excess, 0.0).square().sum()
