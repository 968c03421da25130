"""A run that is killed at any moment, again and again, continues to the same bytes."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from protopyramid.config import dump_config
from protopyramid.runs.folder import RunFolder
from protopyramid.utils.files import TEMPORARY

from ..harness import Command, Done, Reference, fault, tiny

CHECKPOINT = "checkpoint/0"  # the file of a checkpoint, not that of the best model


def moments(seed: int) -> list[dict[str, object]]:
    """Moments in the order in which training reaches them, each after a random number of calls.

    After a kill the counts begin again, so that every number is one that is surely reached.
    """
    draw = random.Random(seed).randint
    return [
        fault("cache-write", draw(2, 8)),
        fault("batch", draw(1, 3)),
        fault("os:replace", 1, when=CHECKPOINT),  # written, not yet in its place
        fault("batch", draw(4, 6)),  # in the second epoch
        fault("project-batch", draw(1, 3)),
        fault("project"),
        fault("os:fsync", draw(1, 2)),  # while a file is being written
        fault("fit-head"),
        fault("checkpoint"),  # the best model is newer than it
        fault("cache-write", draw(2, 6)),
        fault("cache-flush", 1),
        fault("batch", draw(1, 3)),
        fault("validate", draw(1, 3)),
        fault("os:replace", draw(1, 8), when="prototypes/"),
        fault("os:replace", 1, when="model.safetensors"),
    ]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_killed_fifteen_times_ends_in_the_same_bytes(
    command: Command, reference: Reference, tmp_path: Path, seed: int
) -> None:
    out = tmp_path / "run"
    for moment in moments(seed):
        done = command(*reference.arguments(out), "--resume", faults=[moment])
        assert done.code == -signal.SIGKILL, (moment, done.stderr)
        assert not (out / "model.safetensors").exists()
    done = command(*reference.arguments(out), "--resume")
    assert done.code == 0, done.stderr
    assert (out / "model.safetensors").read_bytes() == reference.model
    for name in ("prototypes.json", "config.toml"):
        assert (out / name).read_bytes() == (reference.folder / name).read_bytes()
    assert not (out / "cache").exists()
    assert not list(out.rglob(TEMPORARY + "*"))
    assert metrics(out) == metrics(reference.folder)


def test_what_follows_a_cached_phase_reads_its_cache_after_a_kill_too(
    command: Command, reference: Reference, tmp_path: Path
) -> None:
    """In half precision the cache shows in the figures."""
    half = ["--set", "train.cache.half=true"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert command(*reference.arguments(whole), *half).code == 0
    kill = fault("project")
    assert command(*reference.arguments(killed), *half, faults=[kill]).code == -signal.SIGKILL
    assert command(*reference.arguments(killed), *half, "--resume").code == 0
    assert metrics(killed) == metrics(whole)
    models = [(run / "model.safetensors").read_bytes() for run in (whole, killed)]
    assert models[0] == models[1]


def test_a_head_that_is_fitted_first_reads_the_cache_of_the_training_to_come(
    command: Command, phantoms: Path, tmp_path: Path
) -> None:
    schedule = [
        {"step": "fit-head"},
        {"step": "train", "learns": ["backbone.5", "head"], "epochs": 1, "views": 1},
    ]
    toml = tmp_path / "tiny.toml"
    toml.write_text(dump_config(tiny("vgg16", train__schedule=schedule)))
    arguments = ["train", toml, "--data", phantoms, "--out"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    early = command(*arguments, tmp_path / "early", faults=[fault("cache-write")])
    assert early.code == -signal.SIGKILL and "fitted" not in early.stderr
    assert command(*arguments, whole).code == 0
    kill = fault("fit-head")
    assert command(*arguments, killed, faults=[kill]).code == -signal.SIGKILL
    assert command(*arguments, killed, "--resume").code == 0
    assert metrics(killed) == metrics(whole)
    assert [line["kind"] for line in metrics(whole)] == ["fit-head", "epoch"]


def metrics(folder: Path) -> list[dict[str, object]]:
    """The records of a run without its speed, which no two runs share."""
    records = RunFolder(folder).read_lines("metrics.jsonl")
    return [{k: v for k, v in record.items() if k != "images_per_second"} for record in records]


def test_metrics_record_each_phase_once(reference: Reference) -> None:
    kinds = [record["kind"] for record in metrics(reference.folder)]
    assert kinds == ["epoch", "epoch", "project", "fit-head", "epoch", "project", "fit-head"]
    positions = [str(record["position"]) for record in metrics(reference.folder)]
    assert len(set(positions)) == len(positions)


def stop(command: Command, reference: Reference, out: Path, number: int, place: str) -> Done:
    return command(*reference.arguments(out), faults=[fault(place, 2, number)])


@pytest.mark.parametrize(
    ("number", "place", "code"),
    [
        (signal.SIGTERM, "batch", 143),
        (signal.SIGINT, "batch", 130),
        (signal.SIGINT, "project-batch", 130),
    ],
)
def test_a_signal_stops_in_good_order_and_the_run_continues_to_the_same_bytes(
    command: Command, reference: Reference, tmp_path: Path, number: int, place: str, code: int
) -> None:
    out = tmp_path / "a run"
    done = stop(command, reference, out, number, place)
    assert done.code == code, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"stopped by {signal.Signals(number).name}; everything is saved.")
    assert last.endswith(
        f"protopyramid train {reference.toml} --data {reference.manifest} --out '{out}' --resume"
    )
    assert "Traceback" not in done.stderr
    again = command(*reference.arguments(out), "--resume")
    assert again.code == 0, again.stderr
    assert (out / "model.safetensors").read_bytes() == reference.model
    assert metrics(out) == metrics(reference.folder)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_a_signal_before_the_first_checkpoint_does_not_claim_that_anything_is_saved(
    command: Command, reference: Reference, tmp_path: Path, number: int, code: int
) -> None:
    out = tmp_path / "run"
    done = stop(command, reference, out, number, "cache-write")
    assert done.code == code, done.stderr
    assert not list(out.glob("checkpoint/*.safetensors"))
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        f"stopped by {signal.Signals(number).name} before the first checkpoint: "
        "this training is not saved. Start again with: protopyramid train"
    )
    assert "Traceback" not in done.stderr
    again = command(*reference.arguments(out), "--resume")
    assert again.code == 0, again.stderr
    assert (out / "model.safetensors").read_bytes() == reference.model


def test_a_signal_in_the_middle_of_an_epoch_saves_that_very_batch(
    command: Command, reference: Reference, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    stop(command, reference, out, signal.SIGTERM, "batch")
    done = command(*reference.arguments(out), "--resume", faults=[fault("batch")])
    assert done.code == -signal.SIGKILL
    assert "resumed at phase 1 of 6, epoch 0" in done.stderr
    from protopyramid.training.checkpoint import load_checkpoint

    restored = load_checkpoint(RunFolder(out))
    assert restored is not None
    assert restored.state.position.order == (0, 0, 2)
    assert restored.optimiser
