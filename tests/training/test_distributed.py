"""Two processes do what one does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from protopyramid.config import dump_config
from protopyramid.errors import UserError
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.training import distributed as processes

from ..harness import Done, Job, Reference, Server, fault, free_port, tiny, torchrun_environments

PROJECTED = [{"step": "project"}, {"step": "fit-head"}]
WHOLE = {
    "config.toml",
    "data.json",
    "format",
    "metrics.jsonl",
    "model.safetensors",
    "prototypes.json",
    "thresholds.json",
    "MODEL_CARD.md",
}


def in_two_processes(
    server: Server, arguments: list[str | Path], faults=((), ()), machines: int = 1
) -> tuple[Done, Done]:
    """As torchrun starts them, but without its half-minute of imports."""
    environments = torchrun_environments(2, machines)
    jobs = [Job(arguments, faults[rank], environments[rank]) for rank in range(2)]
    first, second = server.run(*jobs)
    return first, second


def same_prototypes(one: Path, other: Path) -> None:
    """The same sources to the letter, and the same numbers but for the last digits."""
    found, expected = (json.loads((run / "prototypes.json").read_text()) for run in (one, other))
    for entry, wanted in zip(found, expected, strict=True):
        assert entry.pop("similarity") == pytest.approx(wanted.pop("similarity"), abs=1e-6)
        assert entry == wanted
    vectors, wanted = (load_file(run / "model.safetensors") for run in (one, other))
    for name, tensor in wanted.items():
        torch.testing.assert_close(vectors[name], tensor, rtol=1e-5, atol=1e-6)


def complete(run: Path) -> None:
    """The run folder is whole, and nothing else is left in it."""
    assert {path.name for path in run.iterdir() if path.is_file()} >= WHOLE
    assert not (run / "cache").exists()
    count = len(load_run(run).prototypes)
    assert len(list((run / "prototypes").glob("*.png"))) == count


@pytest.fixture(scope="module")
def projected(
    server: Server, reference: Reference, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A configuration that projects and fits alone, and its run in one process."""
    folder = tmp_path_factory.mktemp("projected")
    toml = folder / "projected.toml"
    toml.write_text(dump_config(tiny(train__schedule=PROJECTED)))
    out = folder / "run"
    (done,) = server.run(Job(["train", toml, "--data", reference.manifest, "--out", out]))
    assert done.code == 0, done.stderr
    return toml, out


def test_two_processes_find_the_prototypes_of_one(
    server: Server, reference: Reference, projected: tuple[Path, Path], tmp_path: Path
) -> None:
    toml, one = projected
    two = tmp_path / "two"
    first, second = in_two_processes(
        server, ["train", toml, "--data", reference.manifest, "--out", two]
    )
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    same_prototypes(two, one)
    complete(two)


