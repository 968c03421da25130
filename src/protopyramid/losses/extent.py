"""Extent loss (ours): a fine prototype answers in a small part of the image, a coarse one in one larger part.

The area of a map above half maximum, midway from its lowest to its highest value, is what a reader takes for
its scale. Nothing else in the objective keeps it small on fine levels, where one kind of edge is found all
around a lesion, nor in one place and large on coarse ones.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.utils.arguments import checked_tensors

Limit = Literal["most", "around", "least"]


@checked_tensors(maps="B m h w", own="bool B m")
def extent(maps: Tensor, own: Tensor, share: float, limit: Limit = "most") -> Tensor:
    """Mean over images and own-class prototypes of what is above half maximum beyond a share of the map.

    maps (B, m, h, w): similarity maps of one level; own (B, m) bool: the prototype is of the image's class
    -> scalar. A share of the cells, at least one, is free; for the others it is the mean of
    max(0, similarity - half maximum). Free are the highest ("most") or those nearest to the highest one
    ("around"): it is zero exactly where nothing else is above half maximum. With "least", the reverse: the
    mean over the highest share of max(0, half maximum - similarity).
    """
    if not 0 < share <= 1:
        raise UserError(f"share: expected a number above 0 and up to 1, got {share}")
    if limit not in ("most", "around", "least"):
        raise UserError(f"limit: expected 'most', 'around' or 'least', got {limit!r}")
    cells = maps.flatten(2)
    count = min(cells.shape[-1], max(1, round(share * cells.shape[-1])))
    order = -_distances(maps.detach()) if limit == "around" else cells.detach()
    chosen = torch.zeros_like(cells, dtype=torch.bool)
    chosen.scatter_(-1, order.topk(count, dim=-1, sorted=False).indices, True)
    half = (cells.amax(-1, keepdim=True) + cells.amin(-1, keepdim=True)) / 2
    above = cells - half
    counted, wrong = (chosen, -above) if limit == "least" else (~chosen, above)
    cost = torch.where(counted, wrong.relu(), 0.0)
    means = cost.sum(-1) / counted.sum(-1).clamp(min=1)
    return torch.where(own, means, 0.0).sum() / own.sum().clamp(min=1)


def _distances(maps: Tensor) -> Tensor:
    """Squared distances of all cells from the highest, in cells. (B, m, h, w) -> (B, m, h * w)."""
    height, width = maps.shape[-2:]
    highest = maps.flatten(2).argmax(-1, keepdim=True)
    cells = torch.arange(height * width, device=maps.device)
    down = cells // width - highest // width
    right = cells % width - highest % width
    return (down.square() + right.square()).to(maps.dtype)
