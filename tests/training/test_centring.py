"""The start of the pyramid: channels of mean 0 and variance 1, by moving the last convolutions alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from protopyramid.model.necks import Pyramid
from protopyramid.training.centring import ChannelMoments, centre_level

CHANNELS = {2: 3, 3: 4, 4: 5, 5: 6}
SIZES = {2: (8, 8), 3: (4, 4), 4: (2, 2), 5: (2, 2)}
LEVELS = (5, 4, 3, 2)
DIM = 7


def pyramid(**options: Any) -> Pyramid:
    """A pyramid with random biases: its channels have a mean."""
    torch.manual_seed(0)
    neck = Pyramid(CHANNELS, DIM, 2, **options)
    for level in neck.inputs:
        torch.nn.init.normal_(neck.lateral[str(level)].bias)
    return neck.eval()


def inputs(batch: int = 12, common: float = 1.0) -> dict[int, Tensor]:
    """Maps with a common part, as after a ReLU."""
    g = torch.Generator().manual_seed(1)
    return {
        level: torch.rand(batch, CHANNELS[level], *size, generator=g) + common
        for level, size in SIZES.items()
    }


def part_of(maps: dict[int, Tensor], rows: slice) -> dict[int, Tensor]:
    return {level: x[rows] for level, x in maps.items()}


def centred(neck: Pyramid, maps: dict[int, Tensor], shares: list[list[slice]]) -> Pyramid:
    """Centre a pyramid as the trainer does; `shares`: the batches of each process."""
    for level in LEVELS:
        parts = []
        for batches in shares:
            moments = ChannelMoments(level, DIM)
            for rows in batches:
                with torch.no_grad():
                    moments.update(neck(part_of(maps, rows)))
            parts.append(moments.result())
        centre_level(neck, level, parts)
    return neck


def moments_of(z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel over images and cells."""
    channels = z.detach().double().transpose(0, 1).flatten(1)
    return channels.mean(1), channels.var(1, unbiased=False)


def is_centred(z: Tensor) -> bool:
    mean, variance = moments_of(z)
    return bool(mean.abs().max() < 1e-4 and (variance - 1).abs().max() < 1e-4)


@pytest.mark.parametrize(
    "options",
    [{}, {"padding": "replicate"}, {"batch_norm": True}, {"upsample": "bilinear"}],
    ids=str,
)
def test_every_channel_of_every_level_has_mean_0_and_variance_1(options: dict[str, Any]) -> None:
    neck, maps = pyramid(**options), inputs()
    assert not any(is_centred(z) for z in neck(maps).values())
    centred(neck, maps, [[slice(0, 12)]])
    assert all(is_centred(z) for z in neck(maps).values())


def test_centring_equals_subtracting_means_and_dividing_by_deviations() -> None:
    """Each level, given the centred one above it, is (z - mean) / deviation of what it was."""
    original, maps = pyramid(), inputs()
    neck = centred(pyramid(), maps, [[slice(0, 12)]])
    z: dict[int, Tensor] = {}
    for level in LEVELS:
        joined = original.lateral[str(level)](maps[level])
        if level < 5:
            joined = joined + original._up(z[level + 1], joined)
            joined = original.smooth[str(level)](joined)
        mean, variance = (x.float()[:, None, None] for x in moments_of(joined))
        z[level] = (joined - mean) / variance.sqrt()
    for level, ours in neck(maps).items():
        torch.testing.assert_close(ours, z[level], rtol=1e-4, atol=1e-4)


def test_only_the_last_convolutions_move_and_only_by_a_factor_and_a_bias() -> None:
    """The function class is the paper's: the same layers and names, other numbers."""
    before = {name: x.clone() for name, x in pyramid().state_dict().items()}
    neck = centred(pyramid(), inputs(), [[slice(0, 12)]])
    after = neck.state_dict()
    assert list(after) == list(before)
    last = {"lateral.5", "smooth.4", "smooth.3", "smooth.2"}
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {f"{layer}.{part}" for layer in last for part in ("weight", "bias")}
    for layer in last:
        ratio = (after[f"{layer}.weight"] / before[f"{layer}.weight"]).flatten(1)
        assert (ratio > 0).all()
        torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    "shares",
    [
        [[slice(0, 5), slice(5, 12)]],
        [[slice(0, 4), slice(8, 12)], [slice(4, 8)]],
        [[slice(0, 12)], []],  # more processes than batches
    ],
    ids=["two batches", "two processes", "an idle process"],
)
def test_batches_and_processes_change_nothing(shares: list[list[slice]]) -> None:
    whole = centred(pyramid(), inputs(), [[slice(0, 12)]]).state_dict()
    parts = centred(pyramid(), inputs(), shares).state_dict()
    for name, tensor in whole.items():
        torch.testing.assert_close(parts[name], tensor, rtol=1e-5, atol=1e-6)


def test_cosines_between_patches_are_near_1_before_and_spread_about_0_after() -> None:
    """Why it is done: a common direction makes all patches alike."""

    def cosines(z: Tensor) -> Tensor:
        unit = torch.nn.functional.normalize(z.transpose(0, 1).flatten(1).T, dim=1)
        return (unit @ unit.T)[~torch.eye(len(unit), dtype=torch.bool)]

    maps = inputs(common=10.0)
    before = pyramid(padding="replicate")(maps)
    after = centred(pyramid(padding="replicate"), maps, [[slice(0, 12)]])(maps)
    for level in LEVELS:
        assert cosines(before[level]).mean() > 0.8
        assert cosines(after[level]).mean().abs() < 0.1


def test_a_constant_channel_is_shifted_and_not_magnified() -> None:
    neck, maps = pyramid(), inputs()
    with torch.no_grad():
        neck.lateral["5"].weight[0] = 0.0
        neck.lateral["5"].weight[1] *= 1e-9  # varies less than its bias is exact
    before = neck.lateral["5"].weight.clone()
    centred(neck, maps, [[slice(0, 12)]])
    assert torch.equal(neck.lateral["5"].weight[:2], before[:2])
    z = neck(maps)
    assert z[5][:, :2].abs().max() < 1e-5
    assert is_centred(z[5][:, 2:])
    assert all(torch.isfinite(x).all() for x in z.values())


def test_channels_that_are_all_zero_stay_finite() -> None:
    neck = pyramid()
    nothing = {level: torch.zeros_like(x) for level, x in inputs().items()}
    for level in LEVELS:
        torch.nn.init.zeros_(neck.lateral[str(level)].bias)
    before = {name: x.clone() for name, x in neck.state_dict().items()}
    centred(neck, nothing, [[slice(0, 12)]])
    for name, tensor in neck.state_dict().items():
        torch.testing.assert_close(tensor, before[name])
