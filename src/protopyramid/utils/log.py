"""What the library says while it works, through the logger "protopyramid".

Lines of progress are INFO, files that are written are DEBUG. Library users switch it as any other logger:

    logging.getLogger("protopyramid").setLevel(logging.WARNING)

Unless they have given it a handler of their own before, lines go to stderr, as on the command line.
"""

from __future__ import annotations

import logging
import sys

from protopyramid.errors import printable

NAME = "protopyramid"
LOGGER = logging.getLogger(NAME)


class _OneLine(logging.Formatter):
    """A message is one line, whatever the names in it hold."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Plain lines on whatever stderr is when they are written."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(_OneLine("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def logger() -> logging.Logger:
    """The library's logger; it writes to stderr alone unless somebody has given it a handler."""
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
    if not LOGGER.handlers:
        LOGGER.addHandler(_Stderr())
        LOGGER.propagate = False
    return LOGGER


def set_verbosity(quiet: bool, verbose: bool) -> None:
    """Quiet: warnings and errors alone. Verbose: also which files are read and written."""
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logger().setLevel(level)


def shows_progress() -> bool:
    """Whether lines and bars of progress are wanted."""
    return logger().isEnabledFor(logging.INFO)
