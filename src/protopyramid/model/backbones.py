"""Backbones: convolutional networks that give one map per level, and can be cut between blocks.

A backbone is a chain of blocks 1 … n. The output of block b is called map b; the maps of levels 2 to 5
feed the neck. Because `advance` can start at any map, the same code runs the whole network, its frozen
first blocks (whose maps are cached) or the blocks that learn.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from protopyramid.errors import UserError
from protopyramid.model.weights import VGG16_IMAGENET, Published
from protopyramid.utils.downloads import first_line

# VGG-16, configuration D (Simonyan and Zisserman 2015): output channels of the convolutions of each
# block. A max-pool ends each block; that of the last is left out in the paper and in IAIA-BL, so that the
# coarsest map is 14 x 14 at 224 px, and kept in ProtoPNet (7 x 7).
VGG16_BLOCKS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
LEVELS = (2, 3, 4, 5)
Padding = Literal["zeros", "replicate"]
IMAGE = 0  # key of the image itself among the maps


class Backbone(nn.Module, ABC):
    """A network in blocks: `channels` and `strides` by level, `cuts` where it may be cut.

    `imagenet` names its published ImageNet weights, or is None where we know of none.
    """

    channels: dict[int, int]
    strides: dict[int, int]
    cuts: tuple[int, ...]
    imagenet: Published | None = None

    @property
    def size_multiple(self) -> int:
        """Height and width of an image must be multiples of this: the stride of level 4.

        A coarser level 5 may be of any size, since the pyramid resizes it.
        """
        return self.strides[LEVELS[-2]]

    @abstractmethod
    def advance(self, maps: Mapping[int, Tensor], keep: Iterable[int]) -> dict[int, Tensor]:
        """Run the blocks after the last of `maps` and return the maps named in `keep`.

        `maps`: {block: (B, channels, H, W)}, with the image under 0. Maps in `keep` that are given
        are passed on; the run ends with the last block that `keep` names.
        """

    @abstractmethod
    def block(self, number: int) -> nn.Module:
        """The module of one block, for freezing and learning rates."""

    def layers(self, level: int) -> list[nn.Module] | None:
        """The chain of layers from the image to the map of a level; None where it is not one chain."""
        return None

    def forward(self, images: Tensor, levels: Sequence[int] = LEVELS) -> dict[int, Tensor]:
        """Maps of the levels. images (B, 3, H, W) -> {level: (B, channels, H / stride, W / stride)}."""
        return self.advance({IMAGE: images}, levels)


class VGG16(Backbone):
    """VGG-16, its parameters named `features.N` as torchvision names them.

    `last_pool` keeps the max-pool after the last block: the stride of level 5 is then 32, not 16.

    >>> {level: tuple(m.shape) for level, m in VGG16(width=0.125)(torch.zeros(1, 3, 32, 32)).items()}
    {2: (1, 16, 8, 8), 3: (1, 32, 4, 4), 4: (1, 64, 2, 2), 5: (1, 64, 2, 2)}
    """

    def __init__(
        self,
        width: float = 1.0,
        batch_norm: bool = False,
        padding: Padding = "zeros",
        last_pool: bool = False,
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
            if number < len(VGG16_BLOCKS) or last_pool:
                layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
            self._ends.append(len(layers))
            if number in LEVELS:
                self.channels[number] = inputs
                self.strides[number] = 2 ** (number if last_pool else min(number, 4))
        self.features = nn.Sequential(*layers)
        self.cuts = tuple(range(len(VGG16_BLOCKS) + 1))
        if width == 1.0 and not batch_norm:
            self.imagenet = VGG16_IMAGENET

    @property
    def size_multiple(self) -> int:
        """The stride of level 5: a map that cannot be halved would lose its last row and column."""
        return max(self.strides.values())

    def block(self, number: int) -> nn.Sequential:
        """The layers of block `number` (1 to 5), pool included."""
        first = 0 if number == 1 else self._ends[number - 2]
        return nn.Sequential(*list(self.features)[first : self._ends[number - 1]])

    def layers(self, level: int) -> list[nn.Module]:
        return list(self.features)[: self._ends[level - 1]]

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
        self.features = _timm_features(name)
        information = self.features.feature_info
        channels = information.channels()
        if len(channels) < len(LEVELS):
            raise UserError(
                f'model.backbone.name: "timm:{name}" has {len(channels)} feature levels, '
                f"expected at least {len(LEVELS)}; choose another network"
            )
        self.channels = dict(zip(LEVELS, channels[-4:], strict=True))
        self.strides = dict(zip(LEVELS, information.reduction()[-4:], strict=True))
        self.cuts = (0, LEVELS[-1])
        # Some networks (Swin) give their maps as (B, H, W, channels).
        self._channels_at_the_end = str(getattr(self.features, "output_fmt", "")).endswith("NHWC")

    def block(self, number: int) -> nn.Module:
        """The whole network: timm's networks are not cut between blocks."""
        module: nn.Module = self.features
        return module

    def advance(self, maps: Mapping[int, Tensor], keep: Iterable[int]) -> dict[int, Tensor]:
        wanted = set(keep)
        if set(maps) == {IMAGE}:
            maps = dict(zip(LEVELS, self._levels(maps[IMAGE]), strict=True))
        return {level: maps[level] for level in LEVELS if level in wanted}

    def _levels(self, images: Tensor) -> list[Tensor]:
        """The last four feature maps of images (B, 3, H, W), each (B, channels, h, w)."""
        found: list[Tensor] = list(self.features(images)[-4:])
        return [x.permute(0, 3, 1, 2) for x in found] if self._channels_at_the_end else found


def _timm_features(name: str) -> Any:
    """timm's network of that name with random weights, as a module that returns a list of maps."""
    timm = _import_timm(name)
    if ":" in name:  # a name on a model hub, whose settings timm would download
        raise UserError(
            f'model.backbone.name: "timm:{name}" is not the name of a network in timm itself; '
            'give one that timm.list_models() names, e.g. "timm:resnet18"'
        )
    try:
        return timm.create_model(name, pretrained=False, features_only=True)
    except RuntimeError as error:
        raise UserError(
            f'model.backbone.name: timm cannot build "{name}" as a feature network '
            f"({first_line(error)}); choose another network"
        ) from error


def _import_timm(name: str) -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise UserError(
            f'model.backbone.name "timm:{name}" needs the library "{error.name}"; '
            "install protopyramid[backbones]"
        ) from error
    except Exception as error:  # a torchvision of another build raises RuntimeError, OSError, …
        raise UserError(
            f'model.backbone.name "timm:{name}": timm is installed but cannot be imported '
            f"({first_line(error)}); its torchvision was probably built for another torch: install the "
            f'torchvision build that matches torch {torch.__version__}, or use "vgg16"'
        ) from error
    return timm


def _convolution(inputs: int, outputs: int, batch_norm: bool, padding: Padding) -> list[nn.Module]:
    """Conv3x3, batch norm where asked for, ReLU. (B, inputs, H, W) -> (B, outputs, H, W)."""
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, padding_mode=padding)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    nn.init.zeros_(torch.as_tensor(convolution.bias))
    norm: list[nn.Module] = [nn.BatchNorm2d(outputs)] if batch_norm else []
    return [convolution, *norm, nn.ReLU(inplace=True)]
