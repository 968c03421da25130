"""Locks between processes, on every operating system; the system releases them when a process ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from protopyramid.errors import UserError
from protopyramid.utils.files import LOCK, disk_error
from protopyramid.utils.opening import exists

PAUSE = 0.2  # seconds between two attempts


@contextmanager
def locked(folder: Path, busy: Callable[[], None]) -> Iterator[None]:
    """Hold a folder for this process; it is created if needed.

    While another process holds it, `busy` is called again and again: it raises to give up, or returns
    to wait.
    """
    lock = FileLock(folder / LOCK)
    new = not exists(folder)
    unlocked = new or not exists(folder / LOCK)
    while not _acquired(lock, folder):
        busy()
        time.sleep(PAUSE)
    try:
        yield
    except BaseException:
        if unlocked:
            _forget(folder, new)
        raise
    finally:
        lock.release()


def in_use(folder: Path) -> UserError:
    """The error of a folder that another process writes."""
    return UserError(
        f"{folder}: another process is writing it; wait for it or choose another folder"
    )


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a folder that is written to; UserError where another process does. No lock is left in it."""

    def busy() -> None:
        raise in_use(folder)

    with locked(folder, busy):
        try:
            yield
        finally:
            # While it is held: whoever has opened it meanwhile sees that it is gone, and tries again.
            with suppress(OSError):
                (folder / LOCK).unlink()


def wait_for(folder: Path, seconds: float) -> None:
    """Wait until no other process holds a folder, or the time is over."""
    if not exists(folder / LOCK):
        return
    with suppress(Timeout, OSError), FileLock(folder / LOCK, timeout=seconds):
        pass


def _forget(folder: Path, new: bool) -> None:
    """Remove the lock, and a new folder, of work that did not begin: nothing else is in it."""
    with suppress(OSError):
        if all(each.name == LOCK for each in folder.iterdir()):
            (folder / LOCK).unlink(missing_ok=True)
            if new:
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
