"""Cluster and separation losses: draw prototypes to their own class, away from the others."""

from __future__ import annotations

import torch
from torch import Tensor


def cluster(
    closeness: Tensor,
    labels: Tensor,
    classes: Tensor,
    levels: Tensor,
    scope: str = "level",
    over: str = "max",
) -> Tensor:
    """-mean_i max_{j: c_j = y_i} a_ij: some prototype of the image's class should be near.

    closeness a (B, m), labels (B,), classes (m,), levels (m,) -> scalar. `scope` "level" takes the
    maximum on each level and averages over levels; "all" takes one maximum. `over` "mean" takes the
    mean over the prototypes of the class instead of the maximum: all of them are drawn to the image.
    """
    own = classes[None, :] == labels[:, None]
    if over == "mean":
        return -torch.where(own, closeness, 0.0).sum() / own.sum().clamp(min=1)
    return -_mean_of_maxima(closeness, own, levels, scope)


def separation(
    closeness: Tensor, labels: Tensor, classes: Tensor, levels: Tensor, scope: str = "level"
) -> Tensor:
    """mean_i max_{j: c_j != y_i} a_ij: every prototype of another class should be far.

    Shapes and `scope` as in `cluster`.
    """
    other = classes[None, :] != labels[:, None]
    return _mean_of_maxima(closeness, other, levels, scope)


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
