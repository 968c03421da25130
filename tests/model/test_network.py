"""The whole network: shapes, logits, presets, sizes, and what is left out when it is not needed."""

import pytest
import torch

from protopyramid.config import load_config
from protopyramid.config.schema import Config
from protopyramid.errors import UserError
from protopyramid.model import build_model

CLASSES = ["circumscribed", "indistinct", "spiculated", "negative"]
PRESETS = ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"]


def tiny(**model) -> Config:
    """A small FPN-IAIA-BL with some tables of [model] replaced."""
    return Config.model_validate(
        {"model": {"backbone": {"width": 0.0625}, "neck": {"dim": 8}, **model}}
    )


def preset(name) -> Config:
    return load_config(name, {"model.backbone.width": 0.0625})


def test_full_width_network_at_224_has_maps_of_56_28_14_14():
    model = build_model(Config()).eval()
    with torch.no_grad():
        evidence = model(torch.randn(1, 3, 224, 224))
    assert {level: tuple(x.shape) for level, x in evidence.maps.items()} == {
        2: (1, 10, 56, 56),
        3: (1, 10, 28, 28),
        4: (1, 10, 14, 14),
        5: (1, 10, 14, 14),
    }
    assert evidence.logits.shape == (1, 4)
    assert evidence.scores.shape == evidence.closeness.shape == (1, 40)
    assert model.prototypes.vectors.shape == (40, 128)


