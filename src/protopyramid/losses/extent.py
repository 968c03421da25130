"""Extent loss (ours): a fine prototype answers in a small part of the image, a coarse one in a larger part.

The area of a map above half maximum, midway from its lowest to its highest value, is what a reader takes for
its scale. Nothing else in the objective keeps it small on fine levels, where one kind of edge is found all
around a lesion, nor large on coarse ones, where few cells are pooled.
"""

from __future__ import annotations

import torch
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.utils.arguments import checked_tensors


@checked_tensors(maps="B m h w", own="bool B m")
def extent(maps: Tensor, own: Tensor, share: float, at_least: bool = False) -> Tensor:
    """Mean over images and own-class prototypes of what is above half maximum beyond a share of the map.

    maps (B, m, h, w): similarity maps of one level; own (B, m) bool: the prototype is of the image's class
    -> scalar. The highest `share` of the cells, at least one, is free; for the others it is the mean of
    max(0, similarity - half maximum). Zero exactly where no more than that share is above half maximum.
    With `at_least`, the reverse: the mean over the highest share of max(0, half maximum - similarity).
    """
    if not 0 < share <= 1:
        raise UserError(f"share: expected a number above 0 and up to 1, got {share}")
    cells = maps.flatten(2)
    count = min(cells.shape[-1], max(1, round(share * cells.shape[-1])))
    highest = torch.zeros_like(cells, dtype=torch.bool)
    highest.scatter_(-1, cells.detach().topk(count, dim=-1, sorted=False).indices, True)
    half = (cells.amax(-1, keepdim=True) + cells.amin(-1, keepdim=True)) / 2
    above = cells - half
    counted, wrong = (highest, -above) if at_least else (~highest, above)
    cost = torch.where(counted, wrong.relu(), 0.0)
    means = cost.sum(-1) / counted.sum(-1).clamp(min=1)
    return torch.where(own, means, 0.0).sum() / own.sum().clamp(min=1)
