"""Which patches are eligible, and columns of several parts as one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from protopyramid.training.patches import eligible_cells, join_columns


def test_an_empty_mask_is_not_an_annotation() -> None:
    masks = torch.zeros(3, 8, 8, dtype=torch.uint8)
    masks[1, 3, 3] = 1
    masks[2, 3, 3] = 1
    cells = eligible_cells(masks, torch.tensor([True, True, False]), (4, 4))
    assert cells[0].all() and cells[2].all()
    assert cells[1].nonzero().tolist() == [[1, 1]]


@dataclass
class Pair:
    left: Tensor
    right: Tensor


def test_every_field_is_joined_along_the_dimension() -> None:
    parts = [Pair(torch.full((2, n), n), torch.full((2, n), -n)) for n in (1, 2)]
    joined = join_columns(parts, dim=1)
    assert joined.left.tolist() == [[1, 2, 2]] * 2
    assert joined.right.tolist() == [[-1, -2, -2]] * 2
