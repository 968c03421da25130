"""Pooling: from a similarity map to one score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

PoolingKind = Literal["focal", "topk", "max", "average"]
ChannelPooling = Literal["average", "flatten"]
PoolSize = int | float

KINDS = ("focal", "topk", "max", "average")
GRID = 7  # VGG-16: its classifier sees 7 x 7 cells, whatever the size of the image
DEFAULT_K = 9  # IAIA-BL: the 9 most similar of the 14 x 14 patches; ours on the finer levels


@dataclass(frozen=True)
class Pooling:
    """How a similarity map becomes a score, and how many patches its top-k mean takes.

    `k`: a number of patches, a fraction of the map, or either by level (levels that it does not name
    take 9).

    >>> Pooling("topk", {2: 20, 5: 0.1}).patches(5, 196)
    20
    >>> Pooling("max").patches(5, 196)
    1
    """

    kind: PoolingKind = "focal"
    k: PoolSize | Mapping[int, PoolSize] = DEFAULT_K

    def __post_init__(self) -> None:
        _check_kind(self.kind)

    def patches(self, level: int, cells: int) -> int:
        """The number of patches in the top-k mean of a level whose maps have `cells` patches."""
        return 1 if self.kind == "max" else pool_size(self.k, level, cells)


def pool_size(k: PoolSize | Mapping[int, PoolSize], level: int, cells: int) -> int:
    """The number of patches in the top-k mean of one level, between 1 and the number of cells.

    >>> pool_size(9, 5, 196), pool_size(0.05, 2, 3136), pool_size({2: 20}, 5, 196)
    (9, 157, 9)
    """
    chosen = k.get(level, DEFAULT_K) if isinstance(k, Mapping) else k
    wanted = chosen if isinstance(chosen, int) else round(chosen * cells)
    return max(1, min(int(wanted), cells))


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
    _check_kind(kind)
    if kind == "focal":
        return focal(maps, k)
    if kind == "average":
        return maps.mean((-2, -1))
    return top_mean(maps, 1 if kind == "max" else k)


def channel_scores(c5: Tensor, kind: ChannelPooling) -> Tensor:
    """The scores of a model without prototypes. (B, channels, H, W) -> (B, n).

    "average": the mean of each channel, n = channels. "flatten": the map averaged to 7 x 7 cells, channel
    by channel, n = 49 channels.
    """
    if kind == "average":
        return c5.mean((-2, -1))
    return F.adaptive_avg_pool2d(c5, GRID).flatten(1)


def channel_score_count(channels: int, kind: ChannelPooling) -> int:
    """The number of scores that `channel_scores` returns for a given number of channels."""
    return channels if kind == "average" else channels * GRID**2


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f'expected pooling "focal", "topk", "max" or "average", got "{kind}"')
