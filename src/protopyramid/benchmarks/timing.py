"""Timing two ways to do the same work, in turns.

A machine gets slower and faster while it is measured. Both sides of a ratio are therefore run in turns
(ours, reference, ours, reference …), and the ratio is that of their medians.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True)
class Pair:
    """Seconds of our way and of the reference, one of each per turn."""

    ours: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Our median over the reference's.

        >>> Pair((1.0, 3.0, 2.0), (4.0, 4.0, 5.0)).ratio
        0.5
        """
        return statistics.median(self.ours) / statistics.median(self.reference)

    @property
    def spread(self) -> tuple[float, float]:
        """The smallest and the largest ratio of a single turn.

        >>> Pair((1.0, 3.0), (4.0, 4.0)).spread
        (0.25, 0.75)
        """
        turns = [a / b for a, b in zip(self.ours, self.reference, strict=True)]
        return min(turns), max(turns)


def seconds(work: Work) -> float:
    """How long one call takes; garbage is collected before it, and not during it."""
    gc.collect()
    gc.disable()
    try:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start
    finally:
        gc.enable()


def in_turns(ours: Work, reference: Work, repetitions: int) -> Pair:
    """Both sides once unmeasured, to warm up, then in turns."""
    ours()
    reference()
    turns = [(seconds(ours), seconds(reference)) for _ in range(repetitions)]
    return Pair(tuple(a for a, _ in turns), tuple(b for _, b in turns))


def medians_in_turns(works: Sequence[Work], repetitions: int) -> tuple[float, ...]:
    """The median of each work, all run in turns after one unmeasured round.

    If points of a curve were minutes apart, changes of the machine would look like growth.
    """
    for work in works:
        work()
    rounds = [[seconds(work) for work in works] for _ in range(repetitions)]
    return tuple(statistics.median(turn) for turn in zip(*rounds, strict=True))
