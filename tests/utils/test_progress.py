"""Long work says what it does, how far it is and when it ends; short work says nothing. No test sleeps."""

from __future__ import annotations

import io
import re
import sys
from contextlib import ExitStack
from typing import Any

import pytest

from protopyramid.utils import progress as progress_module
from protopyramid.utils.progress import Activity, Reporter, duration, progress_bar


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Log:
    """The lines of an activity that takes `seconds` in equal steps, with the time of each."""

    def __init__(self, seconds: float, steps: int, total: float | None = 1000.0) -> None:
        self.lines: list[tuple[float, str]] = []
        self.clock = Clock()
        self.activity = Activity("scoring", total, say=self.say, clock=self.clock)
        for _ in range(steps):
            self.clock.now += seconds / steps
            self.activity.advance((total or steps) / steps)
        self.activity.finish()

    def say(self, line: str) -> None:
        self.lines.append((self.clock.now - 100.0, line))

    @property
    def times(self) -> list[float]:
        return [round(time) for time, _ in self.lines]


def test_work_of_less_than_ten_seconds_says_nothing() -> None:
    assert Log(seconds=9.9, steps=1000).lines == []


def test_the_first_line_comes_after_ten_seconds_with_what_how_far_and_time_left() -> None:
    log = Log(seconds=40, steps=40)
    assert log.lines[0] == (10.0, "scoring: 250 of 1000 images (25 %), about 30 s left")
    assert log.lines[-1] == (40.0, "scoring: done in 40 s")
    assert len(log.lines) == 2


@pytest.mark.parametrize("minutes", [1, 3, 5, 10, 45, 300])
def test_lines_are_neither_many_nor_far_apart(minutes: int) -> None:
    log = Log(seconds=60.0 * minutes, steps=60 * minutes)
    gaps = [after - before for before, after in zip(log.times, log.times[1:], strict=False)]
    assert min(gaps[:-1], default=30) >= 30  # the last line is the end
    assert max(gaps) <= 121
    shares = [int(found[1]) for _, line in log.lines if (found := re.search(r"\((\d+) %\)", line))]
    assert shares == sorted(shares)
    for before, after, gap in zip(shares, shares[1:], gaps, strict=False):
        assert after - before >= 9 or gap >= 120  # ten per cent, but for rounding


def test_the_time_left_is_right_at_a_steady_pace() -> None:
    log = Log(seconds=2700, steps=900)
    for time, line in log.lines[:-1]:
        assert line.endswith(f"about {duration(2700 - time)} left")


def test_work_that_was_done_before_does_not_count_for_the_pace() -> None:
    clock, lines = Clock(), []
    activity = Activity("epoch", 100, "batches", 90, say=lines.append, clock=clock)
    for _ in range(5):
        clock.now += 10
        activity.advance()
    assert lines[0] == "epoch: 91 of 100 batches (91 %), about 2 min left"  # 9 of 10 s each


def test_work_of_unknown_size_tells_the_time_so_far() -> None:
    log = Log(seconds=300, steps=300, total=None)
    assert log.lines[0] == (10.0, "scoring: 10 s so far")
    assert log.times[:3] == [10, 130, 250]


def test_a_check_may_interrupt_the_work() -> None:
    def check() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Activity("scoring", 10, check=check).advance()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def advance_for_a_minute(reporter: Reporter, clock: Clock) -> None:
    with reporter, reporter.activity("caching", 60) as activity:
        for _ in range(60):
            clock.now += 1
            activity.advance(note="fine 0.5")


def test_a_log_has_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    advance_for_a_minute(Reporter(5, clock=clock), clock)
    assert capsys.readouterr().err.splitlines() == [
        "caching: 10 of 60 images (17 %), about 50 s left; fine 0.5",
        "caching: 40 of 60 images (67 %), about 20 s left; fine 0.5",
        "caching: done in 60 s",
    ]


def test_a_terminal_has_bars_and_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = Terminal(), Clock()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    reporter = Reporter(5, clock=clock)
    with ExitStack() as live:
        live.enter_context(reporter)
        with reporter.activity("caching", 60) as activity:
            clock.now += 30
            activity.advance(30)
            reporter.schedule(2.5, 7500)
            live.close()  # draws the bars for the last time
    shown = terminal.getvalue()
    assert "30 of 60 images (50 %), about 30 s left" in shown
    assert "2.5 of 5 epochs, about 2 h 5 min left" in shown
    assert "done in" not in shown


def test_a_quiet_reporter_is_silent_but_still_checks(capsys: pytest.CaptureFixture[str]) -> None:
    clock, checks = Clock(), []
    reporter = Reporter(quiet=True, check=lambda: checks.append(1), clock=clock)
    reporter.say("a line")
    advance_for_a_minute(reporter, clock)
    assert capsys.readouterr().err == ""
    assert len(checks) == 60


def test_unchecked_work_is_not_interrupted() -> None:
    reporter = Reporter(check=lambda: pytest.fail("checked"))
    with reporter.activity("an epoch", 2, checked=False) as activity:
        activity.advance()


def test_one_line_for_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter()
    for number in range(3):
        reporter.say_once("advice", f"line {number}")
    reporter.say_once("another", "other")
    assert capsys.readouterr().err.splitlines() == ["line 0", "other"]


def test_the_line_of_an_epoch_tells_the_time_left_of_the_phase_and_in_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record: dict[str, Any] = {
        "stage": "A",
        "epoch": 2,
        "losses": {"cross_entropy": 0.5},
        "validation": {"auroc": None, "accuracy": 0.25},
        "images_per_second": 12.4,
    }
    Reporter(9).epoch(record, 30, 4000)
    assert capsys.readouterr().err.strip() == (
        "phase A  epoch 2/9  cross entropy 0.500  validation AUROC undefined  accuracy 0.250  "
        "12.4 images/s  left: about 30 s of this phase, 1 h 7 min in all"
    )


def test_a_bar_of_a_function_announces_its_size_and_is_silent_where_it_is_short(capsys) -> None:
    with progress_bar("computing limits", announce=True) as update:
        for done in range(4):
            update(done, 3)
    assert capsys.readouterr().err == "computing limits: 3 images\n"
    with progress_bar("computing limits") as update:
        update(3, 3)
    assert capsys.readouterr().err == ""


def test_a_bar_of_a_function_shows_how_far_a_long_computation_is(capsys, monkeypatch) -> None:
    clock = Clock()
    real = progress_module.Reporter
    monkeypatch.setattr(progress_module, "Reporter", lambda: real(clock=clock))
    with progress_bar("predict", "files") as update:
        update(0, 8)
        clock.now += 20
        update(2, 8)
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "predict: 2 of 8 files (25 %), about 60 s left"
