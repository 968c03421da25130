"""What the user sees while a model trains: a live bar on a terminal, one plain line otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class Reporter:
    """Shows stage, epoch, loss terms, validation AUROC, speed and time left.

    Use as a context manager. With `quiet` (processes other than the first) it shows nothing.
    """

    def __init__(self, total_epochs: int, quiet: bool = False) -> None:
        self.console = Console(file=sys.stderr, quiet=quiet, soft_wrap=True, highlight=False)
        self._live = self.console.is_terminal and not quiet
        self._total = total_epochs
        self._task = TaskID(0)
        self._started = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.1f}/{task.total:.0f} epochs"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self.console,
        )

    def __enter__(self) -> Reporter:
        if self._live:
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._total, note="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live:
            self._bar.stop()

    def say(self, line: str) -> None:
        """One line, above the bar where there is one."""
        self.console.print(line, markup=False)

    def batch(self, stage: str, epochs_done: float, losses: Mapping[str, float]) -> None:
        """Move the bar within an epoch."""
        if self._live:
            note = terms(losses)
            self._bar.update(
                self._task, description=f"stage {stage}", completed=epochs_done, note=note
            )

    def epoch(self, record: Mapping[str, Any]) -> None:
        """The line of a finished epoch."""
        done = int(record["epoch"])
        validation = record.get("validation")
        parts = [f"stage {record['stage']}", f"epoch {done}/{self._total}", terms(record["losses"])]
        if validation:
            parts.append(metrics_text(validation))
        parts.append(f"{record['images_per_second']:.0f} images/s")
        self.say("  ".join(parts))


def terms(losses: Mapping[str, float]) -> str:
    """Loss terms in a line.

    >>> terms({"cross_entropy": 0.5, "fine": 12.25})
    'cross entropy 0.500  fine 12.250'
    """
    return "  ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in losses.items())


def metrics_text(validation: Mapping[str, float | None]) -> str:
    """A validation score in a line."""
    auroc = validation["auroc"]
    shown = "undefined" if auroc is None else f"{auroc:.3f}"
    return f"validation AUROC {shown}  accuracy {validation['accuracy']:.3f}"
