"""The network of every system: backbone, neck, prototypes, head.

    z = neck(backbone(x));  maps = similarity(z, p);  scores = pooling(maps);  logits = W scores

With test-time augmentation, maps and scores are means over the copies; logits are W times the mean scores.
FPN-IAIA-BL, IAIA-BL, ProtoPNet and the VGG-16 black box differ in their configuration alone.
Paper: Yang et al., "FPN-IAIA-BL: A Multi-Scale Interpretable Deep Learning Model for Classification of
Mass Margins in Digital Mammography", CVPR workshops 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from protopyramid.config.schema import SIZE_MULTIPLE, Config, prototype_counts
from protopyramid.errors import UserError
from protopyramid.model.backbones import IMAGE, build_backbone
from protopyramid.model.head import build_head
from protopyramid.model.necks import COARSEST, build_neck
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.model.tta import tta_transforms


class Evidence(NamedTuple):
    """What the network says of a batch, and why.

    logits (B, C); scores (B, m); maps {level: (B, m_level, H, W)}; closeness (B, m), the quantity
    that the cluster and separation losses act on. Without prototypes, scores are the pooled channels,
    maps are {} and closeness is empty, (B, 0).
    """

    logits: Tensor
    scores: Tensor
    maps: dict[int, Tensor]
    closeness: Tensor


class PrototypeNetwork(nn.Module):
    """Backbone, neck, prototypes and head as one module; it knows nothing of training or files."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tta = config.model.tta
        self.backbone = build_backbone(config.model.backbone)
        classes = config.data.classes
        counts = prototype_counts(config)
        levels = [COARSEST]
        if config.model.neck.kind != "none":
            levels = sorted({lv for by_level in counts.values() for lv, n in by_level.items() if n})
        self.neck = build_neck(config.model.neck, self.backbone.channels, levels)
        self.prototypes: PrototypeLayer | None = None
        inputs = self.backbone.channels[COARSEST]
        if config.model.neck.kind != "none":
            by_number = {classes.index(name): by_level for name, by_level in counts.items()}
            self.prototypes = PrototypeLayer(
                by_number, config.model.neck.dim, config.model.similarity, config.model.pooling
            )
            inputs = len(self.prototypes.vectors)
        owners = None if self.prototypes is None else self.prototypes.classes
        self.head = build_head(owners, inputs, len(classes), config.model.head)

    def forward(self, images: Tensor) -> Evidence:
        """Evidence of normalised images (B, 3, H, W), averaged over `model.tta` copies; 16 divides H, W."""
        if self.tta == 1:
            return self.forward_once(images)
        return self._mean_over_copies(images)

    def forward_once(self, images: Tensor) -> Evidence:
        """Evidence of normalised images (B, 3, H, W) without test-time augmentation, as in training."""
        return self.evidence_from_pyramid(self.pyramid(images))

    def _mean_over_copies(self, images: Tensor) -> Evidence:
        """The head is linear, so contributions of mean scores still add up to the logits."""
        found = []
        for transform, undo in tta_transforms(self.tta):
            seen = self.forward_once(
                transform(images).contiguous(memory_format=torch.channels_last)
            )
            maps = {level: undo(each) for level, each in seen.maps.items()}
            found.append(Evidence(seen.logits, seen.scores, maps, seen.closeness))
        scores = _mean([each.scores for each in found])
        maps = {level: _mean([each.maps[level] for each in found]) for level in found[0].maps}
        return Evidence(self.head(scores), scores, maps, _mean([each.closeness for each in found]))

    def pyramid(self, images: Tensor) -> dict[int, Tensor]:
        """The maps z of the neck. (B, 3, H, W) -> {level: (B, d, H / stride, W / stride)}."""
        _check_size(images)
        return self.pyramid_from_maps({IMAGE: images})

    def pyramid_from_maps(self, maps: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The maps z, going on from backbone maps {block: (B, channels, H, W)} at any cut."""
        z: dict[int, Tensor] = self.neck(self.backbone.advance(maps, self.neck.inputs))
        return z

    def evidence_from_pyramid(self, z: Mapping[int, Tensor]) -> Evidence:
        """Evidence of the maps z {level: (B, d, H, W)}."""
        if self.prototypes is None:
            scores = z[COARSEST].mean((-2, -1))
            return Evidence(self.head(scores), scores, {}, scores[:, :0])
        scores, closeness, maps = self.prototypes(z)
        return Evidence(self.head(scores), scores, maps, closeness)


def build_model(config: Config) -> PrototypeNetwork:
    """The network of a configuration, with random weights; reads and downloads nothing.

    >>> from protopyramid.config import load_config
    >>> model = build_model(load_config("vgg16", {"model.backbone.width": 0.125}))
    >>> model.prototypes is None
    True
    """
    return PrototypeNetwork(config)


def _mean(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).mean(0)


def _check_size(images: Tensor) -> None:
    height, width = images.shape[-2:]
    if height % SIZE_MULTIPLE or width % SIZE_MULTIPLE:
        raise UserError(
            f"images: expected height and width in multiples of {SIZE_MULTIPLE}, got {height} x {width}; "
            "resize or pad them, or set data.image_size"
        )
