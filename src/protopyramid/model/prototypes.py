"""The prototype layer: vectors with a class and a level each, compared with the maps of that level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from protopyramid.model.pooling import Pooling, pool, top_mean
from protopyramid.model.similarity import Similarity, l2_maps, log_similarity


class PrototypeLayer(nn.Module):
    """m prototypes of 1 x 1 x d, any number per class and level.

    The prototypes of a level are consecutive (`slices`), finest level first. `vectors` (m, d) are stored
    unnormalised; `classes` and `levels` (m,) are buffers, so they travel with the weights.
    """

    classes: Tensor
    levels: Tensor

    def __init__(
        self,
        classes: Sequence[int],
        levels: Sequence[int],
        dim: int,
        similarity: Similarity = Similarity(),  # noqa: B008 (immutable)
        pooling: Pooling = Pooling(),  # noqa: B008 (immutable)
    ) -> None:
        """`classes` and `levels`: those of each prototype, m each, in order of level."""
        super().__init__()
        if len(classes) != len(levels) or list(levels) != sorted(levels):
            raise ValueError(
                "expected a class and a level for each prototype, in order of level, "
                f"got classes {list(classes)} and levels {list(levels)}"
            )
        self.similarity, self.pooling = similarity, pooling
        self.register_buffer("levels", torch.tensor(levels))
        self.register_buffer("classes", torch.tensor(classes))
        self.vectors = nn.Parameter(torch.rand(len(levels), dim))
        self.slices = _level_slices(levels)

    def forward(self, z: Mapping[int, Tensor]) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
        """Scores (B, m), closeness (B, m) and similarity maps {level: (B, m_level, H, W)}.

        z {level: (B, d, H, W)}. Closeness is what cluster and separation act on: the top-k mean
        similarity or, for log-l2, minus the mean of the k smallest distances.
        """
        scores, closeness, maps = [], [], {}
        for level, rows in self.slices.items():
            score, close, maps[level] = self._compare(z[level], self.vectors[rows], level)
            scores.append(score)
            closeness.append(close)
        return torch.cat(scores, dim=1), torch.cat(closeness, dim=1), maps

    def similarity_map(self, z: Tensor, vectors: Tensor) -> Tensor:
        """Similarity maps alone. z (B, d, H, W), vectors (m, d) -> (B, m, H, W)."""
        return self.similarity.maps(z, vectors)

    def pooled_patches(self, level: int, maps: Tensor) -> int:
        """The number k of patches in the top-k mean of maps (B, any, H, W) of a level."""
        return self.pooling.patches(level, maps.shape[-2] * maps.shape[-1])

    def _compare(self, z: Tensor, vectors: Tensor, level: int) -> tuple[Tensor, Tensor, Tensor]:
        """Scores (B, m), closeness (B, m) and maps (B, m, H, W) of one level.

        z (B, d, H, W), vectors (m, d).
        """
        kind, k = self.pooling.kind, self.pooled_patches(level, z)
        if self.similarity.kind == "cosine":
            maps = self.similarity.maps(z, vectors)
            closeness = top_mean(maps, k)
            if kind == "focal":  # its top-k mean is already computed
                return closeness - maps.mean((-2, -1)), closeness, maps
            return pool(maps, kind, k), closeness, maps
        distances = l2_maps(z, vectors, self.similarity.squared)
        maps = log_similarity(distances)
        return pool(maps, kind, k), -top_mean(distances, k, largest=False), maps


def classes_and_levels(counts: Mapping[int, Mapping[int, int]]) -> tuple[list[int], list[int]]:
    """The class and the level of each prototype, ordered by level, then class.

    counts {class number: {level: number of prototypes}}.

    >>> classes_and_levels({0: {2: 1, 5: 2}, 1: {2: 1}})
    ([0, 1, 0, 0], [2, 2, 5, 5])
    """
    pairs = sorted(
        (level, number)
        for number, by_level in counts.items()
        for level, count in by_level.items()
        for _ in range(count)
    )
    return [number for _, number in pairs], [level for level, _ in pairs]


def _level_slices(levels: Sequence[int]) -> dict[int, slice]:
    return {
        level: slice(levels.index(level), levels.index(level) + levels.count(level))
        for level in sorted(set(levels))
    }
