"""Locks between processes, on every operating system; the system releases them when a process ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from protopyramid.utils.files import disk_error
from protopyramid.utils.opening import exists

LOCK = ".lock"
PAUSE = 0.2  # seconds between two attempts


@contextmanager
def locked(folder: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Hold a folder for this process; it is created if needed.

    While another process holds it, `busy` is called again and again: it raises to give up, or returns
    to wait.
    """
    lock = FileLock(folder / LOCK)
    new = not exists(folder)
    while not _acquired(lock, folder):
        busy()
        time.sleep(PAUSE)
    try:
        yield
    except BaseException:
        if new:
            _forget(folder)
        raise
    finally:
        lock.release()


def _forget(folder: Path) -> None:
    """Remove a folder that was made for work which then did not begin: nothing is in it but the lock."""
    with suppress(OSError):
        if [each.name for each in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()


def _acquired(lock: BaseFileLock, folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:
        return False
    except OSError as error:
        raise disk_error(folder, error) from error
    return True
