"""VGG-16 against a plain chain of layers with the same weights; timm through a stand-in."""

import sys
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from protopyramid.config.schema import SIZE_MULTIPLE, BackboneConfig
from protopyramid.errors import UserError
from protopyramid.model.backbones import IMAGE, VGG16, TimmBackbone
from protopyramid.model.build import build_backbone
from protopyramid.model.weights import load_backbone_weights, start_backbone

# torchvision's vgg16.features: where its convolutions are, without and with batch norm.
CONVOLUTIONS = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
CONVOLUTIONS_BN = (0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40)
POOL_AFTER = (1, 3, 6, 9)  # counting convolutions from 0; the pool after the last one is left out


@pytest.fixture(scope="module")
def small() -> VGG16:
    torch.manual_seed(0)
    return randomised(VGG16(width=0.0625)).eval()


@pytest.fixture(scope="module")
def small_normed() -> VGG16:
    torch.manual_seed(1)
    return randomised(VGG16(width=0.0625, batch_norm=True)).eval()


def randomised(backbone: nn.Module) -> nn.Module:
    """Biases, scales and running statistics that are not their defaults."""
    with torch.no_grad():
        for name, tensor in backbone.state_dict().items():
            if name.endswith("bias") or name.endswith("running_mean"):
                tensor.normal_(0, 0.1)
            elif tensor.dim() == 1 and tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5)
    return backbone


