"""Contrast loss (ours): a prototype should be clearly more similar to the annotation than to the rest.

The fine-annotation loss asks prototypes to stay inactive outside the annotation, and the cheapest way to
do so is to be similar to nothing at all. This loss compares the two sides instead: it is zero only when
the best patches of the annotation beat the best patches outside it by a margin.
"""

from __future__ import annotations

import torch
from torch import Tensor

from protopyramid.model.cells import touching_cells
from protopyramid.utils.arguments import checked_tensors

MARGIN = 0.5  # ours, in units of similarity


def masked_top_mean(maps: Tensor, chosen: Tensor, k: int) -> Tensor:
    """Mean of the k largest values of each map among the chosen cells.

    maps (B, m, h, w), chosen bool (B, 1, h, w) -> (B, m). Where fewer than k cells are chosen, it is
    their mean; where none is, 0.
    """
    cells = maps.masked_fill(~chosen, -torch.inf).flatten(2)
    values = cells.topk(min(k, cells.shape[-1]), dim=-1, sorted=False).values
    found = values != -torch.inf  # a NaN exists, and is not hidden
    return torch.where(found, values, 0.0).sum(-1) / found.sum(-1).clamp(min=1)


@checked_tensors(maps="B m h w", masks="B H W", own="bool B m")
def contrast(maps: Tensor, masks: Tensor, own: Tensor, k: int, margin: float = MARGIN) -> Tensor:
    """Mean over images and own-class prototypes of max(0, margin + outside - inside).

    maps (B, m, h, w): similarity maps of one level; masks (B, H, W): 1 inside the annotation;
    own (B, m) bool: the prototype is of the image's class -> scalar. `inside` and `outside` are the
    means of the k largest similarities among the patches that touch the annotation and that do not.
    Images where either side is empty do not count.
    """
    touching = touching_cells(masks, *maps.shape[-2:])[:, None]
    inside, outside = masked_top_mean(maps, touching, k), masked_top_mean(maps, ~touching, k)
    both = touching.flatten(1).any(1) & (~touching).flatten(1).any(1)
    counted = own & both[:, None]
    excess = (margin + outside - inside).relu()
    return torch.where(counted, excess, 0.0).sum() / counted.sum().clamp(min=1)
