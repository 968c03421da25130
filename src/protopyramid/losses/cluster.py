"""Cluster and separation losses: draw prototypes to their own class, away from the others."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def cluster(
    closeness: Tensor, labels: Tensor, classes: Tensor, levels: Tensor, scope: str = "level"
) -> Tensor:
    """-mean_i max_{j: c_j = y_i} a_ij: some prototype of the image's class should be near.

    closeness a (B, m), labels (B,), classes (m,), levels (m,) -> scalar. `scope` "level" takes the
    maximum on each level and averages over levels; "all" takes one maximum.
    """
    own = classes[None, :] == labels[:, None]
    return -_mean_of_maxima(closeness, own, levels, scope)


def separation(
    closeness: Tensor, labels: Tensor, classes: Tensor, levels: Tensor, scope: str = "level"
) -> Tensor:
    """mean_i max_{j: c_j != y_i} a_ij: every prototype of another class should be far.

    Shapes and `scope` as in `cluster`.
    """
    other = classes[None, :] != labels[:, None]
    return _mean_of_maxima(closeness, other, levels, scope)


def inside_closeness(maps: Tensor, masks: Tensor, k: int) -> Tensor:
    """Mean of the k largest similarities among the patches that touch the annotation.

    maps (B, m, h, w), masks (B, H, W) 1 inside -> (B, m). Where fewer than k patches touch it, their
    mean; where none does, the plain top-k mean.
    """
    touching = F.adaptive_max_pool2d(masks.to(maps.dtype)[:, None], maps.shape[-2:]) > 0
    touching = (touching | ~touching.flatten(1).any(1)[:, None, None, None]).flatten(2)
    values = maps.flatten(2).masked_fill(~touching, -torch.inf).topk(k, dim=-1, sorted=False).values
    found = values > -torch.inf
    return torch.where(found, values, 0.0).sum(-1) / found.sum(-1)


def _mean_of_maxima(closeness: Tensor, eligible: Tensor, levels: Tensor, scope: str) -> Tensor:
    """Mean over images and groups of the largest eligible closeness; empty groups do not count.

    What is not eligible is masked with -inf, never multiplied by zero: closeness can be negative.
    """
    if scope not in ("level", "all"):
        raise ValueError(f'expected scope "level" or "all", got "{scope}"')
    masked = closeness.masked_fill(~eligible, -torch.inf)
    columns = [masked]
    if scope == "level":
        columns = [masked[:, levels == level] for level in sorted(set(levels.tolist()))]
    maxima = torch.stack([column.amax(dim=1) for column in columns], dim=1)
    exists = maxima != -torch.inf  # a NaN exists, and is not hidden
    total = torch.where(exists, maxima, 0.0).sum(1)
    per_image = total / exists.sum(1).clamp(min=1)
    return per_image.sum() / exists.any(1).sum().clamp(min=1)
