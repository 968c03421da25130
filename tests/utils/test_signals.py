"""A signal is noted; the second of its kind acts at once; afterwards everything is as before."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from protopyramid.utils.signals import Stopped, StopRequest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_is_noted_and_gives_the_exit_code(number: int, code: int) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert stop.number == 0
        os.kill(os.getpid(), number)
        assert stop.number == number
    assert signal.getsignal(number) is before
    stopped = Stopped(stop.number)
    assert stopped.code == code
    assert str(stopped) == f"stopped by {signal.Signals(number).name}"


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests run in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_second_signal_acts_at_once(interrupts: None) -> None:
    with pytest.raises(KeyboardInterrupt), StopRequest():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second signal did nothing")


def test_one_kind_does_not_use_up_the_other() -> None:
    with StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.number == signal.SIGTERM


def test_in_another_thread_signals_are_left_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def use() -> None:
        with StopRequest() as stop:
            found.append((stop.number, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == [(0, before)]


@pytest.mark.parametrize("saved", [True, False])
def test_what_is_said_of_the_stop_is_true(saved: bool) -> None:
    advice = Stopped(signal.SIGINT, saved).advice("protopyramid train --resume")
    assert advice.startswith("stopped by SIGINT")
    assert advice.endswith(": protopyramid train --resume")
    assert ("everything is saved" in advice) == saved
    assert ("not saved" in advice) == (not saved)
