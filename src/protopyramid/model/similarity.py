"""Similarity maps: how alike every patch of a level is to every prototype of that level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

SimilarityKind = Literal["cosine", "log-l2"]

LOG_EPSILON = 1e-4  # ProtoPNet's constant in log((d + 1) / (d + epsilon))
SMALLEST_NORM = 1e-8  # ours: a vector shorter than this counts as zero: similarity 0, gradient 0


@dataclass(frozen=True)
class Similarity:
    """How a patch is compared with a prototype.

    `squared` is for "log-l2" alone (ProtoPNet: True, IAIA-BL: False), `relu` for "cosine" alone.
    """

    kind: SimilarityKind = "cosine"
    squared: bool = False
    relu: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("cosine", "log-l2"):
            raise ValueError(f'expected similarity "cosine" or "log-l2", got "{self.kind}"')

    def maps(self, z: Tensor, vectors: Tensor) -> Tensor:
        """Similarity of each patch with each prototype. z (B, d, H, W), vectors (m, d) -> (B, m, H, W)."""
        if self.kind == "cosine":
            return cosine_maps(z, vectors, self.relu)
        return log_similarity(l2_maps(z, vectors, self.squared))


def cosine_maps(z: Tensor, vectors: Tensor, relu: bool = False) -> Tensor:
    """Cosine similarity of each patch with each prototype (equation 2).

    z (B, d, H, W), vectors (m, d) -> (B, m, H, W) in [-1, 1]. Computed as conv1x1(z, p / |p|) / |z|, so
    that no normalised copy of z is made. A zero patch has similarity 0 and a zero gradient.

    >>> cosine_maps(torch.tensor([3.0, 4.0]).view(1, 2, 1, 1), torch.tensor([[1.0, 0.0]])).item()
    0.6000000238418579
    """
    unit = vectors / _safe_norm(vectors, dim=1)
    # Under autocast and in compilers, torch's own gradient knows better about types and fusion.
    ours = z.requires_grad and z.dtype == unit.dtype and not torch.compiler.is_compiling()
    if ours and not torch.is_autocast_enabled(z.device.type):
        maps: Tensor = CosineMaps.apply(z, unit)  # type: ignore[no-untyped-call]
    else:
        maps, _ = _cosine_of_units(z, unit)
    return maps.relu() if relu else maps


class CosineMaps(torch.autograd.Function):
    """Cosine maps with a hand-written gradient.

    z (B, d, H, W), unit vectors (m, d) -> (B, m, H, W). With G = gradient / |z|,

        dz = G u - z (sum_j G_j s_j) / |z|,   du = G z,

    two matrix products and one pass over z; the chain of division, norm and safe zero takes seven passes.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, unit: Tensor) -> Tensor:
        maps, norm = _cosine_of_units(z, unit)
        ctx.save_for_backward(z, unit, maps, norm)
        return maps

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        z, unit, maps, norm = ctx.saved_tensors
        scaled = gradient / norm
        radial = (scaled * maps).sum(1, keepdim=True) / norm
        rows, units = scaled.flatten(2), unit.expand(len(z), -1, -1)
        # The product is laid out as z is, so that neither the sum nor the convolution before it copies.
        if z.is_contiguous(memory_format=torch.channels_last):
            along = torch.bmm(rows.transpose(1, 2), units).transpose(1, 2)
        else:
            along = torch.bmm(units.transpose(1, 2), rows)
        for_z = along.view(z.shape).addcmul_(z, radial, value=-1.0)
        for_unit = None
        if ctx.needs_input_grad[1]:
            for_unit = torch.bmm(rows, z.flatten(2).transpose(1, 2)).sum(0)
        return for_z, for_unit


def _cosine_of_units(z: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine maps (B, m, H, W) for unit vectors (m, d), and |z| (B, 1, H, W), infinite where z is 0."""
    norm = _safe_norm(z, dim=1)
    products = F.conv2d(z, unit[:, :, None, None])
    if torch.is_grad_enabled() or products.dtype != norm.dtype:
        return (products / norm).clamp(-1.0, 1.0), norm
    # In place: with many prototypes, copies cost as much as products.
    return products.div_(norm).clamp_(-1.0, 1.0), norm


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
    """ProtoPNet's similarity log((d + 1) / (d + 1e-4)) of distances d. (...) -> (...)."""
    return torch.log((distances + 1.0) / (distances + LOG_EPSILON))


def _safe_norm(x: Tensor, dim: int) -> Tensor:
    """L2 norms along `dim`, kept as an axis of length 1; infinite where x is zero."""
    norm = torch.linalg.vector_norm(x, dim=dim, keepdim=True)
    return torch.where(norm > SMALLEST_NORM, norm, torch.inf)
