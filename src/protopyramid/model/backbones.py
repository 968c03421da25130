"""Backbones: convolutional networks that give one map per level, and can be cut between blocks.

A backbone is a chain of blocks 1 … n. The output of block b is called map b; the maps of levels 2 to 5
feed the neck. Because `advance` can start at any map, the same code runs the whole network, its frozen
beginning (whose maps are cached) or its learning end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from protopyramid.config.schema import BackboneConfig
from protopyramid.errors import UserError

# VGG-16, configuration D: output channels of the convolutions of each block; a max-pool ends each block
# but the last, whose pool the paper leaves out so that the coarsest map is 14 x 14 at 224 px.
VGG16_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
LEVELS = (2, 3, 4, 5)
Padding = Literal["zeros", "replicate"]
IMAGE = 0  # key of the image itself among the maps


class Backbone(nn.Module, ABC):
    """A network in blocks: `channels` and `strides` by level, `cuts` where it may be cut."""

    channels: dict[int, int]
    strides: dict[int, int]
    cuts: tuple[int, ...]

    @abstractmethod
    def advance(self, maps: Mapping[int, Tensor], keep: Iterable[int]) -> dict[int, Tensor]:
        """Run the blocks after the last of `maps` and return the maps named in `keep`.

        `maps`: {block: (B, channels, H, W)}, with the image under 0. Maps in `keep` that are given
        are passed on; the run ends with the last block that `keep` names.
        """

    @abstractmethod
    def block(self, number: int) -> nn.Module:
        """The module of one block, for freezing and learning rates."""

    def forward(self, images: Tensor, levels: Sequence[int] = LEVELS) -> dict[int, Tensor]:
        """Maps of the levels. images (B, 3, H, W) -> {level: (B, channels, H / stride, W / stride)}."""
        return self.advance({IMAGE: images}, levels)


class VGG16(Backbone):
    """VGG-16 without the last max-pool; parameters are named `features.N` as torchvision names them.

    >>> {level: tuple(m.shape) for level, m in VGG16(width=0.125)(torch.zeros(1, 3, 32, 32)).items()}
    {2: (1, 16, 8, 8), 3: (1, 32, 4, 4), 4: (1, 64, 2, 2), 5: (1, 64, 2, 2)}
    """

    def __init__(
        self, width: float = 1.0, batch_norm: bool = False, padding: Padding = "zeros"
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        self._ends: list[int] = []
        self.channels, self.strides = {}, {}
        inputs = 3
        for number, block in enumerate(VGG16_BLOCKS, start=1):
            for outputs in (max(1, round(full * width)) for full in block):
                layers.extend(_convolution(inputs, outputs, batch_norm, padding))
                inputs = outputs
            if number < len(VGG16_BLOCKS):
                layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            self._ends.append(len(layers))
            if number in LEVELS:
                self.channels[number] = inputs
                self.strides[number] = 2 ** min(number, len(VGG16_BLOCKS) - 1)
        self.features = nn.Sequential(*layers)
        self.cuts = tuple(range(len(VGG16_BLOCKS) + 1))

    def block(self, number: int) -> nn.Sequential:
        """The layers of block `number` (1 to 5), pool included."""
        first = 0 if number == 1 else self._ends[number - 2]
        return nn.Sequential(*list(self.features)[first : self._ends[number - 1]])

    def advance(self, maps: Mapping[int, Tensor], keep: Iterable[int]) -> dict[int, Tensor]:
        wanted = set(keep)
        kept = {number: maps[number] for number in maps if number in wanted}
        last = max(maps)
        x = maps[last]
        for number in range(last + 1, max(wanted, default=0) + 1):
            x = self.block(number)(x)
            if number in wanted:
                kept[number] = x
        return kept


class TimmBackbone(Backbone):
    """Any timm network with at least four feature levels; its last four are levels 2 to 5.

    It can be frozen as a whole (cut 5) or not at all (cut 0).
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        try:
            import timm
        except ImportError as error:
            raise UserError(
                f'model.backbone.name "timm:{name}" needs the timm library; '
                "install protopyramid[backbones]"
            ) from error
        try:
            self.features = timm.create_model(name, pretrained=False, features_only=True)
        except RuntimeError as error:
            raise UserError(
                f'model.backbone.name: timm has no network "{name}" ({error})'
            ) from error
        channels = self.features.feature_info.channels()
        if len(channels) < len(LEVELS):
            raise UserError(
                f'model.backbone.name: "{name}" has {len(channels)} feature levels, '
                f"expected at least {len(LEVELS)}"
            )
        self.channels = dict(zip(LEVELS, channels[-4:], strict=True))
        self.strides = dict(zip(LEVELS, self.features.feature_info.reduction()[-4:], strict=True))
        self.cuts = (0, LEVELS[-1])

    def block(self, number: int) -> nn.Module:
        """The whole network: timm's networks are not cut between blocks."""
        module: nn.Module = self.features
        return module

    def advance(self, maps: Mapping[int, Tensor], keep: Iterable[int]) -> dict[int, Tensor]:
        wanted = set(keep)
        if set(maps) == {IMAGE}:
            maps = dict(zip(LEVELS, self.features(maps[IMAGE])[-4:], strict=True))
        return {level: maps[level] for level in LEVELS if level in wanted}


def build_backbone(config: BackboneConfig) -> Backbone:
    """The backbone of a configuration, with random weights."""
    if config.name == "vgg16":
        return VGG16(config.width, config.batch_norm, config.padding)
    library, _, name = config.name.partition(":")
    if library == "timm" and name:
        return TimmBackbone(name)
    raise UserError(f'model.backbone.name: expected "vgg16" or "timm:NAME", got "{config.name}"')


def _convolution(inputs: int, outputs: int, batch_norm: bool, padding: Padding) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, padding_mode=padding)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    nn.init.zeros_(torch.as_tensor(convolution.bias))
    norm: list[nn.Module] = [nn.BatchNorm2d(outputs)] if batch_norm else []
    return [convolution, *norm, nn.ReLU(inplace=True)]
