"""Orderly stops: a signal is noted, the batch is finished, the state is saved."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """Training was stopped by a signal; `code` is the exit code.

    `saved` says whether a checkpoint exists. Without one the work so far is lost, and the same
    command starts from the beginning.
    """

    def __init__(self, number: int, saved: bool = True) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.code = 128 + number
        self.saved = saved

    def advice(self, command: str) -> str:
        """One line on what was stopped, what is saved, and the command that continues.

        >>> Stopped(signal.SIGINT, saved=False).advice("train …")
        'stopped by SIGINT before the first checkpoint: this training is not saved. Start again with: train …'
        """
        if self.saved:
            return f"{self}; everything is saved. Continue with: {command}"
        return (
            f"{self} before the first checkpoint: this training is not saved. "
            f"Start again with: {command}"
        )


class StopRequest:
    """Notes SIGTERM and SIGINT while it is entered; a second signal of a kind acts at once."""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in SIGNALS:
            try:
                self._before[number] = signal.signal(number, self._note)
            except ValueError:  # not the main thread, which alone may handle signals
                break
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        signal.signal(number, self._before[number])
