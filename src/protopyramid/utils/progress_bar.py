"""How far a long computation is: a bar on a terminal, about ten plain lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

LINES_IN_LOG = 10

Update = Callable[[int, int], None]  # done, total
Bars = Callable[[str], AbstractContextManager[Update]]  # a bar for each part of a computation


@contextmanager
def progress_bar(what: str, unit: str = "") -> Iterator[Update]:
    """Give a function of (done, total) that shows progress on stderr; `unit` names what is counted.

    Example:
        >>> with progress_bar("decoding", "images") as update:
        ...     update(1, 2)
    """
    if not sys.stderr.isatty():
        yield _plain_lines(what, unit)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), unit, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def no_bar(what: str) -> Iterator[Update]:
    """In place of a bar, nothing."""
    yield lambda done, total: None


def _plain_lines(what: str, unit: str) -> Update:
    last, started = -1, time.monotonic()

    def update(done: int, total: int) -> None:
        nonlocal last
        tenth = done * LINES_IN_LOG // max(total, 1)
        if tenth != last:
            last = tenth
            parts = [f"{what}: {done} of {total}", unit, _time_left(started, done, total)]
            print(" ".join(part for part in parts if part), file=sys.stderr, flush=True)

    return update


def _time_left(started: float, done: int, total: int) -> str:
    """The expected rest in words; nothing where it is short or unknown."""
    if not 0 < done < total:
        return ""
    left = (time.monotonic() - started) / done * (total - done)
    if left < 10:
        return ""
    return f"(about {left:.0f} s left)" if left < 100 else f"(about {left / 60:.0f} min left)"
