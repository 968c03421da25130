"""Similarity maps: how alike every patch of a level is to every prototype of that level."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_EPSILON = 1e-4  # ProtoPNet's constant in log((d + 1) / (d + epsilon))
SMALLEST_NORM = 1e-8  # a vector shorter than this counts as zero: similarity 0, gradient 0


def cosine_maps(z: Tensor, vectors: Tensor, relu: bool = False) -> Tensor:
    """Cosine similarity of each patch with each prototype (equation 2).

    z (B, d, H, W), vectors (m, d) -> (B, m, H, W) in [-1, 1]. Computed as conv1x1(z, p / |p|) / |z|, so
    that no normalised copy of z is made. A zero patch has similarity 0 and a zero gradient.

    >>> cosine_maps(torch.tensor([3.0, 4.0]).view(1, 2, 1, 1), torch.tensor([[1.0, 0.0]])).item()
    0.6000000238418579
    """
    unit = vectors / _safe_norm(vectors, dim=1)
    products = F.conv2d(z, unit[:, :, None, None])
    maps = (products / _safe_norm(z, dim=1)).clamp(-1.0, 1.0)
    return maps.relu() if relu else maps


def l2_maps(z: Tensor, vectors: Tensor, squared: bool) -> Tensor:
    """L2 distance, squared or not, of each patch to each prototype.

    z (B, d, H, W), vectors (m, d) -> (B, m, H, W). Differences are formed before they are squared:
    |z|^2 - 2 z p + |p|^2 would lose the small distances that log-l2 magnifies.
    """
    batch, _, height, width = z.shape
    patches = z.flatten(2).transpose(1, 2)
    distances = torch.cdist(
        patches,
        vectors.expand(batch, -1, -1),
        compute_mode="donot_use_mm_for_euclid_dist",
    )
    distances = distances.transpose(1, 2).reshape(batch, -1, height, width)
    return distances.square() if squared else distances


def log_similarity(distances: Tensor) -> Tensor:
    """ProtoPNet's similarity log((d + 1) / (d + 1e-4)) of distances d, any shape."""
    return torch.log((distances + 1.0) / (distances + LOG_EPSILON))


def _safe_norm(x: Tensor, dim: int) -> Tensor:
    norm = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return torch.where(norm > SMALLEST_NORM, norm, torch.inf)
