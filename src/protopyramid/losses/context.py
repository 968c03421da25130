"""Context loss (ours): what a prototype finds in a part of an image should not depend on what surrounds it.

A cell of a coarse map sees far more of the image than it covers. The part that is shown for it then explains
the similarity only where the cell would have answered alike in other surroundings. This loss is the
training counterpart of *kept*, the measure of faithfulness: the share of the rise of a similarity that is
left when all outside a window is another image.
"""

from __future__ import annotations

import torch
from torch import Tensor

from protopyramid.utils.arguments import checked_tensors

SMALLEST_RISE = 0.1  # smaller ones are divided by this: a flat map has nothing to keep


@checked_tensors(maps="B m h w", swapped="B m h w", own="bool B m", inner="bool B h w")
def context(maps: Tensor, swapped: Tensor, own: Tensor, inner: Tensor, k: int) -> Tensor:
    """Mean over images and own-class prototypes of (1 - kept)^2.

    maps, swapped (B, m, h, w): similarity maps of one level, of the images and of their windows in other
    surroundings; own (B, m) bool: the prototype is of the image's class; inner (B, h, w) bool: cells well
    inside the window -> scalar. kept = (mean of `swapped` - mean of the map) / (mean of `maps` - mean of the
    map), both over those of the k highest cells of `maps` that are inner; pairs without any do not count.
    `maps` are what `swapped` should be: they get no gradient.
    """
    target = maps.detach().flatten(2)
    pooled = torch.zeros_like(target, dtype=torch.bool)
    pooled.scatter_(-1, target.topk(k, dim=-1, sorted=False).indices, True)
    counted = pooled & inner.flatten(1)[:, None]
    cells = counted.sum(-1)
    pairs = own & (cells > 0)
    lost = torch.where(counted, target - swapped.flatten(2), 0.0).sum(-1) / cells.clamp(min=1)
    height = torch.where(counted, target, 0.0).sum(-1) / cells.clamp(min=1)
    share = lost / (height - target.mean(-1)).clamp(min=SMALLEST_RISE)
    return torch.where(pairs, share.square(), 0.0).sum() / pairs.sum().clamp(min=1)