def test_devices_starts_processes_of_our_own(
    reference: Reference, projected: tuple[Path, Path], tmp_path: Path
) -> None:
    toml, one = projected
    two = tmp_path / "two"
    options = ["--devices", "2", "--accelerator", "cpu"]
    command = ["-m", "protopyramid", "train", toml, "--data", reference.manifest, "--out", two]
    done = subprocess.run(
        [sys.executable, *command, *options],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(two)
    assert done.stdout.count(str(two)) == 1
    same_prototypes(two, one)


def test_torchrun_trains_to_the_end(reference: Reference, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("--master-port", str(free_port()), "-m", "protopyramid"),
            *reference.arguments(out),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    complete(out)
    assert done.stdout.splitlines()[-1] == str(out)
    assert done.stdout.count(str(out)) == 1
    assert done.stderr.count("best on validation") == 1
    kinds = [line["kind"] for line in RunFolder(out).read_lines("metrics.jsonl")]
    assert kinds == ["epoch", "epoch", "project", "fit-head", "epoch", "project", "fit-head"]


@pytest.fixture(scope="module")
def pair(
    server: Server, reference: Reference, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Done]:
    """The reference's training by two processes."""
    out = tmp_path_factory.mktemp("pair") / "run"
    first, second = in_two_processes(server, reference.arguments(out))
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    return out, second


def test_only_the_first_process_speaks(pair: tuple[Path, Done]) -> None:
    assert pair[1].stdout == ""
    assert pair[1].stderr == ""


def test_two_processes_train_and_their_prototypes_are_patches_of_the_saved_model(
    pair: tuple[Path, Done], reference: Reference
) -> None:
    """Batch norm's buffers differ between processes while they train; projection must not see that."""
    from .test_trainer import nearest_patches_agree

    complete(pair[0])
    nearest_patches_agree(pair[0], reference.manifest)


def test_two_processes_learn_what_one_learns_up_to_batch_statistics(
    pair: tuple[Path, Done], reference: Reference
) -> None:
    found, expected = (
        RunFolder(run).read_lines("metrics.jsonl") for run in (pair[0], reference.folder)
    )
    # Phase A: frozen batch norm, so that the mean gradient of two halves is that of the whole batch.
    for mine, wanted in zip(found[:2], expected[:2], strict=True):
        assert mine["losses"]["cross_entropy"] == pytest.approx(
            wanted["losses"]["cross_entropy"], abs=0.02
        )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_process_stops_both_and_they_continue(
    server: Server, reference: Reference, pair: tuple[Path, Done], tmp_path: Path, rank: int
) -> None:
    out = tmp_path / "run"
    stop = fault("batch", 2, signal.SIGTERM)
    faults = [(), ()]
    faults[rank] = (stop,)
    first, second = in_two_processes(server, reference.arguments(out), faults)
    assert (first.code, second.code) == (143, 0), first.stderr + second.stderr
    last = first.stderr.splitlines()[-1]
    assert "Continue with: torchrun --nproc-per-node 2 -m protopyramid train" in last
    assert "Traceback" not in first.stderr + second.stderr
    if rank:
        return
    first, second = in_two_processes(server, [*reference.arguments(out), "--resume"])
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    whole = (pair[0] / "model.safetensors").read_bytes()
    assert (out / "model.safetensors").read_bytes() == whole


def test_two_machines_have_a_cache_each_and_are_killed_and_resumed(
    server: Server, reference: Reference, pair: tuple[Path, Done], tmp_path: Path
) -> None:
    """As many processes make the same model, whichever machines they are on."""
    out = tmp_path / "run"
    kill = (fault("batch", 5),)
    ends = in_two_processes(server, reference.arguments(out), [kill, kill], machines=2)
    assert [end.code for end in ends] == [-signal.SIGKILL] * 2
    parts = {path.relative_to(out / "cache").as_posix() for path in (out / "cache").glob("*/*")}
    assert parts == {f"node-{n}/{split}" for n in (0, 1) for split in ("train", "validation")}
    ends = in_two_processes(server, [*reference.arguments(out), "--resume"], machines=2)
    assert [end.code for end in ends] == [0, 0], ends
    whole = (pair[0] / "model.safetensors").read_bytes()
    assert (out / "model.safetensors").read_bytes() == whole
    complete(out)


@pytest.mark.parametrize("case", ["finished", "locked", "full disk", "diverged"])
def test_an_error_of_the_user_ends_both_processes_with_one_line(
    server: Server, reference: Reference, tmp_path: Path, case: str
) -> None:
    out = tmp_path / "run"
    arguments, faults = reference.arguments(out), [(), ()]
    expected = {
        "finished": "holds a finished run",
        "locked": "in use by another process",
        "full disk": "the disk is full",
        "diverged": "the loss is not finite",
    }[case]
    if case == "finished":
        arguments = reference.arguments(reference.folder)
    if case == "full disk":
        faults[0] = (fault("os:replace", 2, error="ENOSPC", when="checkpoint"),)
    if case == "diverged":
        arguments += ["--set", "loss.fine.weight=1e38"]
    if case == "locked":
        with RunFolder(out).lock():
            first, second = in_two_processes(server, arguments, faults)
    else:
        first, second = in_two_processes(server, arguments, faults)
    assert (first.code, second.code) == (2, 0), first.stderr + second.stderr
    assert expected in first.stderr.splitlines()[-1]
    assert "error" not in second.stderr and "Traceback" not in first.stderr + second.stderr


def test_devices_that_are_not_there_are_an_error_of_the_user() -> None:
    with pytest.raises(UserError, match="--accelerator nonsense: not available on this machine"):
        processes.start_fabric(1, "32-true", "nonsense")


@pytest.mark.parametrize(
    ("kind", "precision", "slow"),
    [
        ("AVX2", "bf16-mixed", True),
        ("DEFAULT", "16-mixed", True),
        ("AVX512", "bf16-mixed", False),
        ("AVX2", "32-true", False),
    ],
)
def test_a_precision_that_the_cpu_emulates_causes_a_warning(
    monkeypatch: pytest.MonkeyPatch, kind: str, precision: str, slow: bool
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        processes.warn_of_slow_precision(precision)
    assert [precision in str(each.message) for each in caught] == [True] * slow


def test_shares_are_a_partition_of_the_parts() -> None:
    class Two:
        world_size = 2

        def __init__(self, rank: int) -> None:
            self.global_rank = rank

    shares = [processes.rank_share(Two(rank), list(range(7))) for rank in range(2)]
    assert shares == [[0, 2, 4, 6], [1, 3, 5]]
