"""The harness of training tests: a tiny configuration, and the command line in forked processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from protopyramid.config import dump_config, load_config
from protopyramid.config.schema import Config
from protopyramid.data.phantoms import write_phantoms

from .library import library_defaults

TINY: dict[str, Any] = {
    "data.image_size": 32,
    "model.backbone.width": 0.0625,
    "model.backbone.batch_norm": True,
    "model.backbone.weights": "none",
    "model.neck.dim": 8,
    "train.batch_size": 8,
    "train.eval_batch_size": 8,
    "train.threads": 1,
}
PARTS = ["neck", "prototypes", "head"]
# Both kinds of cut, several augmented copies and one, and every kind of phase more than once.
SCHEDULE: list[dict[str, Any]] = [
    {"step": "train", "name": "A", "learns": PARTS, "epochs": 2, "views": 2},
    {"step": "project"},
    {"step": "fit-head"},
    {
        "step": "train",
        "name": "C",
        "learns": ["backbone.4", "backbone.5", *PARTS],
        "epochs": 1,
        "views": 1,
    },
    {"step": "project"},
    {"step": "fit-head"},
]
PYRAMID: dict[str, Any] = {
    **TINY,
    "model.prototypes.counts": {2: 2, 5: 1},
    "model.prototypes.negative_counts": {2: 1, 5: 1},
    "train.schedule": SCHEDULE,
}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of 10 patients with one patch of each class: 24 train, 8 validation, 8 test."""
    folder = tmp_path_factory.mktemp("phantoms")
    return write_phantoms(folder, patients=10, size=64, splits=(0.6, 0.2, 0.2))


def tiny(preset: str = "fpn-iaia-bl", **overrides: Any) -> Config:
    """A configuration that trains in a second; double underscores stand for dots."""
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    base = PYRAMID if preset == "fpn-iaia-bl" else TINY
    return load_config(preset, {**library_defaults(preset), **base, **named})


@dataclass
class Done:
    """How a process ended."""

    code: int
    stdout: str
    stderr: str


@dataclass
class Job:
    """A call of the command line, with what goes wrong in it."""

    arguments: Sequence[str | Path]
    faults: Sequence[dict[str, Any]] = ()
    environment: dict[str, str] = field(default_factory=dict)


class Server:
    """Runs jobs in forked processes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        script = Path(__file__).with_name("forked.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def run(self, *jobs: Job) -> list[Done]:
        """Run jobs side by side."""
        described, logs = [], []
        for job in jobs:
            self.count += 1
            log = {name: f"{self.folder}/{self.count}-{name}" for name in ("stdout", "stderr")}
            logs.append(log)
            described.append(
                {
                    "arguments": [str(word) for word in job.arguments],
                    "faults": list(job.faults),
                    "environment": job.environment,
                    **log,
                }
            )
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(described) + "\n")
        self.process.stdin.flush()
        codes = json.loads(self.process.stdout.readline())
        return [
            Done(code, Path(log["stdout"]).read_text(), Path(log["stderr"]).read_text())
            for code, log in zip(codes, logs, strict=True)
        ]

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=30)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("logs"))
    yield server
    server.close()


Command = Callable[..., Done]


@pytest.fixture(scope="session")
def command(server: Server) -> Command:
    """Run the command line: command("train", ..., faults=[...])."""

    def run(*arguments: str | Path, faults: Sequence[dict[str, Any]] = ()) -> Done:
        return server.run(Job(arguments, faults))[0]

    return run


def fault(
    target: str, call: int = 1, number: int = signal.SIGKILL, error: str = "", when: str = ""
) -> dict[str, Any]:
    """A signal or a system error, at the `call`-th time that a target is reached.

    The target is a point of `protopyramid.utils.faults` or a function of the standard library, as in
    "os:replace".
    """
    return {"target": target, "call": call, "signal": int(number), "error": error, "when": when}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun_environments(processes: int, machines: int = 1) -> list[dict[str, str]]:
    """What torchrun tells each of its processes."""
    local = processes // machines
    port = str(free_port())
    return [
        {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % local),
            "GROUP_RANK": str(rank // local),
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(local),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": "test",
        }
        for rank in range(processes)
    ]


@pytest.fixture(scope="session")
def tiny_toml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny configuration as a file."""
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(dump_config(tiny()))
    return path


@dataclass(frozen=True)
class Reference:
    """A run that nothing interrupted."""

    folder: Path
    manifest: Path
    toml: Path

    @property
    def model(self) -> bytes:
        return (self.folder / "model.safetensors").read_bytes()

    def arguments(self, out: Path) -> list[str | Path]:
        """The same training in another folder."""
        return ["train", self.toml, "--data", self.manifest, "--out", out]


@pytest.fixture(scope="session")
def reference(
    command: Command, phantoms: Path, tiny_toml: Path, tmp_path_factory: pytest.TempPathFactory
) -> Reference:
    out = tmp_path_factory.mktemp("reference") / "run"
    done = command("train", tiny_toml, "--data", phantoms, "--out", out)
    assert done.code == 0, done.stderr
    assert done.stdout.strip() == str(out)
    return Reference(out, phantoms, tiny_toml)


def copy_manifest(manifest: Path, folder: Path, change: Callable[[str], str]) -> Path:
    """A copy of a dataset whose manifest rows (not the header) are changed; "" drops a row."""
    shutil.copytree(manifest.parent, folder, dirs_exist_ok=True)
    header, *rows = manifest.read_text().splitlines()
    changed = [new for row in rows if (new := change(row))]
    path = folder / "manifest.csv"
    path.write_text("\n".join([header, *changed]) + "\n")
    return path
