"""What a resumed run accepts, what it refuses, and what damage it survives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from protopyramid.runs.folder import RunFolder
from protopyramid.training.checkpoint import load_checkpoint
from protopyramid.utils.files import TEMPORARY

from ..harness import Command, Reference, copy_manifest, fault


@pytest.fixture(scope="module")
def killed(
    command: Command, reference: Reference, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run that was killed in its second epoch: it has two checkpoints."""
    out = tmp_path_factory.mktemp("killed") / "run"
    done = command(*reference.arguments(out), faults=[fault("batch", 5)])
    assert done.code == -signal.SIGKILL, done.stderr
    assert len(checkpoints(out)) == 2
    return out


@pytest.fixture
def stopped(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "run"))


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoint").glob("0*.safetensors"))


def truncate(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip_a_bit_of_a_tensor(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-100] ^= 4
    path.write_bytes(bytes(content))


def flip_a_bit_of_the_header(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"best_key") + 15] ^= 1  # a digit of the state
    path.write_bytes(bytes(content))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "damage", [truncate, flip_a_bit_of_a_tensor, flip_a_bit_of_the_header, empty]
)
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(
    command: Command, reference: Reference, stopped: Path, damage
) -> None:
    newest = checkpoints(stopped)[-1]
    damage(newest)
    done = command(*reference.arguments(stopped), "--resume")
    assert done.code == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    assert any(newest.name in line and "using the one before it" in line for line in warnings)
    assert (stopped / "model.safetensors").read_bytes() == reference.model


def test_two_damaged_checkpoints_are_told_and_nothing_is_trained(
    command: Command, reference: Reference, stopped: Path
) -> None:
    for path in checkpoints(stopped):
        truncate(path)
    done = command(*reference.arguments(stopped), "--resume")
    assert done.code == 2
    assert done.stderr.splitlines()[-1].startswith("protopyramid: error: ")
    assert "no checkpoint is intact" in done.stderr


@pytest.mark.parametrize("place", ["os:fsync", "tempfile:mkstemp", "os:replace"])
def test_a_full_disk_leaves_the_old_checkpoint_whole(
    command: Command, reference: Reference, stopped: Path, place: str
) -> None:
    before = {path.name: path.read_bytes() for path in checkpoints(stopped)}
    when = "checkpoint" if place != "os:fsync" else ""
    call = 3 if place == "os:fsync" else 1  # the log and its folder come first
    full = fault(place, call, error="ENOSPC", when=when)
    done = command(*reference.arguments(stopped), "--resume", faults=[full])
    assert done.code == 2
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    assert len(errors) == 1
    assert "the disk is full; free some space, then continue with --resume" in errors[0]
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_bytes() for path in checkpoints(stopped)} == before
    assert not list(stopped.rglob(TEMPORARY + "*"))
    again = command(*reference.arguments(stopped), "--resume")
    assert again.code == 0, again.stderr
    assert (stopped / "model.safetensors").read_bytes() == reference.model


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full_ends_in_one_line_and_the_run_continues_later(
    command: Command, reference: Reference, small_disk: Path
) -> None:
    out = small_disk / "run"
    done = command(*reference.arguments(out), faults=[fault("batch", 2, signal.SIGTERM)])
    assert done.code == 143, done.stderr
    newest = load_checkpoint(RunFolder(out))
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))
    done = command(*reference.arguments(out), "--resume")
    assert done.code == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("protopyramid: error: ")
    assert "full" in last or "space" in last
    assert "Traceback" not in done.stderr
    kept = load_checkpoint(RunFolder(out))
    assert newest is not None and kept is not None
    assert kept.state == newest.state
    filler.unlink()
    done = command(*reference.arguments(out), "--resume")
    assert done.code == 0, done.stderr
    assert (out / "model.safetensors").read_bytes() == reference.model


def one_error(done) -> str:
    """The one line of an error of the user, which is all that is said."""
    assert done.code == 2, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0].removeprefix("protopyramid: error: ")


def test_a_stopped_run_is_not_begun_again(
    command: Command, reference: Reference, stopped: Path
) -> None:
    message = one_error(command(*reference.arguments(stopped)))
    assert "a run that was stopped; continue it with --resume" in message


def test_a_finished_run_is_left_alone(command: Command, reference: Reference) -> None:
    before = reference.model
    message = one_error(command(*reference.arguments(reference.folder)))
    assert "holds a finished run; choose another folder" in message
    done = command(*reference.arguments(reference.folder), "--resume")
    assert done.code == 0
    assert reference.model == before


@pytest.mark.parametrize("setting", ["train.seed=7", "loss.cluster=0.5"])
def test_another_configuration_is_refused(
    command: Command, reference: Reference, stopped: Path, setting: str
) -> None:
    again = command(*reference.arguments(stopped), "--resume", "--set", setting)
    assert "started with another configuration" in one_error(again)


def test_another_manifest_is_refused(
    command: Command, reference: Reference, stopped: Path, tmp_path: Path
) -> None:
    fewer = copy_manifest(
        reference.manifest, tmp_path / "fewer", lambda row: row if "patient0003-" not in row else ""
    )
    arguments = ["train", reference.toml, "--data", fewer, "--out", stopped, "--resume"]
    assert "rows are not those that" in one_error(command(*arguments))


def test_a_run_folder_of_another_format_is_refused(
    command: Command, reference: Reference, stopped: Path
) -> None:
    (stopped / "format").write_text("99\n")
    again = command(*reference.arguments(stopped), "--resume")
    assert "run folder of format '99', but this version reads format 1" in one_error(again)


def test_a_run_folder_in_use_is_refused(
    command: Command, reference: Reference, stopped: Path
) -> None:
    with RunFolder(stopped).lock():
        again = command(*reference.arguments(stopped), "--resume")
    assert "in use by another process" in one_error(again)


def test_resume_in_a_new_folder_begins(
    command: Command, reference: Reference, tmp_path: Path
) -> None:
    """A job script can always say --resume."""
    out = tmp_path / "run"
    kill = fault("batch")
    assert command(*reference.arguments(out), "--resume", faults=[kill]).code == -signal.SIGKILL
    assert (out / "format").is_file()


def test_a_run_that_learns_by_adam_is_killed_and_ends_in_the_same_bytes(
    command: Command, reference: Reference, tmp_path: Path
) -> None:
    by_adam = ["--set", "train.optimizer=adam"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert command(*reference.arguments(whole), *by_adam).code == 0
    done = command(*reference.arguments(killed), *by_adam, faults=[fault("batch", 5)])
    assert done.code == -signal.SIGKILL, done.stderr
    assert command(*reference.arguments(killed), *by_adam, "--resume").code == 0
    models = [(path / "model.safetensors").read_bytes() for path in (whole, killed)]
    assert models[0] == models[1]
    assert models[0] != reference.model
