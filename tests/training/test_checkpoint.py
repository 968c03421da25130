"""A checkpoint gives back everything, the last two are kept, and damage is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

from protopyramid.config.schema import TrainPhaseConfig
from protopyramid.errors import UserError
from protopyramid.runs.folder import RunFolder
from protopyramid.training.checkpoint import (
    checksum,
    load_best,
    load_checkpoint,
    restore_model,
    restore_optimiser,
    save_best,
    save_checkpoint,
)
from protopyramid.training.parts import make_optimiser
from protopyramid.training.state import Position, PrototypeSource, State

RECORDS: list[PrototypeSource] = [
    {
        "index": 0,
        "class": "spiculated",
        "level": 2,
        "image": "ä b.png",
        "row": 1,
        "col": 0,
        "similarity": 0.5,
    }
]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3))
    return layers.to(memory_format=torch.channels_last)


def step(model: nn.Module, optimiser: torch.optim.Optimizer, seed: int) -> None:
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    model(images.contiguous(memory_format=torch.channels_last)).square().mean().backward()
    optimiser.step()
    optimiser.zero_grad()


def state(phase: int = 1) -> State:
    return State(Position(phase, 2, 3), (0.75, -1.25), RECORDS, {"fine": 0.1}, 3)


@pytest.mark.parametrize("kind", ["adamw", "adam"])
def test_training_continues_from_a_checkpoint_as_if_it_had_not_stopped(
    kind: Literal["adamw", "adam"], tmp_path: Path
) -> None:
    model = network()
    optimiser = make_optimiser({"neck": list(model.parameters())}, TrainPhaseConfig(), kind)
    for seed in range(3):
        step(model, optimiser, seed)
    save_checkpoint(RunFolder(tmp_path), 7, state(), model.state_dict(), optimiser)
    step(model, optimiser, 3)

    restored = load_checkpoint(RunFolder(tmp_path))
    assert restored is not None
    assert (restored.number, restored.state) == (7, state())
    again = network()
    again.load_state_dict(restored.model)
    other = make_optimiser({"neck": list(again.parameters())}, TrainPhaseConfig(), kind)
    restore_optimiser(other, restored.optimiser)
    for parameter, values in other.state.items():
        assert values["exp_avg"].stride() == parameter.stride()
    step(again, other, 3)
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_an_empty_state_comes_back_too(tmp_path: Path) -> None:
    save_checkpoint(RunFolder(tmp_path), 1, State(Position()), network().state_dict(), None)
    restored = load_checkpoint(RunFolder(tmp_path))
    assert restored is not None
    assert restored.state == State(Position())
    assert restored.optimiser == {}


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    for number in range(1, 6):
        save_checkpoint(RunFolder(tmp_path), number, state(number), network().state_dict(), None)
    save_best(RunFolder(tmp_path), network().state_dict(), RECORDS, "phase 3")
    names = sorted(path.name for path in (tmp_path / "checkpoint").iterdir())
    assert names == ["00000004.safetensors", "00000005.safetensors", "best.safetensors"]


def test_a_damaged_newest_one_is_skipped_with_a_warning(tmp_path: Path) -> None:
    for number in (1, 2):
        save_checkpoint(RunFolder(tmp_path), number, state(number), network().state_dict(), None)
    newest = tmp_path / "checkpoint/00000002.safetensors"
    content = bytearray(newest.read_bytes())
    content[-3] ^= 1
    newest.write_bytes(bytes(content))
    with pytest.warns(UserWarning, match="damaged .checksum mismatch.; using the one before it"):
        restored = load_checkpoint(RunFolder(tmp_path))
    assert restored is not None
    assert restored.state == state(1)


def test_no_checkpoint_is_none_and_no_intact_one_is_an_error(tmp_path: Path) -> None:
    assert load_checkpoint(RunFolder(tmp_path)) is None
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/00000001.safetensors").write_bytes(b"nothing")
    with pytest.warns(UserWarning), pytest.raises(UserError, match="no checkpoint is intact"):
        load_checkpoint(RunFolder(tmp_path))


def test_the_best_model_comes_back_with_its_sources(tmp_path: Path) -> None:
    save_best(RunFolder(tmp_path), network().state_dict(), RECORDS, "phase 3")
    tensors, records, note = load_best(RunFolder(tmp_path))
    assert records == RECORDS
    assert note == "phase 3"
    assert all(torch.equal(tensors[name], t) for name, t in network().state_dict().items())


def test_a_damaged_best_model_is_never_used(tmp_path: Path) -> None:
    save_best(RunFolder(tmp_path), network().state_dict(), RECORDS, "phase 3")
    path = tmp_path / "checkpoint/best.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match="checksum mismatch"):
        load_best(RunFolder(tmp_path))


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    """safetensors writes metadata in an order that each process draws: ours is sorted."""
    script = (
        "import sys, torch; from protopyramid.runs.tensor_file import tensor_bytes\n"
        "facts = {name: name for name in ('records', 'note', 'checksum', 'ä')}\n"
        "sys.stdout.buffer.write(tensor_bytes({'a': torch.arange(3.0)}, facts))"
    )
    found = {
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
        for _ in range(4)
    }
    assert len(found) == 1
    path = tmp_path / "a.safetensors"
    path.write_bytes(found.pop())
    tensors, facts = RunFolder(tmp_path).read_tensors(path.name)
    assert torch.equal(tensors["a"], torch.arange(3.0)) and facts["ä"] == "ä" and len(facts) == 4


@pytest.mark.parametrize(
    "records",
    ["[" * 100_000, "3", '[{"index": -1}]', '[{"index": 0, "class": "a", "level": 2}]', "null"],
)
def test_a_best_model_with_other_records_is_refused_in_one_line(
    tmp_path: Path, records: str
) -> None:
    weights = network().state_dict()
    facts = {"records": records, "note": "", "checksum": str(checksum(weights, records))}
    RunFolder(tmp_path).write_tensors("checkpoint/best.safetensors", weights, facts)
    with pytest.raises(UserError, match=r"best\.safetensors: damaged"):
        load_best(RunFolder(tmp_path))


@pytest.mark.parametrize(
    "state",
    [
        "[" * 100_000,
        "[]",
        '{"position": {"stage": "1", "epoch": 0, "batch": 0}, "best_key": null, "records": [], '
        '"sums": {}, "count": 0}',
        '{"position": {"stage": -1, "epoch": 0, "batch": 0}, "best_key": null, "records": [], '
        '"sums": {}, "count": 0}',
    ],
)
def test_a_checkpoint_with_another_state_is_damaged(tmp_path: Path, state: str) -> None:
    weights = {f"model/{name}": each for name, each in network().state_dict().items()}
    facts = {"state": state, "checksum": str(checksum(weights, state))}
    RunFolder(tmp_path).write_tensors("checkpoint/00000001.safetensors", weights, facts)
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(UserError, match="no checkpoint is intact"),
    ):
        load_checkpoint(RunFolder(tmp_path))


def test_weights_and_optimisers_of_another_model_are_refused_in_one_line() -> None:
    model = network()
    optimiser = make_optimiser({"neck": list(model.parameters())}, TrainPhaseConfig(), "adamw")
    for tensors in ({"a": torch.zeros(1)}, {"x/exp_avg": torch.zeros(1)}, {"a/b/c": torch.ones(2)}):
        with pytest.raises(UserError, match="does not fit this training"):
            restore_optimiser(optimiser, tensors)
    with pytest.raises(UserError, match="does not fit this training"):
        restore_model(model, {"0.weight": torch.zeros(1)})


def test_the_checksum_sees_every_value_and_name() -> None:
    tensors = {"a": torch.zeros(3), "b": torch.zeros(0), "c": torch.tensor(1)}
    values = {
        checksum(tensors),
        checksum({**tensors, "a": torch.tensor([0.0, 0.0, 1e-45])}),
        checksum({**tensors, "c": torch.tensor(2)}),
        checksum({"x": tensors["a"], "b": tensors["b"], "c": tensors["c"]}),
        checksum(tensors, "state"),
    }
    assert len(values) == 5


def test_positions_are_in_the_order_of_training() -> None:
    places = [Position(0, 0, 3), Position(0, 1), Position(1), Position(1, 0, 1), Position(2)]
    assert [place.order for place in places] == sorted(place.order for place in places)
