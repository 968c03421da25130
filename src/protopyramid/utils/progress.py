"""What the user sees of long work: live bars on a terminal, plain lines in a log.

    with Reporter() as reporter, reporter.activity("scoring", total=992) as scoring:
        for batch in batches:
            ...
            scoring.advance(len(batch))

prints nothing in a log if that takes less than ten seconds, and otherwise, every so often,

    scoring: 320 of 992 images (32 %), about 2 min left
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from protopyramid.errors import printable
from protopyramid.utils.log import logger, shows_progress

FIRST_LINE = 10.0  # seconds of silence before the first line of an activity in a log
NEXT_LINE = 30.0  # seconds, at least, between two lines
NEXT_SHARE = 0.1  # of the work, at least, between two lines ...
LONGEST_SILENCE = 120.0  # ... unless this many seconds have passed

Clock = Callable[[], float]
Update = Callable[[int, int], None]  # done, total
Bars = Callable[[str], AbstractContextManager[Update]]  # a bar for each part of a computation


def _nothing(*_: object) -> None:
    pass


class Activity:
    """One piece of long work: what it does, how far along it is, when it should end.

    `total` None: it is unknown how much there is. `done`: what was done before, which says nothing about
    the pace. `say` prints a line of a log; `show`, if given, draws a bar instead. `check` is called at every
    advance and may raise, to interrupt the work.
    """

    def __init__(
        self,
        what: str,
        total: float | None = None,
        unit: str = "images",
        done: float = 0.0,
        *,
        say: Callable[[str], None] = _nothing,
        show: Callable[[Activity], None] | None = None,
        check: Callable[[], None] = _nothing,
        clock: Clock = time.monotonic,
    ) -> None:
        self.what, self.total, self.unit, self.note = what, total, unit, ""
        self.done = self._first = done
        self._say, self._show, self._check, self._clock = say, show, check, clock
        self._started = clock()
        self._last_line: tuple[float, float] | None = None  # when, and what was done by then

    def advance(self, amount: float = 1.0, note: str = "") -> None:
        """Count more work as done; `note` is shown beside it."""
        self._check()
        self.note = note
        self.done += amount
        if self.total is not None:
            self.done = min(self.done, self.total)
        if self._show is not None:
            self._show(self)
        elif self._line_is_due():
            self._last_line = (self._clock(), self.done)
            self._say(f"{self.what}: {self.status()}")

    def finish(self) -> None:
        """End a log's lines, if there were any, with one that says how long it took."""
        if self._last_line is not None:
            self._say(f"{self.what}: done in {duration(self._clock() - self._started)}")

    def status(self) -> str:
        """How far along the work is, and when it should end."""
        elapsed = self._clock() - self._started
        if self.total is None:
            text = f"{duration(elapsed)} so far"
        else:
            share = self.done / self.total if self.total else 1.0
            text = f"{self.done:.0f} of {self.total:.0f} {self.unit} ({100 * share:.0f} %)"
            pace = elapsed / (self.done - self._first) if self.done > self._first else 0.0
            if pace and share < 1:
                text += f", about {duration(pace * (self.total - self.done))} left"
        return f"{text}; {self.note}" if self.note else text

    def _line_is_due(self) -> bool:
        now = self._clock()
        if self.total is not None and self.done >= self.total:
            return False  # `finish` has the last word
        if self._last_line is None:
            return now - self._started >= FIRST_LINE
        silence = now - self._last_line[0]
        if silence >= LONGEST_SILENCE:
            return True
        more = self.total is not None and self.done - self._last_line[1] >= NEXT_SHARE * self.total
        return more and silence >= NEXT_LINE


