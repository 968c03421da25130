"""The numbers of an architecture are those of a forward pass."""

import pytest
import torch

from protopyramid.config import load_config
from protopyramid.config.schema import prototype_counts
from protopyramid.model.architecture import describe
from protopyramid.model.build import build_model

SMALL = {"data.image_size": 96, "model.backbone.width": 0.0625}
SYSTEMS = ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"]


@pytest.mark.parametrize("preset", SYSTEMS)
def test_every_number_is_that_of_a_forward_pass(preset):
    config = load_config(preset, SMALL)
    model = build_model(config).eval()
    found = describe(model, 96)
    images = torch.rand(1, 3, 96, 96)
    with torch.no_grad():
        maps, z, evidence = model.backbone(images), model.pyramid(images), model(images)
    assert found.image == (96, 96, 3)
    for each in found.levels:
        _, channels, height, width = maps[each.level].shape
        assert each.c == (height, width, channels)
        if preset != "vgg16" and each.level in z:
            _, channels, height, width = z[each.level].shape
            assert each.z == (height, width, channels)
        else:
            assert each.z is None
        shown = evidence.maps.get(each.level)
        assert sum(each.prototypes) == (0 if shown is None else shown.shape[1])
    assert found.scores == evidence.scores.shape[1]
    assert found.layers[-1][1] == evidence.logits.shape[1]
    assert found.layers[0][0] == evidence.scores.shape[1]
    assert found.parameters == sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize("preset", SYSTEMS[:3])
def test_prototypes_and_pooling_are_those_of_the_configuration(preset):
    config = load_config(preset, SMALL)
    found = describe(build_model(config), 96)
    counts = prototype_counts(config)
    for each in found.levels:
        expected = tuple(counts[name].get(each.level, 0) for name in config.data.classes)
        assert each.prototypes == expected
        if sum(expected):
            cells = each.z[0] * each.z[1]
            wanted = {"fpn-iaia-bl": 9, "iaia-bl": 9, "protopnet": 1}[preset]
            assert each.pooled == min(wanted, cells)
        else:
            assert each.pooled is None
    assert found.prototypes == found.scores
    assert found.pooling == config.model.pooling.kind
    assert found.neck == config.model.neck.kind
    assert not found.normalised
    pyramid = load_config("fpn-iaia-bl", {**SMALL, "model.neck.batch_norm": True})
    assert describe(build_model(pyramid), 96).normalised


def test_a_fraction_is_counted_in_patches_and_levels_without_prototypes_are_told_apart():
    counts = {"model.prototypes.counts": {"3": 2}, "model.prototypes.negative_counts": {"3": 1}}
    config = load_config("fpn-iaia-bl", {**SMALL, **counts, "model.pooling.k": 0.25})
    by_level = {each.level: each for each in describe(build_model(config), 96).levels}
    assert by_level[3].pooled == 36 and by_level[3].prototypes == (2, 2, 2, 1)
    assert by_level[2].z is None  # finer than any prototype: not computed
    assert by_level[5].z == (6, 6, 128) and by_level[5].pooled is None


def test_describing_leaves_the_model_as_it_was():
    model = build_model(load_config("fpn-iaia-bl", {**SMALL, "model.backbone.batch_norm": True}))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    describe(model.train(), 96)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
