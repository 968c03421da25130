"""The start of the pyramid: channels of mean 0 and variance 1, by moving the last convolutions alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from protopyramid.config import dump_config
from protopyramid.data.images import normalise
from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.model import build_model
from protopyramid.model.necks import Pyramid
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs.folder import RunFolder
from protopyramid.training import trainer as trainer_module
from protopyramid.training.centring import ChannelMoments, centre_level
from protopyramid.training.distributed import start_fabric
from protopyramid.training.engine import train_run
from protopyramid.training.trainer import Trainer

from ..harness import PARTS, Job, Server, tiny, torchrun_environments

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


# -- in the trainer ------------------------------------------------------------------------------
def start(phantoms: Path, out: Path, **options: Any) -> Trainer:
    config = tiny(**options)
    fabric = start_fabric(1, config.train.precision, "cpu")
    return Trainer(config, read_manifest(phantoms), RunFolder(out), fabric)


def training_pyramids(model: PrototypeNetwork, phantoms: Path, **options: Any) -> dict[int, Tensor]:
    """z of all training images, by the model alone."""
    config = tiny(**options)
    samples = read_manifest(phantoms).split("train")
    images = ImageStore(samples, config.data).load(range(len(samples))).images
    with torch.no_grad():
        return model.eval().pyramid(normalise(images, config.data))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model__neck__padding": "replicate", "model__backbone__padding": "replicate"},
        {"model__neck__batch_norm": True},
        {"train__channels_last": False, "train__eval_batch_size": 5},
    ],
    ids=str,
)
def test_training_starts_centred_on_the_training_images(
    phantoms: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    trainer = start(phantoms, tmp_path / "run", **options)
    neck = trainer.model.neck
    assert isinstance(neck, Pyramid)
    trainer._centre_pyramid(neck)
    z = training_pyramids(trainer.model, phantoms, **options)
    assert sorted(z) == [2, 3, 4, 5]
    assert all(is_centred(maps) for maps in z.values())


def first_model(run: Path) -> dict[str, Tensor]:
    """The weights of a run whose neck and backbone never learned."""
    tensors = load_file(run / "model.safetensors")
    return {name: x for name, x in tensors.items() if name.startswith(("backbone.", "neck."))}


HEAD_ALONE = [
    {"step": "train", "name": "head", "learns": ["head"], "epochs": 1},
    {"step": "project"},
    {"step": "fit-head"},
]


def test_a_run_starts_centred_or_as_drawn(phantoms: Path, tmp_path: Path) -> None:
    for choice in ("centred", "random"):
        options = {"model__neck__start": choice, "train__schedule": HEAD_ALONE}
        out = train_run(tiny(**options), phantoms, tmp_path / choice)
        model = build_model(tiny(**options))
        model.load_state_dict(load_file(out / "model.safetensors"))
        z = training_pyramids(model, phantoms, **options)
        assert {is_centred(maps) for maps in z.values()} == {choice == "centred"}
    torch.manual_seed(0)
    drawn = build_model(tiny()).state_dict()
    for name, tensor in first_model(tmp_path / "random").items():
        assert torch.equal(tensor, drawn[name]), name


def test_an_add_on_is_left_as_drawn(
    phantoms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("centred")

    monkeypatch.setattr(trainer_module, "centre_level", never)
    train_run(tiny("iaia-bl", train__schedule=HEAD_ALONE), phantoms, tmp_path / "run")


def test_two_processes_start_as_one(server: Server, phantoms: Path, tmp_path: Path) -> None:
    """Whole batches are dealt out, and their moments add up."""
    toml = tmp_path / "head.toml"
    toml.write_text(dump_config(tiny(train__schedule=HEAD_ALONE)))
    for name, environments in (("one", [{}]), ("two", torchrun_environments(2))):
        arguments = ["train", toml, "--data", phantoms, "--out", tmp_path / name]
        for done in server.run(*[Job(arguments, (), each) for each in environments]):
            assert done.code == 0, done.stderr
    one, two = (first_model(tmp_path / name) for name in ("one", "two"))
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-5, atol=1e-6)


def test_a_resumed_run_is_not_centred_again(
    phantoms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = Trainer._centre_pyramid
    monkeypatch.setattr(
        Trainer,
        "_centre_pyramid",
        lambda self, neck: calls.append(1) or original(self, neck),
    )
    schedule = [
        {"step": "train", "name": "A", "learns": PARTS, "epochs": 1},
        {"step": "project"},
        {"step": "fit-head"},
    ]

    def fail(self: Trainer, stage: Any) -> None:
        raise KeyboardInterrupt

    config = tiny(train__schedule=schedule)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_project_stage", fail)
        train_run(config, phantoms, tmp_path / "run")
    assert len(calls) == 1
    train_run(config, phantoms, tmp_path / "run", resume=True)
    assert len(calls) == 1


@pytest.mark.parametrize("most", [None, 1, 5, 23, 24, 256])
def test_a_sample_is_spread_evenly_and_no_larger_than_asked_for(
    phantoms: Path, tmp_path: Path, most: int | None
) -> None:
    trainer = start(phantoms, tmp_path / "run")
    seen, pool = trainer._pool(most).tolist(), trainer._pool()
    assert len(pool) == 24
    if most is None or most >= 24:
        assert seen == pool.tolist()
        return
    assert 1 <= len(seen) <= most
    places = [pool.tolist().index(image) for image in seen]
    assert places[0] == 0
    assert len(set(np.diff(places).tolist())) <= 1


def test_maps_that_are_held_and_maps_that_are_not_give_the_same_start(
    phantoms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, held = start(phantoms, tmp_path / "drawn"), start(phantoms, tmp_path / "held")
    held._centre_pyramid(held.model.neck)
    monkeypatch.setattr("protopyramid.training.trainer.HELD_BYTES", 0)
    computed = start(phantoms, tmp_path / "computed")
    computed._centre_pyramid(computed.model.neck)
    before, one, other = (each.model.neck.state_dict() for each in (drawn, held, computed))
    assert all(torch.equal(one[name], tensor) for name, tensor in other.items())
    assert any(not torch.equal(before[name], tensor) for name, tensor in other.items())
