"""Runs the command line in processes of its own, forked from one that has already imported torch.

A server for tests: each line of its input is a list of jobs, which run side by side; its answer is their
exit codes. A job may have faults, so that it can be killed, stopped or made to fail at the n-th call of
any function: what a real machine does at a moment that cannot be chosen.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any

PRELOADED = (
    "protopyramid.training.engine",
    "protopyramid.studies.crossval",
    "protopyramid.inference.prediction",
    "torch.utils.tensorboard.writer",
)


def inject(target: str, call: int, signal: int = 0, error: str = "", when: str = "") -> None:
    """Make the `call`-th call of "module:name" (or a method) meet a signal or a system error.

    `when`: only calls whose arguments, written out, contain this count.
    """
    module, _, path = target.partition(":")
    *outer, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    original = getattr(owner, name)
    calls = 0

    def faulty(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        counts = when in repr((arguments, options))
        calls += counts
        if counts and calls == call:
            if error:
                raise OSError(getattr(errno, error), os.strerror(getattr(errno, error)))
            os.kill(os.getpid(), signal)
        return original(*arguments, **options)

    setattr(owner, name, faulty)


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
