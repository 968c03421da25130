"""Peak memory of a piece of work, measured in a process of its own.

Tensors live outside Python's own heap, so the figure is the resident set as the system counts it: its
peak while the work runs, minus what was there before, inputs included.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # proc(5): resets the peak resident set size


def can_measure() -> bool:
    """Whether this system says how much memory a process held at most (Linux does)."""
    return STATUS.exists() and os.access(CLEAR, os.W_OK)


def peak_of(work: Callable[[], object]) -> int:
    """Bytes that the work needs at its peak, beyond what this process holds now."""
    _give_back()
    before = _resident("VmRSS")
    CLEAR.write_text(RESET_PEAK)
    work()
    return max(0, _resident("VmHWM") - before)


def peak_in_child(function: str, *arguments: int) -> int:
    """Call `module:function` with whole numbers in a fresh process; it returns its peak in bytes."""
    command = [sys.executable, "-m", __name__, function, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def _give_back() -> None:
    """Return freed memory to the system: what the work could reuse would not count as needed."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident(field: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{STATUS} has no field {field}")


def _main(function: str, *arguments: str) -> None:
    module, name = function.split(":")
    print(getattr(importlib.import_module(module), name)(*map(int, arguments)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
