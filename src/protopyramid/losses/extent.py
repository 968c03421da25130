"""Extent loss (ours): a fine prototype answers in a small part of the image.

The area of a map above half maximum, midway from its lowest to its highest value, is what a reader takes for
its scale. Nothing else in the objective keeps it small on fine levels, where one kind of edge is found all
around a lesion.
"""

from __future__ import annotations

import torch
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.utils.arguments import checked_tensors


@checked_tensors(maps="B m h w", own="bool B m")
def extent(maps: Tensor, own: Tensor, share: float) -> Tensor:
    """Mean over images and own-class prototypes of what is above half maximum beyond a share of the map.

    maps (B, m, h, w): similarity maps of one level; own (B, m) bool: the prototype is of the image's class
    -> scalar. The highest `share` of the cells, at least one, is free; for the others it is the mean of
    max(0, similarity - half maximum). Zero exactly where no more than that share is above half maximum.
    """
    if not 0 < share <= 1:
        raise UserError(f"share: expected a number above 0 and up to 1, got {share}")
    cells = maps.flatten(2)
    free = min(cells.shape[-1], max(1, round(share * cells.shape[-1])))
    beyond = torch.ones_like(cells, dtype=torch.bool)
    beyond.scatter_(-1, cells.detach().topk(free, dim=-1, sorted=False).indices, False)
    half = (cells.amax(-1, keepdim=True) + cells.amin(-1, keepdim=True)) / 2
    excess = torch.where(beyond, (cells - half).relu(), 0.0)
    means = excess.sum(-1) / max(1, cells.shape[-1] - free)
    return torch.where(own, means, 0.0).sum() / own.sum().clamp(min=1)
