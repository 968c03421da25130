"""Context loss (ours): what a prototype finds in a part of an image should not depend on what surrounds it.

A cell of a coarse map sees far more of the image than it covers. The part that is shown for it then explains
the similarity only where the cell would have answered alike in other surroundings. This loss compares the
two: the similarities inside a window of the image, and those of the same window in another image.
"""

from __future__ import annotations

import torch
from torch import Tensor


def context(maps: Tensor, swapped: Tensor, own: Tensor, inner: Tensor, k: int) -> Tensor:
    """Mean over images and own-class prototypes of the squared change of similarity in other surroundings.

    maps, swapped (B, m, h, w): similarity maps of one level, of the images and of their windows in other
    surroundings; own (B, m) bool: the prototype is of the image's class; inner (B, h, w) bool: cells well
    inside the window -> scalar. The change counts at those of the k highest cells of `maps` that are inner;
    pairs without any do not count. `maps` are what `swapped` should be: they get no gradient.
    """
    target = maps.detach()
    pooled = torch.zeros_like(target, dtype=torch.bool).flatten(2)
    pooled.scatter_(-1, target.flatten(2).topk(k, dim=-1, sorted=False).indices, True)
    counted = pooled & inner.flatten(1)[:, None]
    changes = torch.where(counted, (swapped - target).flatten(2).square(), 0.0).sum(-1)
    cells = counted.sum(-1)
    pairs = own & (cells > 0)
    means = changes / cells.clamp(min=1)
    return torch.where(pairs, means, 0.0).sum() / pairs.sum().clamp(min=1)
