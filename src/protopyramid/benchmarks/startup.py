"""The row on start-up: the first answer of the command line."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator

from protopyramid.benchmarks.row import Row
from protopyramid.benchmarks.settings import Settings
from protopyramid.benchmarks.timing import in_turns

HELP_TARGET = 0.4  # ours: seconds over Python's own start


def help_row(settings: Settings) -> Iterator[Row]:
    """`--help` against Python's own start."""

    def run(*arguments: str) -> Callable[[], object]:
        command = [sys.executable, *arguments]
        return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    pair = in_turns(
        run("-m", "protopyramid", "--help"), run("-c", "pass"), settings.quick_repetitions
    )
    over = [a - b for a, b in zip(pair.ours, pair.reference, strict=True)]
    ours, bare = statistics.median(pair.ours), statistics.median(pair.reference)
    yield Row(
        "protopyramid --help",
        "bare Python start",
        ours - bare,
        min(over),
        max(over),
        HELP_TARGET,
        at_least=False,
        ours=ours,
        reference=bare,
        figure="s over it",
    )
