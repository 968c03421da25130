"""The necks against the paper's equation 1, convolution by convolution."""

import pytest
import torch
import torch.nn.functional as F

from protopyramid.config.schema import NeckConfig
from protopyramid.model.build import build_neck
from protopyramid.model.necks import AddOn, NoNeck, Pyramid

CHANNELS = {2: 3, 3: 4, 4: 5, 5: 6}


def conv1x1(x, layer):
    """A 1x1 convolution as a product at every position."""
    weight = layer.weight[:, :, 0, 0]
    return torch.einsum("oc,bchw->bohw", weight, x) + layer.bias[:, None, None]


def conv3x3(x, layer, pad="constant"):
    """A 3x3 convolution with zero padding, or another, as nine shifted products."""
    height, width = x.shape[-2:]
    padded = F.pad(x, (1, 1, 1, 1), mode=pad)
    total = layer.bias[:, None, None]
    for dy in range(3):
        for dx in range(3):
            window = padded[..., dy : dy + height, dx : dx + width]
            total = total + torch.einsum("oc,bchw->bohw", layer.weight[:, :, dy, dx], window)
    return total


def nearest(x, height, width):
    """Nearest upsampling, pixel by pixel."""
    h, w = x.shape[-2:]
    rows = [[x[..., y * h // height, z * w // width] for z in range(width)] for y in range(height)]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


def maps_of(sizes, batch=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    return {
        level: torch.randn(batch, CHANNELS[level], *size, generator=g)
        for level, size in sizes.items()
    }


def with_biases(neck):
    torch.manual_seed(0)
    for name, parameter in neck.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return neck


def unchanged(level, z):
    return z


def equation_1(pyramid, c, finest=2, up=nearest, pad="constant", norm=unchanged):
    z = {5: norm(5, conv1x1(c[5], pyramid.lateral["5"]))}
    for level in (4, 3, 2):
        if level >= finest:
            height, width = c[level].shape[-2:]
            merged = up(z[level + 1], height, width) + conv1x1(
                c[level], pyramid.lateral[str(level)]
            )
            z[level] = norm(level, conv3x3(merged, pyramid.smooth[str(level)], pad))
    return z


SQUARE = {2: (8, 8), 3: (4, 4), 4: (2, 2), 5: (2, 2)}
OBLONG = {2: (12, 8), 3: (6, 4), 4: (3, 2), 5: (3, 2)}
ODD = {2: (9, 7), 3: (5, 4), 4: (3, 2), 5: (2, 1)}  # as networks with ceil division give


@pytest.mark.parametrize("sizes", [SQUARE, OBLONG, ODD])
@pytest.mark.parametrize("finest", [2, 3, 4, 5])
def test_pyramid_is_equation_1(sizes, finest):
    pyramid = with_biases(Pyramid(CHANNELS, 7, finest))
    c = maps_of(sizes)
    z = pyramid(c)
    expected = equation_1(pyramid, c, finest)
    assert list(z) == list(range(finest, 6))
    for level in z:
        torch.testing.assert_close(z[level], expected[level], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("factor", [0.0, 0.25])
def test_what_is_passed_down_can_be_limited(factor):
    pyramid = with_biases(Pyramid(CHANNELS, 7, 2, top_down=factor))
    c = maps_of(SQUARE)

    def less(z, height, width):
        return factor * nearest(z, height, width)

    for level, expected in equation_1(pyramid, c, up=less).items():
        torch.testing.assert_close(pyramid(c)[level], expected, rtol=1e-4, atol=1e-5)


def test_pyramid_is_not_the_usual_fpn():
    """The usual one recurses on the sum before its 3x3 and smooths the top: the test would see it."""
    pyramid = with_biases(Pyramid(CHANNELS, 7, 2))
    c = maps_of(SQUARE)
    merged = {5: conv1x1(c[5], pyramid.lateral["5"])}
    for level in (4, 3, 2):
        up = nearest(merged[level + 1], *c[level].shape[-2:])
        merged[level] = up + conv1x1(c[level], pyramid.lateral[str(level)])
    usual = conv3x3(merged[2], pyramid.smooth["2"])
    assert (pyramid(c)[2] - usual).abs().max() > 0.1


def test_level_5_has_no_3x3():
    pyramid = Pyramid(CHANNELS, 7, 2)
    assert sorted(pyramid.lateral) == ["2", "3", "4", "5"]
    assert sorted(pyramid.smooth) == ["2", "3", "4"]
    assert {layer.kernel_size for layer in pyramid.lateral.values()} == {(1, 1)}
    assert {layer.kernel_size for layer in pyramid.smooth.values()} == {(3, 3)}


@pytest.mark.parametrize("finest", [3, 4, 5])
def test_levels_finer_than_asked_for_have_no_parameters_and_need_no_maps(finest):
    pyramid = Pyramid(CHANNELS, 7, finest)
    levels = {name.split(".")[1] for name, _ in pyramid.named_parameters()}
    assert levels == {str(level) for level in range(finest, 6)}
    coarse = {level: size for level, size in SQUARE.items() if level >= finest}
    assert pyramid.inputs == tuple(coarse)
    assert list(pyramid(maps_of(coarse))) == list(coarse)


def test_bilinear_upsampling_is_an_option():
    pyramid = with_biases(Pyramid(CHANNELS, 7, 2, upsample="bilinear"))
    c = maps_of(SQUARE)

    def bilinear(x, height, width):
        """Separable, half-pixel centres, edges repeated."""

        def matrix(outputs, inputs):
            rows = torch.zeros(outputs, inputs)
            for o in range(outputs):
                centre = max((o + 0.5) * inputs / outputs - 0.5, 0.0)
                low = min(int(centre), inputs - 1)
                rows[o, low] += 1 - (centre - low)
                rows[o, min(low + 1, inputs - 1)] += centre - low
            return rows

        h, w = x.shape[-2:]
        return matrix(height, h) @ x @ matrix(width, w).T

    expected = equation_1(pyramid, c, up=bilinear)
    for level, z in pyramid(c).items():
        torch.testing.assert_close(z, expected[level], rtol=1e-5, atol=1e-5)


# What is ours: the edge repeated beyond the edge, and batch norm on the levels.


@pytest.mark.parametrize("sizes", [SQUARE, OBLONG, ODD])
def test_padding_with_the_edge_is_equation_1_on_padded_maps(sizes):
    pyramid = with_biases(Pyramid(CHANNELS, 7, 2, padding="replicate"))
    c = maps_of(sizes)
    expected = equation_1(pyramid, c, pad="replicate")
    for level, z in pyramid(c).items():
        torch.testing.assert_close(z, expected[level], rtol=1e-5, atol=1e-5)


def test_padding_changes_the_border_alone():
    zeros, edge = Pyramid(CHANNELS, 7, 4), Pyramid(CHANNELS, 7, 4, padding="replicate")
    edge.load_state_dict(zeros.state_dict())
    c = maps_of({4: (6, 7), 5: (6, 7)})
    difference = (zeros(c)[4] - edge(c)[4]).abs().amax((0, 1))
    assert difference[1:-1, 1:-1].max() < 1e-6
    border = torch.ones(6, 7, dtype=torch.bool)
    border[1:-1, 1:-1] = False
    assert difference[border].min() > 1e-3


def test_a_constant_image_has_no_border_with_the_edge_repeated_and_has_one_with_zeros():
    """Why it is offered: with zeros, the border alone tells patches of an even image apart."""
    even = {level: torch.ones(1, CHANNELS[level], *size) for level, size in SQUARE.items()}
    for padding, has_border in (("zeros", True), ("replicate", False)):
        z = Pyramid(CHANNELS, 7, 2, padding=padding)(even)[2]
        assert bool((z.amax((-2, -1)) - z.amin((-2, -1))).max() > 1e-4) == has_border


def with_statistics(pyramid):
    g = torch.Generator().manual_seed(1)
    for norm in pyramid.norm.values():
        norm.running_mean.copy_(torch.randn(norm.running_mean.shape, generator=g))
        norm.running_var.copy_(torch.rand(norm.running_var.shape, generator=g) + 0.5)
    return pyramid


@pytest.mark.parametrize("finest", [2, 4])
def test_batch_norm_subtracts_means_and_divides_by_deviations(finest):
    pyramid = with_statistics(with_biases(Pyramid(CHANNELS, 7, finest, batch_norm=True))).eval()

    def norm(level, z):
        statistics = pyramid.norm[str(level)]
        mean, variance = (
            statistics.running_mean[:, None, None],
            statistics.running_var[:, None, None],
        )
        return (z - mean) / (variance + 1e-5).sqrt()

    c = maps_of(OBLONG)
    expected = equation_1(pyramid, c, finest, norm=norm)
    for level, z in pyramid(c).items():
        torch.testing.assert_close(z, expected[level], rtol=1e-5, atol=1e-5)


def test_batch_norm_in_evaluation_is_a_pyramid_without_it_and_other_weights():
    """It folds into the last convolution of each level: the paper's function class, nothing else."""
    normed = with_statistics(with_biases(Pyramid(CHANNELS, 7, 2, batch_norm=True))).eval()
    folded = Pyramid(CHANNELS, 7, 2)
    folded.load_state_dict(
        {name: x for name, x in normed.state_dict().items() if not name.startswith("norm.")}
    )
    with torch.no_grad():
        for level in folded.inputs:
            norm, convolution = normed.norm[str(level)], folded.last_convolution(level)
            scale = (norm.running_var + norm.eps).rsqrt()
            convolution.weight.mul_(scale[:, None, None, None])
            convolution.bias.sub_(norm.running_mean).mul_(scale)
    c = maps_of(SQUARE)
    expected = folded(c)
    for level, z in normed(c).items():
        torch.testing.assert_close(z, expected[level], rtol=1e-4, atol=1e-5)


def test_batch_norm_in_training_leaves_no_common_direction():
    """Mean 0 and variance 1 in each channel of each level, and no bias that could bring it back."""
    pyramid = with_biases(Pyramid(CHANNELS, 7, 2, batch_norm=True)).train()
    for z in pyramid(maps_of(SQUARE, batch=6)).values():
        channels = z.transpose(0, 1).flatten(1)
        torch.testing.assert_close(channels.mean(1), torch.zeros(7), rtol=0, atol=1e-5)
        torch.testing.assert_close(
            channels.var(1, unbiased=False), torch.ones(7), rtol=0, atol=1e-3
        )
    assert not list(pyramid.norm.parameters())


def test_the_default_has_the_names_of_the_pyramid_without_batch_norm():
    """Runs that were saved before there was the choice still load."""
    levels = {f"lateral.{level}" for level in (2, 3, 4, 5)} | {f"smooth.{n}" for n in (2, 3, 4)}
    names = {f"{layer}.{part}" for layer in levels for part in ("weight", "bias")}
    assert set(build_neck(NeckConfig(dim=4), CHANNELS, finest=2).state_dict()) == names
    edge = build_neck(NeckConfig(dim=4, padding="replicate"), CHANNELS, finest=2)
    assert set(edge.state_dict()) == names
    normed = build_neck(NeckConfig(dim=4, batch_norm=True), CHANNELS, finest=2)
    more = set(normed.state_dict()) - names
    assert {name.rpartition(".")[0] for name in more} == {f"norm.{n}" for n in (2, 3, 4, 5)}
    assert {name.rpartition(".")[2] for name in more} == {
        "running_mean",
        "running_var",
        "num_batches_tracked",
    }


def test_what_is_ours_does_not_change_what_is_drawn():
    """The same seed gives the same first weights with and without."""
    states = []
    for options in ({}, {"padding": "replicate"}, {"batch_norm": True}):
        torch.manual_seed(3)
        states.append(build_neck(NeckConfig(dim=4, **options), CHANNELS, finest=2).state_dict())
    for state in states[1:]:
        assert all(torch.equal(state[name], x) for name, x in states[0].items())


@pytest.mark.parametrize("level", [2, 3, 4, 5])
def test_the_last_convolution_is_the_one_whose_output_is_z(level):
    pyramid = with_biases(Pyramid(CHANNELS, 7, 2))
    seen = []
    pyramid.last_convolution(level).register_forward_hook(lambda *call: seen.append(call[2]))
    z = pyramid(maps_of(SQUARE))
    assert len(seen) == 1 and seen[0] is z[level]


def test_add_on_is_two_1x1_convolutions_with_relu_and_sigmoid():
    neck = with_biases(AddOn(CHANNELS, 7))
    c = maps_of({5: (3, 2)})
    first, _, second, _ = neck.layers
    expected = 1 / (1 + torch.exp(-conv1x1(conv1x1(c[5], first).clamp(min=0), second)))
    z = neck(c)
    assert list(z) == [5]
    torch.testing.assert_close(z[5], expected)
    assert z[5].min() > 0 and z[5].max() < 1


def test_no_neck_passes_level_5_on():
    c = maps_of({5: (3, 2)})
    assert NoNeck()(c)[5] is c[5]


@pytest.mark.parametrize(
    ("kind", "expected"), [("pyramid", Pyramid), ("add-on", AddOn), ("none", NoNeck)]
)
def test_build_neck_follows_the_configuration(kind, expected):
    assert isinstance(build_neck(NeckConfig(kind=kind, dim=4), CHANNELS, finest=5), expected)


def test_the_finest_level_with_prototypes_decides_how_far_the_pyramid_goes():
    neck = build_neck(NeckConfig(dim=4), CHANNELS, finest=3)
    assert neck.inputs == (3, 4, 5)
