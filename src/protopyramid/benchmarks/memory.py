"""Peak memory of a piece of work, measured in a separate process.

The memory of a piece of work is what it holds at its worst moment beyond its inputs: results, what is kept
for the gradient, temporaries. Both sides of a ratio are measured alike, in three ways:

tensors
    Every allocation and release of torch's CPU allocator, as its profiler records them; the peak of
    their running sum. It is exact and the same each time, but blind to what libraries take for themselves.
resident
    The resident set as the system counts it: its peak while the work runs, minus what was there
    before. It sees everything, the allocator's habits included: glibc gives large blocks back to the
    system when they are freed and keeps small ones, and moves the limit between the two with use, up to
    32 MB. So a block of 30 MB can count twice (kept, and once more elsewhere) or not at all (taken from
    what was kept), and the figure depends on what ran before. In the child the limit is fixed and low
    (`GIVES_BACK`): what is freed is returned at once.
python
    Python's own heap, by tracemalloc: whether something large hides outside tensors.

Libraries allocate their buffers on their first call, so a small version of the work runs before it counts.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # proc(5): resets the peak resident set size
GIVES_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
QUIET = {"KINETO_LOG_LEVEL": "6"}  # the profiler's own messages
MEMORY_EVENT = "[memory]"  # the profiler's name for an allocation or a release


@dataclass(frozen=True)
class Peaks:
    """Bytes at the worst moment; `resident` is None where the system does not say."""

    tensors: int
    resident: int | None
    python: int


def peaks_of(work: Callable[[], object]) -> Peaks:
    """What the work needs at its peak, measured in three ways; it is called once for each.

    The resident set comes first, before the other two change what the process holds.
    """
    resident = resident_peak(work) if can_measure_resident() else None
    return Peaks(tensor_peak(work), resident, python_peak(work))


def peaks_in_child(function: str, *arguments: int) -> Peaks:
    """Call `module:function` with whole numbers in a fresh process; it returns its `Peaks`."""
    command = [sys.executable, "-m", __name__, function, *map(str, arguments)]
    environment = {**os.environ, **GIVES_BACK, **QUIET}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return Peaks(**json.loads(done.stdout.splitlines()[-1]))


def tensor_peak(work: Callable[[], object]) -> int:
    """Bytes of tensors alive at the peak, beyond those that were alive before."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    assert record.profiler is not None and record.profiler.kineto_results is not None
    events = record.profiler.kineto_results.events()
    changes: list[tuple[int, int]] = [
        (event.start_ns(), event.nbytes()) for event in events if event.name() == MEMORY_EVENT
    ]
    changes.sort(key=lambda change: change[0])
    return max(accumulate((size for _, size in changes), initial=0))


def can_measure_resident() -> bool:
    """Whether this system says how much memory a process held at most (Linux does)."""
    return STATUS.exists() and os.access(CLEAR, os.W_OK)


def resident_peak(work: Callable[[], object]) -> int:
    """Bytes of resident memory at the peak, beyond what this process holds now."""
    _give_back()
    before = _resident("VmRSS")
    CLEAR.write_text(RESET_PEAK)
    work()
    return max(0, _resident("VmHWM") - before)


def highest_resident() -> int:
    """Bytes of resident memory that this process held at most."""
    return _resident("VmHWM")


def python_peak(work: Callable[[], object]) -> int:
    """Bytes of Python's own heap at the peak, beyond what it holds now."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


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
    print(json.dumps(asdict(getattr(importlib.import_module(module), name)(*map(int, arguments)))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
