"""Cells: the patches of a map, and what an annotation means to them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from protopyramid.model.activation import Box


def touching_cells(masks: Tensor, height: int, width: int) -> Tensor:
    """Which cells of a height x width map touch the annotation.

    masks (B, H, W), non-zero inside the annotation -> bool (B, height, width).
    """
    return F.adaptive_max_pool2d(masks.float()[:, None], (height, width))[:, 0] > 0


def cell_box(row: int, col: int, height: int, width: int) -> Box:
    """The square of the image that a cell of a height x width map stands for, in fractions.

    >>> cell_box(0, 3, 4, 4)
    (0.75, 0.0, 1.0, 0.25)
    """
    return col / width, row / height, (col + 1) / width, (row + 1) / height
