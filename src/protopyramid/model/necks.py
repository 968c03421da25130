"""Necks: from backbone maps to the vectors that prototypes are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

COARSEST = 5
Padding = Literal["zeros", "replicate"]


class Pyramid(nn.Module):
    """The paper's top-down pathway (equation 1).

    z5 = Conv1x1(c5);  z_l = Conv3x3(Up(z_{l+1}) + Conv1x1(c_l)), l = 4, 3, 2.
    It recurses on z *after* the 3x3, and z5 has no 3x3: an off-the-shelf FPN is not this. Levels finer
    than `finest` are not built; coarser ones always are, since they feed it. `top_down` (ours) is a factor of
    Up(z_{l+1}): 1 in the paper; with 0 a level sees its own backbone map alone.
    """

    def __init__(
        self,
        channels: Mapping[int, int],
        dim: int,
        finest: int,
        upsample: str = "nearest",
        padding: Padding = "zeros",
        batch_norm: bool = False,
        top_down: float = 1.0,
    ) -> None:
        super().__init__()
        self.upsample = upsample
        self.top_down = top_down
        self.inputs = tuple(range(finest, COARSEST + 1))
        self.lateral = nn.ModuleDict(
            {str(level): _convolution(channels[level], dim, 1) for level in self.inputs}
        )
        self.smooth = nn.ModuleDict(
            {
                str(level): _convolution(dim, dim, 3, padding)
                for level in self.inputs
                if level < COARSEST
            }
        )
        # Not affine: a bias could bring back a direction that all patches share.
        self.norm = nn.ModuleDict(
            {
                str(level): nn.BatchNorm2d(dim, affine=False) if batch_norm else nn.Identity()
                for level in self.inputs
            }
        )

    def forward(self, maps: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """{level: c (B, channels, H, W)} -> {level: z (B, d, H, W)}, same sizes."""
        top = str(COARSEST)
        z = {COARSEST: self.norm[top](self.lateral[top](maps[COARSEST]))}
        for level in reversed(self.inputs[:-1]):
            lateral = self.lateral[str(level)](maps[level])
            joined = self._joined(z[level + 1], lateral)
            z[level] = self.norm[str(level)](self.smooth[str(level)](joined))
        return {level: z[level] for level in self.inputs}

    def last_convolution(self, level: int) -> nn.Conv2d:
        """The convolution whose output is z of a level."""
        layers = self.lateral if level == COARSEST else self.smooth
        convolution = layers[str(level)]
        assert isinstance(convolution, nn.Conv2d)
        return convolution

    def _joined(self, coarser: Tensor, lateral: Tensor) -> Tensor:
        """What a level gets from the coarser one (B, d, h, w) and from its own map (B, d, H, W), added."""
        if self.top_down == 0:
            return lateral
        passed = self._up(coarser, lateral)
        return (passed if self.top_down == 1 else self.top_down * passed) + lateral

    def _up(self, z: Tensor, like: Tensor) -> Tensor:
        """z (B, d, h, w) resized to `like` (B, d, H, W)."""
        if z.shape[-2:] == like.shape[-2:]:
            return z
        if self.upsample == "nearest":
            return F.interpolate(z, size=like.shape[-2:], mode="nearest")
        return F.interpolate(z, size=like.shape[-2:], mode="bilinear", align_corners=False)


class AddOn(nn.Module):
    """ProtoPNet's and IAIA-BL's add-on: Conv1x1, ReLU, Conv1x1, sigmoid, on level 5 alone."""

    inputs = (COARSEST,)

    def __init__(self, channels: Mapping[int, int], dim: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _convolution(channels[COARSEST], dim, 1),
            nn.ReLU(inplace=True),
            _convolution(dim, dim, 1),
            nn.Sigmoid(),
        )

    def forward(self, maps: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """{5: c5 (B, channels, H, W)} -> {5: z (B, d, H, W)}, values in (0, 1)."""
        return {COARSEST: self.layers(maps[COARSEST])}


class NoNeck(nn.Module):
    """The black box's: level 5 of the backbone, unchanged."""

    inputs = (COARSEST,)

    def forward(self, maps: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """{5: c5 (B, channels, H, W)} -> {5: c5}."""
        return {COARSEST: maps[COARSEST]}


Neck = Pyramid | AddOn | NoNeck


def _convolution(inputs: int, outputs: int, size: int, padding: Padding = "zeros") -> nn.Conv2d:
    """A convolution that keeps the size. (B, inputs, H, W) -> (B, outputs, H, W)."""
    convolution = nn.Conv2d(inputs, outputs, size, padding=size // 2, padding_mode=padding)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    nn.init.zeros_(torch.as_tensor(convolution.bias))
    return convolution
