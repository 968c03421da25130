"""Cells: the patches of a map, and what an annotation means to them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def touching_cells(masks: Tensor, height: int, width: int) -> Tensor:
    """Which cells of a height x width map touch the annotation.

    masks (B, H, W), non-zero inside the annotation -> bool (B, height, width).
    """
    return F.adaptive_max_pool2d(masks.float()[:, None], (height, width))[:, 0] > 0
