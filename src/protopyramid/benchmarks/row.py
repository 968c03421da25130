"""One row of the speed table: ours, what it is compared with, and the target."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass
from typing import Any

from protopyramid.benchmarks.timing import Pair


@dataclass(frozen=True)
class Row:
    """One row of the table.

    The target is a `value` of at most `bound`, or of at least `bound` where `at_least`; a row without a
    bound is for information. `low` and `high` are the extremes of single turns. `ours` and `reference`
    are medians in `unit`; `figure` is the unit of the value.
    """

    work: str
    limit: str
    value: float
    low: float
    high: float
    bound: float | None
    at_least: bool
    ours: float
    reference: float
    unit: str = "s"
    figure: str = "x"
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def to_json(self) -> dict[str, Any]:
        """The row with its verdict."""
        return {**asdict(self), "met": self.met}


def at_most(work: str, limit: str, pair: Pair, bound: float | None, **more: Any) -> Row:
    """A row whose ratio, ours over the reference, should be small."""
    medians = statistics.median(pair.ours), statistics.median(pair.reference)
    return Row(work, limit, pair.ratio, *pair.spread, bound, False, *medians, **more)


def at_least(work: str, limit: str, pair: Pair, bound: float | None, **more: Any) -> Row:
    """A row whose ratio, the reference over ours, should be large."""
    turned = Pair(pair.reference, pair.ours)
    medians = statistics.median(pair.ours), statistics.median(pair.reference)
    return Row(work, limit, turned.ratio, *turned.spread, bound, True, *medians, **more)
