"""Cluster and separation losses: pull prototypes towards their own class, away from the others."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.utils.arguments import checked_tensors


@checked_tensors(closeness="B m", labels="B", classes="m", levels="m")
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
    mean over the prototypes of the class instead of the maximum: all of them are pulled to the image.
    """
    if over not in ("max", "mean"):
        raise UserError(f'expected over "max" or "mean", got "{over}"')
    own = classes[None, :] == labels[:, None]
    return -_mean_of_groups(closeness, own, levels, scope, _maxima if over == "max" else _means)


@checked_tensors(closeness="B m", labels="B", classes="m", levels="m")
def separation(
    closeness: Tensor, labels: Tensor, classes: Tensor, levels: Tensor, scope: str = "level"
) -> Tensor:
    """mean_i max_{j: c_j != y_i} a_ij: every prototype of another class should be far.

    Shapes and `scope` as in `cluster`.
    """
    other = classes[None, :] != labels[:, None]
    return _mean_of_groups(closeness, other, levels, scope, _maxima)


def _mean_of_groups(
    closeness: Tensor,
    eligible: Tensor,
    levels: Tensor,
    scope: str,
    reduce: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Mean over images and groups of `reduce` of the eligible closeness; empty groups do not count.

    closeness (B, m), eligible bool (B, m), levels (m,), reduce (B, n), (B, n) -> (B,); returns a scalar.
    """
    if scope not in ("level", "all"):
        raise UserError(f'expected scope "level" or "all", got "{scope}"')
    groups = [torch.ones_like(levels, dtype=torch.bool)]
    if scope == "level":
        groups = [levels == level for level in sorted(set(levels.tolist()))]
    reduced = torch.stack([reduce(closeness[:, g], eligible[:, g]) for g in groups], dim=1)
    exists = torch.stack([eligible[:, g].any(1) for g in groups], dim=1)
    total = torch.where(exists, reduced, 0.0).sum(1)
    per_image = total / exists.sum(1).clamp(min=1)
    return per_image.sum() / exists.any(1).sum().clamp(min=1)


def _maxima(closeness: Tensor, eligible: Tensor) -> Tensor:
    """Largest eligible closeness of each image, (B, m) -> (B,).

    What is not eligible is masked with -inf, never multiplied by zero: closeness can be negative.
    """
    return closeness.masked_fill(~eligible, -torch.inf).amax(dim=1)


def _means(closeness: Tensor, eligible: Tensor) -> Tensor:
    """Mean eligible closeness of each image, (B, m) -> (B,)."""
    return torch.where(eligible, closeness, 0.0).sum(1) / eligible.sum(1).clamp(min=1)
