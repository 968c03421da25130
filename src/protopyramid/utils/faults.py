"""Points of long work at which a process may be killed, stopped or fail, and nothing may be lost.

The code calls `reached(point)` there, which does nothing unless someone observes. Tests observe, and send
a signal or raise an error the n-th time a point is reached:

    def observer(point: str) -> None:
        if point == "batch":
            raise KeyboardInterrupt

    with observed_by(observer):
        train_run(...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Point = Literal[
    "start",  # of a new run: everything was checked, nothing is written yet
    "batch",  # before an optimiser step
    "cache-write",  # before rows are written to the feature cache
    "cache-flush",  # before the feature cache is flushed to disk
    "project-batch",  # before a batch of the search for nearest patches
    "project",  # the candidates are collected, the prototypes not yet moved
    "fit-head",  # before the head is fitted
    "validate",  # before the validation split is scored
    "best",  # before the best model so far is written
    "checkpoint",  # before a checkpoint is written
]
POINTS: tuple[str, ...] = get_args(Point)
Observer = Callable[[str], None]

_observers: list[Observer] = []


def reached(point: Point) -> None:
    """Tell the observers, if there are any, that the work has come to this point."""
    for observer in _observers:
        observer(point)


def observe(observer: Observer) -> None:
    """Call `observer` with the name of every point that is reached, until the process ends."""
    _observers.append(observer)


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Within it, call `observer` with the name of every point that is reached."""
    observe(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
