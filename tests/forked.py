"""Runs the command line in processes of its own, forked from one that has already imported torch.

A server for tests: each line of its input is a list of jobs, which run side by side; its answer is their
exit codes. A job may have faults, so that it is killed, stopped or made to fail when it reaches a named
point (`protopyramid.utils.faults`) or calls a function of the standard library for the n-th time: what a
real machine does at a moment that cannot be chosen.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

PRELOADED = (
    "protopyramid.training.engine",
    "protopyramid.studies.crossval",
    "protopyramid.inference.prediction",
    "matplotlib.pyplot",
    "torch.utils.tensorboard.writer",
)


def inject(target: str, call: int, signal: int = 0, error: str = "", when: str = "") -> None:
    """Let a signal or a system error strike at the `call`-th time that a target is reached.

    The target is a point of `protopyramid.utils.faults`, or a function of the standard library as
    "module:name". `when`: only calls whose arguments, written out, contain this count.
    """
    calls = 0

    def strike_at(description: str) -> None:
        nonlocal calls
        counts = when in description
        calls += counts
        if counts and calls == call:
            if error:
                raise OSError(getattr(errno, error), os.strerror(getattr(errno, error)))
            os.kill(os.getpid(), signal)

    if ":" in target:
        before_calls(target, strike_at)
    else:
        at_point(target, strike_at)


def at_point(wanted: str, strike: Callable[[str], None]) -> None:
    """Call `strike` whenever the program reaches a point."""
    from protopyramid.utils import faults

    if wanted not in faults.POINTS:
        raise ValueError(f"no point {wanted!r}; the points are {faults.POINTS}")
    faults.observe(lambda point: strike(point) if point == wanted else None)


def before_calls(target: str, strike: Callable[[str], None]) -> None:
    """Call `strike` with the arguments, written out, before each call of a function."""
    module, _, name = target.partition(":")
    owner = importlib.import_module(module)
    original = getattr(owner, name)

    def struck(*arguments: Any, **options: Any) -> Any:
        strike(repr((arguments, options)))
        return original(*arguments, **options)

    setattr(owner, name, struck)


def work(job: dict[str, Any]) -> int:
    """One job, in its own process."""
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.environ.update(job["environment"])
    sys.argv = ["protopyramid", *job["arguments"]]
    for fault in job["faults"]:
        inject(**fault)
    from protopyramid.cli.main import main

    return main(job["arguments"])


def start(job: dict[str, Any]) -> int:
    """Fork a process for a job; returns its id."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = work(job)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    """Answer until the input ends."""
    for name in PRELOADED:
        importlib.import_module(name)
    for line in sys.stdin:
        processes = [start(job) for job in json.loads(line)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    serve()
