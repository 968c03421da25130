"""Worker processes: results as they are ready, and no orphans after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import IO, TypeVar

from protopyramid.errors import UserError

WATCHED = "PROTOPYRAMID_WATCHED"  # set for a command whose parent holds its stdin open

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_processes(
    function: Callable[[Job], Result], jobs: Sequence[Job], workers: int
) -> Iterator[Result]:
    """The results of the jobs as they are ready, computed here or in `workers` processes.

    workers: 0 for one per CPU core.
    """
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    if workers <= 1:
        yield from map(function, jobs)
        return
    # Spawned, not forked: the progress bar runs in a thread.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start_worker)
    try:
        for future in as_completed([pool.submit(function, job) for job in jobs]):
            yield future.result()
    except BrokenProcessPool:
        raise UserError(
            "a worker process was killed, perhaps because memory ran out; "
            "run the same command with fewer --workers: it continues where it stopped"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """A worker leaves interrupts to its parent, and ends when its parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def start_watched(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a command that stops in order when this process dies, however it dies."""
    return subprocess.Popen(
        command,
        stdout=log,
        stderr=log,
        stdin=subprocess.PIPE,
        env={**os.environ, WATCHED: "1"},
    )


def stop_with_parent() -> None:
    """In a command that `start_watched` started: send this process SIGTERM when its parent has died."""
    if os.environ.pop(WATCHED, ""):
        threading.Thread(target=_stop_at_end_of_stdin, daemon=True).start()


def _stop_at_end_of_stdin() -> None:
    while os.read(0, 1):  # ends when the parent's end of the pipe is closed
        pass
    os.kill(os.getpid(), signal.SIGTERM)