def plain_vgg(
    state: dict, images: torch.Tensor, batch_norm: bool = False, pad: str = "constant"
) -> dict:
    """Maps 1 to 5 by function calls alone, from torchvision's parameter names."""
    maps, x, block = {}, images, 0
    for count, place in enumerate(CONVOLUTIONS_BN if batch_norm else CONVOLUTIONS):
        x = F.pad(x, (1, 1, 1, 1), mode=pad)
        x = F.conv2d(x, state[f"features.{place}.weight"], state[f"features.{place}.bias"])
        if batch_norm:
            norm = f"features.{place + 1}."
            shape = (1, -1, 1, 1)
            mean, variance = state[norm + "running_mean"], state[norm + "running_var"]
            x = (x - mean.view(shape)) / (variance.view(shape) + 1e-5).sqrt()
            x = x * state[norm + "weight"].view(shape) + state[norm + "bias"].view(shape)
        x = x.clamp(min=0)
        if count in POOL_AFTER:
            b, c, h, w = x.shape
            x = x.view(b, c, h // 2, 2, w // 2, 2).amax((3, 5))
            block += 1
            maps[block] = x
    maps[block + 1] = x
    return maps


def test_full_width_level_sizes_at_224_are_56_28_14_14_and_channels_are_vggs():
    backbone = VGG16().eval()
    with torch.no_grad():
        maps = backbone(torch.zeros(1, 3, 224, 224))
    assert {level: tuple(x.shape[1:]) for level, x in maps.items()} == {
        2: (128, 56, 56),
        3: (256, 28, 28),
        4: (512, 14, 14),
        5: (512, 14, 14),
    }
    assert backbone.channels == {2: 128, 3: 256, 4: 512, 5: 512}
    assert backbone.strides == {2: 4, 3: 8, 4: 16, 5: 16}
    assert sum(p.numel() for p in backbone.parameters()) == 14_714_688


def test_the_last_pool_halves_level_5_alone():
    torch.manual_seed(0)
    plain = VGG16(width=0.0625)
    pooled = VGG16(width=0.0625, last_pool=True)
    pooled.load_state_dict(plain.state_dict())  # a pool has no weights: any VGG-16's fit
    assert pooled.strides == {2: 4, 3: 8, 4: 16, 5: 32}
    assert (plain.size_multiple, pooled.size_multiple) == (16, 32)
    images = torch.randn(2, 3, 64, 96)
    maps, halved = plain(images), pooled(images)
    assert all(torch.equal(maps[level], halved[level]) for level in (2, 3, 4))
    b, c, h, w = maps[5].shape
    assert torch.equal(halved[5], maps[5].view(b, c, h // 2, 2, w // 2, 2).amax((3, 5)))
    for cut in range(1, 6):  # a cache may be cut anywhere
        start = pooled.advance({0: images}, [cut, *(n for n in (2, 3, 4, 5) if n <= cut)])
        again = pooled.advance(start, [5])
        assert torch.equal(again[5], halved[5])


def test_maps_equal_a_plain_chain_of_layers(small):
    images = torch.randn(2, 3, 48, 32)
    expected = plain_vgg(small.state_dict(), images)
    for level, ours in small(images).items():
        torch.testing.assert_close(ours, expected[level])


def test_maps_with_batch_norm_equal_a_plain_chain_of_layers(small_normed):
    images = torch.randn(2, 3, 32, 48)
    expected = plain_vgg(small_normed.state_dict(), images, batch_norm=True)
    for level, ours in small_normed(images).items():
        torch.testing.assert_close(ours, expected[level], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_padding_with_the_edge_equals_a_plain_chain_on_padded_maps(batch_norm):
    backbone = randomised(VGG16(width=0.0625, batch_norm=batch_norm, padding="replicate")).eval()
    images = torch.randn(2, 3, 32, 48)
    expected = plain_vgg(backbone.state_dict(), images, batch_norm, pad="replicate")
    zeros = plain_vgg(backbone.state_dict(), images, batch_norm)
    for level, ours in backbone(images).items():
        torch.testing.assert_close(ours, expected[level], rtol=1e-4, atol=1e-5)
        assert (ours - zeros[level]).abs().max() > 1e-3


def test_an_even_image_has_even_maps_with_the_edge_repeated_and_a_border_with_zeros():
    for padding, has_border in (("zeros", True), ("replicate", False)):
        backbone = build_backbone(BackboneConfig(width=0.0625, padding=padding)).eval()
        with torch.no_grad():
            maps = backbone(torch.ones(1, 3, 64, 64))
        spread = max((x.amax((-2, -1)) - x.amin((-2, -1))).max().item() for x in maps.values())
        assert (spread > 1e-3) == has_border


def test_padding_changes_neither_names_nor_what_is_drawn():
    states = []
    for padding in ("zeros", "replicate"):
        torch.manual_seed(0)
        states.append(VGG16(width=0.0625, batch_norm=True, padding=padding).state_dict())
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(x, states[1][name]) for name, x in states[0].items())


@pytest.mark.parametrize(("batch_norm", "places"), [(False, CONVOLUTIONS), (True, CONVOLUTIONS_BN)])
def test_parameters_have_torchvisions_names_and_shapes(batch_norm, places):
    state = VGG16(width=0.0625, batch_norm=batch_norm).state_dict()
    convolutions = [name for name, x in state.items() if x.dim() == 4]
    assert convolutions == [f"features.{place}.weight" for place in places]
    expected = set(convolutions) | {f"features.{place}.bias" for place in places}
    if batch_norm:
        parts = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
        expected |= {f"features.{place + 1}.{part}" for place in places for part in parts}
    assert set(state) == expected


@pytest.mark.parametrize("cut", range(6))
def test_going_on_from_any_cut_gives_the_maps_of_the_whole_run(small, cut):
    images = torch.randn(1, 3, 32, 32)
    everything = {IMAGE: images, **plain_vgg(small.state_dict(), images)}
    # What crosses the cut: the last map before it, and the levels before it that the neck wants.
    crossing = {
        number: everything[number] for number in range(cut + 1) if number in (0, 2, 3, 4, 5)
    }
    crossing[cut] = everything[cut]
    if cut:
        crossing.pop(IMAGE)
    before = {number: x.clone() for number, x in crossing.items()}
    maps = small.advance(crossing, (2, 3, 4, 5))
    assert sorted(maps) == [2, 3, 4, 5]
    for level in maps:
        torch.testing.assert_close(maps[level], everything[level])
    for number, x in crossing.items():
        assert torch.equal(x, before[number]), "a cached map was changed in place"
    assert cut in small.cuts


def test_the_run_ends_with_the_last_block_asked_for(small):
    assert sorted(small.advance({IMAGE: torch.randn(1, 3, 32, 32)}, (2, 3))) == [2, 3]
    # 8 px would not survive the fourth pool: the run stopped before it.
    assert small.advance({IMAGE: torch.randn(1, 3, 8, 8)}, (3,))[3].shape[-2:] == (1, 1)


def test_blocks_hold_every_parameter_once(small_normed):
    held = [id(p) for number in range(1, 6) for p in small_normed.block(number).parameters()]
    assert len(held) == len(set(held))
    assert set(held) == {id(p) for p in small_normed.parameters()}


def test_a_block_can_be_put_in_evaluation_mode():
    backbone = VGG16(width=0.0625, batch_norm=True).train()
    backbone.block(1).eval()
    modes = [m.training for m in backbone.features if isinstance(m, nn.BatchNorm2d)]
    assert modes == [False, False] + [True] * 11


def test_width_scales_every_layer_and_never_to_nothing():
    assert VGG16(width=0.25).channels == {2: 32, 3: 64, 4: 128, 5: 128}
    assert VGG16(width=1e-6).channels == {2: 1, 3: 1, 4: 1, 5: 1}


def test_only_known_names_build():
    assert isinstance(build_backbone(BackboneConfig(width=0.0625)), VGG16)
    for name in ("resnet50", "timm:", "torch:vgg16", ""):
        with pytest.raises(UserError, match=r"model\.backbone\.name.*vgg16.*timm:NAME"):
            build_backbone(BackboneConfig(name=name))


# timm, played by a stand-in: the real one may be absent.


class StandIn(nn.Module):
    """What timm returns for features_only=True: (B, channels, H, W), or (B, H, W, channels) as Swin."""

    def __init__(self, levels: int, output_fmt: str = "NCHW") -> None:
        super().__init__()
        self.output_fmt = output_fmt
        self.stages = nn.ModuleList(
            nn.Conv2d(3 if n == 0 else 4 * n, 4 * (n + 1), 2, stride=2) for n in range(levels)
        )
        self.feature_info = types.SimpleNamespace(
            channels=lambda: [4 * (n + 1) for n in range(levels)],
            reduction=lambda: [2 ** (n + 1) for n in range(levels)],
        )

    def forward(self, x):
        maps = []
        for stage in self.stages:
            x = stage(x)
            maps.append(x.permute(0, 2, 3, 1) if self.output_fmt == "NHWC" else x)
        return maps


@pytest.fixture
def timm(monkeypatch):
    def create_model(name, pretrained=True, features_only=False):
        assert not pretrained, "building must download nothing"
        assert features_only
        if name not in ("five", "three", "last"):
            raise RuntimeError(f"Unknown model ({name})\nand a second line")
        return StandIn(3 if name == "three" else 5, "NHWC" if name == "last" else "NCHW")

    module = types.ModuleType("timm")
    module.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def test_timm_gives_its_last_four_levels(timm):
    backbone = build_backbone(BackboneConfig(name="timm:five"))
    assert isinstance(backbone, TimmBackbone)
    assert backbone.channels == {2: 8, 3: 12, 4: 16, 5: 20}
    assert backbone.strides == {2: 4, 3: 8, 4: 16, 5: 32}
    images = torch.randn(2, 3, 64, 64)
    maps = backbone(images)
    expected = backbone.features(images)
    for level, stage in zip((2, 3, 4, 5), expected[1:], strict=True):
        assert torch.equal(maps[level], stage)


def test_timm_is_cut_before_or_after_the_whole(timm):
    backbone = TimmBackbone("five")
    assert backbone.cuts == (0, 5)
    maps = backbone(torch.randn(1, 3, 64, 64))
    again = backbone.advance(maps, (3, 5))
    assert sorted(again) == [3, 5]
    assert all(torch.equal(again[level], maps[level]) for level in again)
    assert {id(p) for p in backbone.block(5).parameters()} == {id(p) for p in backbone.parameters()}


def test_an_unknown_timm_network_is_refused(timm):
    with pytest.raises(UserError, match=r'model\.backbone\.name.*"nothing".*Unknown model'):
        TimmBackbone("nothing")


def test_a_timm_network_with_too_few_levels_is_refused(timm):
    with pytest.raises(UserError, match=r'"timm:three" has 3 feature levels, expected at least 4'):
        TimmBackbone("three")


def test_maps_with_their_channels_at_the_end_are_turned(timm):
    backbone = TimmBackbone("last")
    images = torch.randn(2, 3, 64, 32)
    maps = backbone(images)
    for level, stage in zip((2, 3, 4, 5), backbone.features(images)[1:], strict=True):
        assert maps[level].shape[1] == backbone.channels[level]
        assert torch.equal(maps[level].permute(0, 2, 3, 1), stage)


def test_a_name_on_a_model_hub_is_refused_because_its_settings_would_be_downloaded(timm):
    with pytest.raises(UserError, match=r'model\.backbone\.name: "timm:hf_hub:a/b".*timm:resnet18'):
        TimmBackbone("hf_hub:a/b")


def test_weights_of_a_timm_network_load_from_a_file(timm, tmp_path):
    """As timm saves them: without our prefix, with dots where its feature networks have underscores."""
    backbone, other = TimmBackbone("five"), TimmBackbone("five")
    backbone.features.stem_0 = nn.Conv2d(1, 1, 1)
    other.features.stem_0 = nn.Conv2d(1, 1, 1)
    saved = {
        name.removeprefix("features.").replace("stem_0", "stem.0"): x
        for name, x in other.state_dict().items()
    }
    torch.save({**saved, "fc.weight": torch.zeros(2)}, tmp_path / "w.pth")
    report = load_backbone_weights(backbone, tmp_path / "w.pth")
    assert report.ignored == ("fc.weight",)
    for name, x in other.state_dict().items():
        assert torch.equal(backbone.state_dict()[name], x)


def test_imagenet_weights_are_not_vgg16s_for_another_network(timm, monkeypatch):
    monkeypatch.setattr(
        "protopyramid.model.weights.fetch_published", lambda *a: pytest.fail("fetched")
    )
    with pytest.raises(UserError, match=r'weights "imagenet" is for the full VGG-16'):
        start_backbone(TimmBackbone("five"), "imagenet")


def test_without_timm_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"timm:resnet50.*install protopyramid\[backbones\]"):
        build_backbone(BackboneConfig(name="timm:resnet50"))


# The real timm imports torchvision, whose wheel for another build of torch fails at import: it registers
# fake kernels for operators that its library did not load. Here the same call fails for the same reason.
BROKEN_TORCHVISION = """
import torch

@torch.library.register_fake("torchvision::nms")
def meta_nms(dets, scores, iou_threshold):
    return dets
"""


@pytest.fixture
def broken_timm(tmp_path, monkeypatch):
    for name, content in (("timm", "import torchvision\n"), ("torchvision", BROKEN_TORCHVISION)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("timm", "torchvision"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_timm_that_cannot_be_imported_is_one_line_with_a_remedy(broken_timm):
    for _ in range(2):  # a second attempt meets what the first one left behind
        with pytest.raises(UserError) as caught:
            build_backbone(BackboneConfig(name="timm:resnet18"))
        message = str(caught.value)
        assert "\n" not in message
        assert 'model.backbone.name "timm:resnet18"' in message
        assert "operator torchvision::nms does not exist" in message
        assert f"torchvision build that matches torch {torch.__version__}" in message


def test_sizes_are_multiples_of_the_stride_of_level_4(timm, small):
    assert small.size_multiple == TimmBackbone("five").size_multiple == SIZE_MULTIPLE == 16