def test_default_prototypes_are_three_a_margin_class_and_one_negative_on_each_level():
    prototypes = build_model(tiny()).prototypes
    assert prototypes.levels.tolist() == [level for level in (2, 3, 4, 5) for _ in range(10)]
    assert prototypes.classes.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3] * 4


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("size", [(224, 224), (112, 80), (16, 16)])
def test_every_preset_runs_at_224_and_at_other_multiples_of_its_stride(name, size):
    pooled = name == "protopnet"  # keeps VGG-16's last pool
    size = tuple(side * 2 for side in size) if pooled else size
    model = build_model(preset(name)).eval()
    with torch.no_grad():
        evidence = model(torch.randn(1, 3, *size))
    assert evidence.logits.shape == (1, 4)
    assert torch.isfinite(evidence.logits).all()
    for level, maps in evidence.maps.items():
        stride = {2: 4, 3: 8, 4: 16, 5: 32 if pooled else 16}[level]
        assert maps.shape[-2:] == (size[0] // stride, size[1] // stride)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("size", [(225, 224), (224, 100), (8, 8), (17, 16)])
def test_other_sizes_are_refused_with_the_size_and_what_to_do(name, size):
    model = build_model(preset(name))
    stride = 32 if name == "protopnet" else 16
    with pytest.raises(
        UserError, match=rf"multiples of {stride}, got {size[0]} x {size[1]}; .*resize"
    ):
        model(torch.zeros(1, 3, *size))


@pytest.mark.parametrize(
    ("name", "levels", "prototypes"),
    [("fpn-iaia-bl", {2, 3, 4, 5}, 40), ("iaia-bl", {5}, None), ("protopnet", {5}, None)],
)
def test_presets_have_the_levels_of_their_papers(name, levels, prototypes):
    layer = build_model(preset(name)).prototypes
    assert set(layer.levels.tolist()) == levels
    assert prototypes in (None, len(layer.vectors))


@pytest.mark.parametrize("name", PRESETS)
def test_logits_are_the_head_times_the_scores_without_bias(name):
    model = build_model(preset(name)).eval()
    torch.nn.init.normal_(model.head.weight)
    with torch.no_grad():
        evidence = model(torch.randn(2, 3, 64, 64))
    expected = torch.zeros(2, 4)
    for i in range(2):
        for c in range(4):
            for j in range(evidence.scores.shape[1]):
                expected[i, c] += model.head.weight[c, j] * evidence.scores[i, j]
    torch.testing.assert_close(evidence.logits, expected, rtol=1e-4, atol=1e-5)
    assert model.head.bias is None


def test_scores_are_the_top_k_mean_minus_the_mean_of_the_maps():
    model = build_model(tiny()).eval()
    with torch.no_grad():
        evidence = model(torch.randn(2, 3, 64, 64))
    column = 0
    for maps in evidence.maps.values():
        for j in range(maps.shape[1]):
            for i in range(2):
                cells = sorted(maps[i, j].flatten().tolist(), reverse=True)
                k = min(9, len(cells))
                expected = sum(cells[:k]) / k - sum(cells) / len(cells)
                assert evidence.scores[i, column].item() == pytest.approx(expected, abs=1e-5)
                assert evidence.closeness[i, column].item() == pytest.approx(
                    sum(cells[:k]) / k, abs=1e-5
                )
            column += 1
    assert column == 40


def test_maps_compare_each_prototype_with_the_pyramid_of_its_own_level():
    model = build_model(tiny()).eval()
    images = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        evidence, z = model(images), model.pyramid(images)
    places = {}
    for j, level in enumerate(model.prototypes.levels.tolist()):
        place = places[level] = places.get(level, -1) + 1
        p = model.prototypes.vectors[j]
        for y in range(z[level].shape[2]):
            for x in range(z[level].shape[3]):
                patch = z[level][0, :, y, x]
                cosine = (patch @ p) / (patch.norm() * p.norm())
                assert evidence.maps[level][0, place, y, x].item() == pytest.approx(
                    cosine.item(), abs=1e-5
                )


@pytest.mark.parametrize("finest", [2, 3, 4, 5])
def test_levels_finer_than_the_finest_with_prototypes_are_not_computed(finest):
    counts = {"counts": {finest: 1, 5: 1}, "negative_counts": {finest: 1}}
    model = build_model(tiny(prototypes=counts)).eval()
    z = model.pyramid(torch.randn(1, 3, 32, 32))
    assert sorted(z) == list(range(finest, 6)), "coarser levels feed it, finer ones are not built"
    built = {name.split(".")[1] for name, _ in model.neck.named_parameters()}
    assert built == {str(level) for level in range(finest, 6)}
    evidence = model(torch.randn(1, 3, 32, 32))
    assert sorted(evidence.maps) == sorted({finest, 5}), "maps only where there are prototypes"


def test_only_level_3_with_uneven_classes_and_a_class_without_prototypes():
    counts = {
        "per_class": {"circumscribed": {3: 4}, "indistinct": {3: 1}, "spiculated": {}},
        "negative_counts": {3: 2},
    }
    model = build_model(tiny(prototypes=counts)).eval()
    assert model.prototypes.classes.tolist() == [0, 0, 0, 0, 1, 3, 3]
    evidence = model(torch.randn(2, 3, 32, 32))
    assert list(evidence.maps) == [3]
    assert evidence.maps[3].shape == (2, 7, 4, 4)
    assert evidence.logits.shape == (2, 4)


def test_going_on_from_cached_maps_gives_the_same_evidence():
    model = build_model(tiny()).eval()
    images = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        whole = model(images)
        for cut in model.backbone.cuts:
            keep = {cut, *(level for level in (2, 3, 4, 5) if level <= cut)}
            cached = model.backbone.advance({0: images}, keep)
            evidence = model.evidence_from_pyramid(model.pyramid_from_maps(cached))
            torch.testing.assert_close(evidence.logits, whole.logits)


def test_the_black_box_has_pooled_channels_for_scores_and_no_prototypes_or_maps():
    model = build_model(preset("vgg16")).eval()
    images = torch.randn(2, 3, 48, 32)
    with torch.no_grad():
        evidence, c5 = model(images), model.pyramid(images)[5]
    assert model.prototypes is None
    assert evidence.maps == {}
    assert evidence.closeness.shape == (2, 0)
    assert evidence.scores.shape == (2, c5.shape[1])
    for i in range(2):
        for channel in range(c5.shape[1]):
            cells = c5[i, channel].flatten().tolist()
            assert evidence.scores[i, channel].item() == pytest.approx(
                sum(cells) / len(cells), rel=1e-5, abs=1e-6
            )


def test_the_same_seed_builds_the_same_model_and_the_state_round_trips():
    torch.manual_seed(5)
    first = build_model(tiny())
    torch.manual_seed(5)
    second = build_model(tiny())
    third = build_model(tiny())
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(first(images).logits, second(images).logits)
    assert not torch.equal(first(images).logits, third(images).logits)
    third.load_state_dict(first.state_dict())
    assert torch.equal(first(images).logits, third(images).logits)


def test_rows_of_a_batch_do_not_influence_each_other():
    model = build_model(tiny()).eval()
    images = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        together = model(images).logits
        apart = torch.cat([model(images[i : i + 1]).logits for i in range(3)])
    torch.testing.assert_close(together, apart, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_every_parameter_learns(name):
    """A parameter without a gradient would be dead weight."""
    model = build_model(preset(name))
    evidence = model(torch.randn(2, 3, 64, 64))
    (evidence.logits.square().sum() + evidence.closeness.square().sum()).backward()
    dead = [name for name, p in model.named_parameters() if p.grad is None]
    assert dead == []
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
