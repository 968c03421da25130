"""From a configuration to a network: the one place where the model meets the config."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from protopyramid.config.schema import (
    BackboneConfig,
    Config,
    HeadConfig,
    ModelConfig,
    NeckConfig,
    prototype_counts,
)
from protopyramid.errors import UserError
from protopyramid.model.backbones import VGG16, Backbone, TimmBackbone
from protopyramid.model.head import HiddenLayers, initial_weights, linear_head
from protopyramid.model.necks import COARSEST, AddOn, Neck, NoNeck, Pyramid
from protopyramid.model.network import PrototypeNetwork
from protopyramid.model.pooling import ChannelPooling, Pooling, channel_score_count
from protopyramid.model.prototypes import PrototypeLayer, classes_and_levels
from protopyramid.model.similarity import Similarity
from protopyramid.utils.arguments import checked_type


def build_model(config: Config) -> PrototypeNetwork:
    """The network of a configuration, with random weights; reads and downloads nothing.

    >>> from protopyramid.config import load_config
    >>> model = build_model(load_config("vgg16", {"model.backbone.width": 0.125}))
    >>> model.prototypes is None
    True
    """
    checked_type(config, Config, "config", "a Config, as load_config gives it")
    # Backbone, neck, prototypes, head: the order in which they draw their random numbers.
    backbone = build_backbone(config.model.backbone)
    classes, levels = prototype_places(config)
    finest = min(levels, default=COARSEST)
    neck = build_neck(config.model.neck, backbone.channels, finest)
    outputs = len(config.data.classes)
    if not classes:
        return _black_box(config.model, backbone, neck, outputs)
    prototypes = build_prototypes(config, classes, levels)
    weights = initial_head_weights(prototypes.classes, outputs, config.model.head)
    head = linear_head(len(classes), outputs, weights)
    return PrototypeNetwork(backbone, neck, prototypes, head, config.model.tta)


def _black_box(
    config: ModelConfig, backbone: Backbone, neck: Neck, outputs: int
) -> PrototypeNetwork:
    """The network without prototypes: pooled channels, hidden layers where asked for, linear head."""
    channels: ChannelPooling = "flatten" if config.pooling.kind == "flatten" else "average"
    inputs = channel_score_count(backbone.channels[COARSEST], channels)
    if not config.head.hidden:
        head = linear_head(inputs, outputs)
        return PrototypeNetwork(backbone, neck, None, head, config.tta, channels)
    hidden = HiddenLayers(inputs, config.head.hidden, config.head.dropout)
    head = linear_head(hidden.outputs, outputs, bias=True)
    return PrototypeNetwork(backbone, neck, None, head, config.tta, channels, hidden)


def build_backbone(config: BackboneConfig) -> Backbone:
    """The backbone of a configuration, with random weights."""
    if config.name == "vgg16":
        return VGG16(config.width, config.batch_norm, config.padding, config.last_pool)
    library, _, name = config.name.partition(":")
    if library == "timm" and name:
        return TimmBackbone(name)
    raise UserError(f'model.backbone.name: expected "vgg16" or "timm:NAME", got "{config.name}"')


def build_neck(config: NeckConfig, channels: Mapping[int, int], finest: int) -> Neck:
    """The neck for a backbone's channels {level: channels}, down to the finest level with prototypes."""
    if config.kind == "pyramid":
        return Pyramid(
            channels,
            config.dim,
            finest,
            config.upsample,
            config.padding,
            config.batch_norm,
            config.top_down,
        )
    if config.kind == "add-on":
        return AddOn(channels, config.dim)
    return NoNeck()


def prototype_places(config: Config) -> tuple[list[int], list[int]]:
    """The class and the level of each prototype, m each; none for the black box."""
    if config.model.neck.kind == "none":
        return [], []
    names = config.data.classes
    counts = prototype_counts(config)
    return classes_and_levels({names.index(name): counts[name] for name in counts})


def build_prototypes(config: Config, classes: list[int], levels: list[int]) -> PrototypeLayer:
    """Random prototypes of these classes and levels, m each, compared and pooled as configured."""
    similarity, pooling = config.model.similarity, config.model.pooling
    assert pooling.kind != "flatten"  # refused by the configuration
    return PrototypeLayer(
        classes,
        levels,
        config.model.neck.dim,
        Similarity(similarity.kind, similarity.squared, similarity.relu),
        Pooling(pooling.kind, pooling.k),
    )


def initial_head_weights(classes: Tensor, number_of_classes: int, config: HeadConfig) -> Tensor:
    """The weights (C, m) that the head of prototypes with these classes (m,) starts with."""
    return initial_weights(classes, number_of_classes, config.own, config.other, config.scale)
