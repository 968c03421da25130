"""Centring of the initial pyramid: channels of mean 0 and variance 1 on the training images.

A pyramid with random weights has one direction common to all patches. It dominates z, every cosine is
near 1, and neither prototypes nor losses can tell patches apart. Rescaling the last convolution of each
level removes it. This changes where training starts, not what the model can express.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from protopyramid.model.necks import Pyramid

SMALLEST_VARIANCE = 1e-12  # of a channel's mean square; below it the channel is constant
Moments = tuple[int, Tensor, Tensor]


class ChannelMoments:
    """Number, sum and sum of squares of the channels of one level over all patches, in float64."""

    def __init__(self, level: int, dim: int) -> None:
        self.level = level
        self.count = 0
        self.total = torch.zeros(dim, dtype=torch.float64)
        self.squares = torch.zeros(dim, dtype=torch.float64)

    def update(self, z: Mapping[int, Tensor]) -> None:
        """Add the patches of z {level: (B, d, H, W)}."""
        patches = z[self.level].detach().double().transpose(0, 1).flatten(1).cpu()
        self.count += patches.shape[1]
        self.total += patches.sum(1)
        self.squares += patches.square().sum(1)

    def result(self) -> Moments:
        """Count, sum (d,) and sum of squares (d,); those of several processes can be added."""
        return self.count, self.total, self.squares


@torch.no_grad()
def centre_level(neck: Pyramid, level: int, parts: Sequence[Moments]) -> None:
    """Rescale the convolution that gives z of a level: each channel gets mean 0 and variance 1."""
    count = sum(part[0] for part in parts)
    mean = torch.stack([part[1] for part in parts]).sum(0) / count
    square = torch.stack([part[2] for part in parts]).sum(0) / count
    variance = square - mean.square()
    convolution = neck.last_convolution(level)
    assert convolution.bias is not None
    weight, bias = convolution.weight.double(), convolution.bias.double()
    # A constant channel is only shifted: scaling it would magnify whatever other images bring.
    varies = variance > SMALLEST_VARIANCE * square
    scale = torch.where(varies, variance, 1.0).rsqrt().to(weight.device)
    convolution.weight.copy_(weight * scale[:, None, None, None])
    convolution.bias.copy_((bias - mean.to(weight.device)) * scale)
