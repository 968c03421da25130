"""Results of a benchmark, as text and as JSON."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from protopyramid.benchmarks.growth import Curve
from protopyramid.benchmarks.row import Row
from protopyramid.utils.files import write_json

VERDICTS = {True: "met", False: "MISSED", None: "–"}
HEADER = ["work", "compared with", "ours", "reference", "ratio", "range", "target", "verdict"]


def machine() -> dict[str, Any]:
    """The machine and software that the figures depend on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }


class OtherPrograms:
    """How much of the machine other programs used since this was created (Linux only)."""

    def __init__(self) -> None:
        self._busy, self._own, self._start = _busy_seconds(), _own_seconds(), time.monotonic()

    @property
    def share(self) -> float | None:
        """Their share of all cores, 0 to 1; None where the system does not say."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        cores = os.cpu_count() or 1
        theirs = (busy - self._busy) - (_own_seconds() - self._own)
        return min(1.0, max(0.0, theirs / (cores * (time.monotonic() - self._start))))


def _busy_seconds() -> float | None:
    """Busy seconds of all cores since the system started; None where it does not say."""
    try:
        first = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system = (int(ticks) for ticks in first[1:4])
    return (user + nice + system) / float(os.sysconf("SC_CLK_TCK"))


def _own_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def cells(row: Row) -> list[str]:
    """A row as the cells of the table."""
    return [
        row.work,
        row.limit,
        _quantity(row.ours, row.unit),
        _quantity(row.reference, row.unit),
        _figure(row.value, row),
        f"{_number(row.low)} … {_number(row.high)}",
        "" if row.bound is None else ("≥ " if row.at_least else "≤ ") + _figure(row.bound, row),
        VERDICTS[row.met],
    ]


def notes(rows: Sequence[Row]) -> list[str]:
    """Remarks on single rows."""
    return [f"{row.work}: {row.note}" for row in rows if row.note]


def summary(rows: Sequence[Row]) -> str:
    """How many targets are met."""
    judged = [row for row in rows if row.met is not None]
    missed = [row.work for row in judged if not row.met]
    text = f"{len(judged) - len(missed)} of {len(judged)} targets met"
    return text + (f"; missed: {'; '.join(missed)}" if missed else "")


def write_rows(
    rows: Sequence[Row], settings: object, took: float, others: float | None, path: Path
) -> Path:
    """The rows as JSON."""
    content = {
        "machine": machine(),
        "settings": settings,
        "took": took,
        "share_of_other_programs": others,
        "rows": [row.to_json() for row in rows],
    }
    return _write(path, content)


def write_curves(curves: Sequence[Curve], took: float, others: float | None, path: Path) -> Path:
    """The growth curves as JSON."""
    content = {
        "machine": machine(),
        "took": took,
        "share_of_other_programs": others,
        "curves": [curve.to_json() for curve in curves],
    }
    return _write(path, content)


def _write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_json(path, content)


def _quantity(value: float, unit: str) -> str:
    if not unit:
        return ""
    if unit == "s" and value < 1.0:
        return f"{_number(1000 * value)} ms"
    return f"{_number(value)} {unit}"


def _figure(value: float, row: Row) -> str:
    space = "" if row.figure == "x" else " "
    return f"{_number(value)}{space}{row.figure}"


def _number(value: float) -> str:
    """Three digits, whatever the size.

    >>> _number(1.0451), _number(0.0402), _number(48123.0), _number(1.2e-6), _number(0.0)
    ('1.05', '0.0402', '48,123', '1.2e-06', '0')
    """
    if value == 0:
        return "0"
    if abs(value) < 1e-3:
        return f"{value:.1e}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1 or abs(value) >= 10 else f"{value:.2f}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
