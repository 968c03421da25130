"""The runs of a study in parallel, each in a process of its own, after those that it depends on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from protopyramid.errors import UserError
from protopyramid.utils.files import disk_error, make_folder, refuse_link
from protopyramid.utils.opening import TEXT, read_file
from protopyramid.utils.processes import start_watched
from protopyramid.utils.progress import duration

Key = tuple[str, str]  # label of the replicate, variant
PAUSE = 0.2  # seconds between two polls of the processes
LAST_LINES = 3


@dataclass(frozen=True)
class Task:
    """A command, the file for its output, and the task that must be done before it."""

    command: Sequence[str]
    log: Path
    after: Key | None = None


def run_tasks(
    tasks: Mapping[Key, Task],
    workers: int,
    say: Callable[[str], None] = lambda line: None,
    finished: Callable[[Key], None] = lambda key: None,
) -> None:
    """Run all tasks, `workers` at a time. If one fails, the others are stopped and save their state.

    `finished` is called with the key of each task that is done.
    """
    waiting, done, started = dict(tasks), set[Key](), time.monotonic()
    running: dict[Key, subprocess.Popen[bytes]] = {}
    try:
        while waiting or running:
            for key in _ready(waiting, done)[: workers - len(running)]:
                running[key] = _start(waiting.pop(key))
            for key in [key for key, process in running.items() if process.poll() is not None]:
                _check(running.pop(key), tasks[key])
                done.add(key)
                finished(key)
                left = time_left(time.monotonic() - started, len(done), len(tasks))
                say(f"{key[0]}, {key[1]}: done ({len(done)} of {len(tasks)}{left})")
            time.sleep(PAUSE)
    finally:
        _stop(list(running.values()))


def time_left(seconds: float, done: int, total: int) -> str:
    """How long the other tasks will take at the pace of those that are done.

    >>> time_left(600, 2, 6), time_left(600, 6, 6)
    (', about 20 min left', '')
    """
    return f", about {duration(seconds / done * (total - done))} left" if done < total else ""


def _ready(waiting: Mapping[Key, Task], done: set[Key]) -> list[Key]:
    return [key for key, task in waiting.items() if task.after is None or task.after in done]


def _start(task: Task) -> subprocess.Popen[bytes]:
    make_folder(task.log.parent)
    refuse_link(task.log)
    try:
        log = task.log.open("ab")
    except OSError as error:
        raise disk_error(task.log, error) from error
    with log:
        return start_watched(task.command, log)


def _check(process: subprocess.Popen[bytes], task: Task) -> None:
    if process.returncode:
        lines = read_file(task.log, TEXT).decode(errors="replace").strip().splitlines()
        last = " / ".join(lines[-LAST_LINES:]) or f"exit code {process.returncode}"
        raise UserError(f"{task.log}: the run failed: {last}")


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Send SIGTERM, on which a training saves and exits, and wait."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


def python() -> list[str]:
    """The command that runs this package in a new process."""
    return [sys.executable, "-m", "protopyramid"]
