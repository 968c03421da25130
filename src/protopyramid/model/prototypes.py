"""The prototype layer: vectors with a class and a level each, compared with the maps of that level."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from protopyramid.config.schema import PoolingConfig, SimilarityConfig, pool_size
from protopyramid.model.pooling import pool, top_mean
from protopyramid.model.similarity import cosine_maps, l2_maps, log_similarity


class PrototypeLayer(nn.Module):
    """m prototypes of 1 x 1 x d, any number per class and level.

    They are ordered by level, then class, so that the prototypes of a level are consecutive.
    `vectors` (m, d) are stored unnormalised; `classes` and `levels` (m,) travel with the weights.
    """

    classes: Tensor
    levels: Tensor

    def __init__(
        self,
        counts: Mapping[int, Mapping[int, int]],
        dim: int,
        similarity: SimilarityConfig,
        pooling: PoolingConfig,
    ) -> None:
        """`counts`: {class number: {level: number of prototypes}}."""
        super().__init__()
        self.similarity, self.pooling = similarity, pooling
        pairs = sorted(
            (level, number)
            for number, by_level in counts.items()
            for level, count in by_level.items()
            for _ in range(count)
        )
        self.register_buffer("levels", torch.tensor([level for level, _ in pairs]))
        self.register_buffer("classes", torch.tensor([number for _, number in pairs]))
        self.vectors = nn.Parameter(torch.rand(len(pairs), dim))
        self.slices = _level_slices([level for level, _ in pairs])

    def forward(self, z: Mapping[int, Tensor]) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
        """Scores (B, m), closeness (B, m) and similarity maps {level: (B, m_level, H, W)} of z.

        Closeness is what cluster and separation act on: the top-k mean similarity or, for log-l2,
        minus the mean of the k smallest distances.
        """
        scores, closeness, maps = [], [], {}
        for level, rows in self.slices.items():
            score, close, maps[level] = self._compare(z[level], self.vectors[rows], level)
            scores.append(score)
            closeness.append(close)
        return torch.cat(scores, dim=1), torch.cat(closeness, dim=1), maps

    def similarity_map(self, z: Tensor, vectors: Tensor) -> Tensor:
        """Similarity maps alone. z (B, d, H, W), vectors (m, d) -> (B, m, H, W)."""
        if self.similarity.kind == "cosine":
            return cosine_maps(z, vectors, self.similarity.relu)
        return log_similarity(l2_maps(z, vectors, self.similarity.squared))

    def pooled_patches(self, level: int, maps: Tensor) -> int:
        """The number k of patches in the top-k mean of maps (B, any, H, W) of a level."""
        if self.pooling.kind == "max":
            return 1
        return pool_size(self.pooling.k, level, maps.shape[-2] * maps.shape[-1])

    def _compare(self, z: Tensor, vectors: Tensor, level: int) -> tuple[Tensor, Tensor, Tensor]:
        kind = self.pooling.kind
        k = self.pooled_patches(level, z)
        if self.similarity.kind == "cosine":
            maps = cosine_maps(z, vectors, self.similarity.relu)
            closeness = top_mean(maps, k)
        else:
            distances = l2_maps(z, vectors, self.similarity.squared)
            maps = log_similarity(distances)
            closeness = -top_mean(distances, k, largest=False)
        if kind == "focal" and self.similarity.kind == "cosine":
            return closeness - maps.mean((-2, -1)), closeness, maps  # focal, its top-k mean reused
        return pool(maps, kind, k), closeness, maps


def _level_slices(levels: list[int]) -> dict[int, slice]:
    return {
        level: slice(levels.index(level), levels.index(level) + levels.count(level))
        for level in sorted(set(levels))
    }
