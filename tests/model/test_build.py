"""The builder: a configuration's parts, in the order in which they draw their random numbers."""

import pytest
import torch

from protopyramid.config import load_config
from protopyramid.model import PrototypeNetwork, build_model
from protopyramid.model.backbones import VGG16
from protopyramid.model.build import prototype_places
from protopyramid.model.head import initial_weights, linear_head
from protopyramid.model.necks import AddOn, NoNeck, Pyramid
from protopyramid.model.pooling import Pooling
from protopyramid.model.prototypes import PrototypeLayer, classes_and_levels
from protopyramid.model.similarity import Similarity

WIDTH = 0.0625
MARGINS = {number: {2: 3, 3: 3, 4: 3, 5: 3} for number in range(3)}


def fpn() -> PrototypeNetwork:
    backbone = VGG16(WIDTH)
    neck = Pyramid(backbone.channels, 128, finest=2)
    layer = PrototypeLayer(*classes_and_levels({**MARGINS, 3: {2: 1, 3: 1, 4: 1, 5: 1}}), 128)
    head = linear_head(40, 4, initial_weights(layer.classes, 4))
    return PrototypeNetwork(backbone, neck, layer, head)


def protopnet() -> PrototypeNetwork:
    backbone = VGG16(WIDTH, last_pool=True)
    neck = AddOn(backbone.channels, 128)
    places = classes_and_levels({number: {5: 10} for number in range(4)})
    layer = PrototypeLayer(*places, 128, Similarity("log-l2", squared=True), Pooling("max"))
    head = linear_head(40, 4, initial_weights(layer.classes, 4))
    return PrototypeNetwork(backbone, neck, layer, head)


def black_box() -> PrototypeNetwork:
    backbone = VGG16(WIDTH)
    head = linear_head(backbone.channels[5], 4)
    return PrototypeNetwork(backbone, NoNeck(), None, head)


@pytest.mark.parametrize(
    ("preset", "compose"), [("fpn-iaia-bl", fpn), ("protopnet", protopnet), ("vgg16", black_box)]
)
def test_a_network_composed_by_hand_is_the_presets(preset, compose):
    """The same names, the same random numbers, the same evidence."""
    torch.manual_seed(5)
    built = build_model(load_config(preset, {"model.backbone.width": WIDTH})).eval()
    torch.manual_seed(5)
    composed = compose().eval()
    ours, theirs = built.state_dict(), composed.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    images = torch.randn(2, 3, 32, 64)
    with torch.no_grad():
        a, b = built(images), composed(images)
    assert torch.equal(a.logits, b.logits)
    assert torch.equal(a.closeness, b.closeness)
    assert all(torch.equal(a.maps[level], b.maps[level]) for level in {*a.maps, *b.maps})


def test_test_time_augmentation_reaches_the_network():
    config = load_config("fpn-iaia-bl", {"model.backbone.width": WIDTH, "model.tta": 4})
    assert build_model(config).tta == 4


def test_the_black_box_has_no_prototypes_whatever_the_counts():
    config = load_config("vgg16", {"model.prototypes.counts": {5: 3}})
    assert prototype_places(config) == ([], [])


def test_a_head_of_the_wrong_size_is_refused():
    backbone = VGG16(WIDTH)
    layer = PrototypeLayer([0, 1], [5, 5], 8)
    with pytest.raises(ValueError, match="expected a head of 2 scores, got one of 3"):
        PrototypeNetwork(backbone, AddOn(backbone.channels, 8), layer, linear_head(3, 2))
    with pytest.raises(ValueError, match="expected a head of 32 scores, got one of 3"):
        PrototypeNetwork(backbone, NoNeck(), None, linear_head(3, 2))
