"""The network of every system, composed from the parts that it is given: backbone, neck, prototypes, head.

    z = neck(backbone(x));  maps = similarity(z, p);  scores = pooling(maps);  logits = W scores

With test-time augmentation, maps and scores are means over the copies of an image, and the logits are W
times the mean scores.
FPN-IAIA-BL, IAIA-BL, ProtoPNet and the VGG-16 black box differ in their parts alone; `model.build` makes
the parts of a configuration.
Paper: Yang et al., "FPN-IAIA-BL: A Multi-Scale Interpretable Deep Learning Model for Classification of
Mass Margins in Digital Mammography", CVPR workshops 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from protopyramid.errors import UserError
from protopyramid.model.backbones import IMAGE, Backbone
from protopyramid.model.head import HiddenLayers
from protopyramid.model.necks import COARSEST, Neck
from protopyramid.model.pooling import ChannelPooling, channel_score_count, channel_scores
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.model.tta import tta_transforms
from protopyramid.utils.arguments import check_tensor


class Evidence(NamedTuple):
    """What the network says about a batch, and why.

    logits (B, C); scores (B, m); maps {level: (B, m_level, H, W)}; closeness (B, m), the quantity
    that the cluster and separation losses act on. Without prototypes, scores are the pooled channels,
    maps are {} and closeness is empty, (B, 0).
    """

    logits: Tensor
    scores: Tensor
    maps: dict[int, Tensor]
    closeness: Tensor


class PrototypeNetwork(nn.Module):
    """Backbone, neck, prototypes and head as one module; it knows nothing of training or files.

    Without prototypes (the black box), the scores are the means of the channels of level 5, or what
    `channels` makes of them, and there may be `hidden` layers between scores and head.

    >>> from protopyramid.model.backbones import VGG16
    >>> from protopyramid.model.head import linear_head
    >>> from protopyramid.model.necks import AddOn
    >>> backbone = VGG16(width=0.125)
    >>> prototypes = PrototypeLayer(classes=[0, 1], levels=[5, 5], dim=8)
    >>> model = PrototypeNetwork(backbone, AddOn(backbone.channels, 8), prototypes, linear_head(2, 2))
    >>> tuple(model(torch.zeros(1, 3, 32, 32)).maps[5].shape)
    (1, 2, 2, 2)
    """

    def __init__(
        self,
        backbone: Backbone,
        neck: Neck,
        prototypes: PrototypeLayer | None,
        head: nn.Linear,
        tta: int = 1,
        channels: ChannelPooling = "average",
        hidden: HiddenLayers | None = None,
    ) -> None:
        """`head` maps as many scores as there are prototypes (or channels of level 5) to C logits.

        `tta`: copies of an image (1, 4 or 8) that a prediction is the mean of. `channels`, `hidden`: of
        the black box.
        """
        super().__init__()
        expected = channel_score_count(backbone.channels[COARSEST], channels)
        if prototypes is not None:
            expected = len(prototypes.vectors)
        first = head.in_features if hidden is None else hidden.inputs
        if first != expected:
            raise ValueError(f"expected a head of {expected} scores, got one of {first}")
        self.tta, self.channels = tta, channels
        self.backbone = backbone
        self.neck = neck
        self.prototypes = prototypes
        self.hidden = hidden
        self.head = head

    @property
    def score_count(self) -> int:
        """The number m of scores of an image."""
        return self.head.in_features if self.hidden is None else self.hidden.inputs

    def logits_of(self, scores: Tensor) -> Tensor:
        """What the head makes of scores. (B, m) -> (B, C)."""
        logits: Tensor = self.head(scores if self.hidden is None else self.hidden(scores))
        return logits

    def forward(self, images: Tensor) -> Evidence:
        """Evidence of normalised images (B, 3, H, W), the mean over `tta` copies.

        H and W are multiples of the backbone's `size_multiple`: 16, or 32 with VGG-16's last pool.
        """
        if self.tta == 1:
            return self.forward_once(images)
        return self._mean_over_copies(images)

    def forward_once(self, images: Tensor) -> Evidence:
        """Evidence of normalised images (B, 3, H, W) without test-time augmentation, as in training."""
        return self.evidence_from_pyramid(self.pyramid(images))

    def _mean_over_copies(self, images: Tensor) -> Evidence:
        """A linear head takes the mean scores, so that their contributions still add up to the logits.

        With hidden layers, the mean is that of the logits.
        """
        found = []
        for transform, undo in tta_transforms(self.tta):
            copies = transform(images).contiguous(memory_format=torch.channels_last)
            seen = self.forward_once(copies)
            maps = {level: undo(each) for level, each in seen.maps.items()}
            found.append(Evidence(seen.logits, seen.scores, maps, seen.closeness))
        scores = _mean([each.scores for each in found])
        maps = {level: _mean([each.maps[level] for each in found]) for level in found[0].maps}
        logits = (
            self.head(scores) if self.hidden is None else _mean([each.logits for each in found])
        )
        return Evidence(logits, scores, maps, _mean([each.closeness for each in found]))

    def pyramid(self, images: Tensor) -> dict[int, Tensor]:
        """The maps z of the neck. (B, 3, H, W) -> {level: (B, d, H / stride, W / stride)}."""
        _check_size(images, self.backbone.size_multiple)
        if images.dtype == torch.float64 and self.head.weight.dtype != torch.float64:
            raise TypeError(f"images: expected {self.head.weight.dtype} values, got {images.dtype}")
        return self.pyramid_from_maps({IMAGE: images})

    def pyramid_from_maps(self, maps: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The maps z from backbone maps at any cut.

        {block: (B, channels, H, W)} -> {level: (B, d, H, W)}.
        """
        z: dict[int, Tensor] = self.neck(self.backbone.advance(maps, self.neck.inputs))
        return z

    def evidence_from_pyramid(self, z: Mapping[int, Tensor]) -> Evidence:
        """Evidence of the maps z {level: (B, d, H, W)}."""
        if self.prototypes is None:
            scores = channel_scores(z[COARSEST], self.channels)
            return Evidence(self.logits_of(scores), scores, {}, scores[:, :0])
        scores, closeness, maps = self.prototypes(z)
        return Evidence(self.head(scores), scores, maps, closeness)


def _mean(parts: list[Tensor]) -> Tensor:
    """The mean of tensors of one shape. n times (...) -> (...)."""
    return torch.stack(parts).mean(0)


def _check_size(images: Tensor, multiple: int) -> None:
    check_tensor(images, "images", "(B, 3, H, W)", 4)
    if images.shape[1] != 3 or not images.is_floating_point():
        raise TypeError(
            f"images: expected float values (B, 3, H, W), got {images.dtype} of {tuple(images.shape)}"
        )
    height, width = images.shape[-2:]
    if height % multiple or width % multiple:
        raise UserError(
            f"images: expected height and width in multiples of {multiple}, got {height} x {width}; "
            "resize or pad them, or set data.image_size"
        )