class Reporter:
    """Shows a training: its phase, epoch, loss terms, validation AUROC, speed and time left.

    Use as a context manager. With `quiet` (processes other than the first) it shows nothing. `check` is
    called whenever an activity advances, and may raise. Without epochs there are activities alone.
    """

    def __init__(
        self,
        total_epochs: int = 0,
        quiet: bool = False,
        check: Callable[[], None] = _nothing,
        clock: Clock = time.monotonic,
    ) -> None:
        self.console = Console(file=sys.stderr, quiet=quiet, soft_wrap=True, highlight=False)
        self.clock = clock
        self._check = check
        self._quiet = quiet
        self._is_terminal = self.console.is_terminal and not quiet and shows_progress()
        self._live = False
        self._total = total_epochs
        self._schedule: TaskID | None = None
        self._said: set[str] = set()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[status]}"),
            console=self.console,
        )

    def __enter__(self) -> Reporter:
        if self._is_terminal:
            self._live = True
            self._bars.start()
            if self._total:
                self._schedule = self._bars.add_task("schedule", total=self._total, status="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._bars.stop()
            self._live = False

    def say(self, line: str) -> None:
        """Print a line, above the bars where there are any."""
        if self._live:
            self.console.print(printable(line), markup=False)
        elif not self._quiet:
            logger().info("%s", line)

    def say_once(self, topic: str, line: str) -> None:
        """Print a line, unless one on this topic was printed before."""
        if topic not in self._said:
            self._said.add(topic)
            self.say(line)

    @contextmanager
    def activity(
        self,
        what: str,
        total: float | None = None,
        unit: str = "images",
        done: float = 0.0,
        checked: bool = True,
    ) -> Iterator[Activity]:
        """A piece of work within the block, with a bar of its own or lines in a log.

        Without `checked`, nothing interrupts it: for work that checks for signals itself.
        """
        task: TaskID | None = None

        def show(activity: Activity) -> None:
            nonlocal task
            if task is None:
                task = self._bars.add_task(what, total=total, status="")
            self._bars.update(task, completed=activity.done, status=activity.status())

        activity = Activity(
            what,
            total,
            unit,
            done,
            say=self.say,
            show=show if self._live else None,
            check=self._check if checked else _nothing,
            clock=self.clock,
        )
        try:
            yield activity
            activity.finish()
        finally:
            if task is not None:
                self._bars.remove_task(task)

    @contextmanager
    def bar(self, what: str, unit: str = "images", announce: bool = False) -> Iterator[Update]:
        """Give a function of (done, total) that shows an activity; with `announce`, say its size first."""
        with ExitStack() as stack:
            activity: Activity | None = None

            def update(done: int, total: int) -> None:
                nonlocal activity
                if activity is None:
                    activity = stack.enter_context(self.activity(what, total, unit))
                    if announce:
                        self.say(f"{what}: {total} {unit}")
                activity.advance(done - activity.done)

            yield update

    def schedule(self, epochs_done: float, seconds_left: float) -> None:
        """Move the bar of the whole schedule."""
        if self._schedule is not None:
            status = (
                f"{epochs_done:.1f} of {self._total} epochs, about {duration(seconds_left)} left"
            )
            self._bars.update(self._schedule, completed=epochs_done, status=status)

    def epoch(
        self, record: Mapping[str, Any], phase_seconds_left: float, seconds_left: float
    ) -> None:
        """Print the line of a finished epoch, a record of metrics.jsonl."""
        validation = record.get("validation")
        parts = [
            f"phase {record['stage']}",
            f"epoch {int(record['epoch'])}/{self._total}",
            terms(record["losses"]),
        ]
        if validation:
            parts.append(metrics_text(validation))
        parts.append(f"{record['images_per_second']:.1f} images/s")
        parts.append(
            f"left: about {duration(phase_seconds_left)} of this phase, {duration(seconds_left)} in all"
        )
        self.say("  ".join(parts))


def duration(seconds: float) -> str:
    """A time span in words.

    >>> duration(4.2), duration(720), duration(7500), duration(200_000)
    ('4 s', '12 min', '2 h 5 min', '56 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours < 10 and rest else f"{minutes / 60:.0f} h"


def terms(losses: Mapping[str, float]) -> str:
    """Loss terms in a line.

    >>> terms({"cross_entropy": 0.5, "fine": 12.25})
    'cross entropy 0.500  fine 12.250'
    """
    return "  ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in losses.items())


def metrics_text(validation: Mapping[str, float | None]) -> str:
    """Validation metrics in a line."""
    auroc = validation["auroc"]
    shown = "undefined" if auroc is None else f"{auroc:.3f}"
    return f"validation AUROC {shown}  accuracy {validation['accuracy']:.3f}"


@contextmanager
def progress_bar(what: str, unit: str = "images", announce: bool = False) -> Iterator[Update]:
    """Give a function of (done, total) that shows an activity; with `announce`, say its size first.

    Examples:
        >>> with progress_bar("decoding") as update:
        ...     update(1, 2)
    """
    with Reporter() as reporter, reporter.bar(what, unit, announce) as update:
        yield update


@contextmanager
def no_bar(what: str) -> Iterator[Update]:
    """In place of a bar, nothing."""
    yield _nothing
