"""Pooling: from a similarity map to one score."""

from __future__ import annotations

from torch import Tensor


def top_mean(maps: Tensor, k: int, largest: bool = True) -> Tensor:
    """Mean of the k largest (or smallest) values of each map. (B, m, H, W) -> (B, m)."""
    cells = maps.flatten(2)
    if k == 1:
        return cells.amax(-1) if largest else cells.amin(-1)
    return cells.topk(k, dim=-1, largest=largest, sorted=False).values.mean(-1)


def focal(maps: Tensor, k: int) -> Tensor:
    """Focal similarity: mean of the k largest values minus the mean of all (equation 3).

    (B, m, H, W) -> (B, m).
    """
    return top_mean(maps, k) - maps.mean((-2, -1))


def pool(maps: Tensor, kind: str, k: int) -> Tensor:
    """Scores of similarity maps by the pooling `kind`. (B, m, H, W) -> (B, m)."""
    if kind == "focal":
        return focal(maps, k)
    if kind == "topk":
        return top_mean(maps, k)
    if kind == "max":
        return top_mean(maps, 1)
    if kind == "average":
        return maps.mean((-2, -1))
    raise ValueError(f'expected pooling "focal", "topk", "max" or "average", got "{kind}"')
