"""Silence for decoders: libraries in C write to the process's stderr beside our one line.

The command line gives Python's own stderr a descriptor of its own (`own_stderr`). From then on
descriptor 2 belongs to the libraries alone, and `quiet` turns it away while they decode. Elsewhere, in a
program that imports us, stderr is not ours, and nothing is changed.
"""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STDERR = 2

_lock = threading.Lock()
_depth = 0  # threads that decode at present
_kept = -1  # a copy of the libraries' stderr, while it is turned away
_ours = False


@contextmanager
def own_stderr() -> Iterator[None]:
    """Within it, Python writes to stderr by a descriptor of its own."""
    global _ours
    usual = sys.stderr
    if _ours or not _is_plain(usual):
        yield
        return
    usual.flush()
    sys.stderr = os.fdopen(
        os.dup(STDERR), "w", encoding=usual.encoding, errors="backslashreplace", buffering=1
    )
    _ours = True
    try:
        yield
    finally:
        _ours = False
        ours, sys.stderr = sys.stderr, usual
        ours.close()


@contextmanager
def quiet() -> Iterator[None]:
    """Within it, what libraries write to stderr is dropped; for any number of threads at once."""
    if not _ours:
        yield
        return
    _turn_away()
    try:
        yield
    finally:
        _turn_back()


def _turn_away() -> None:
    global _depth, _kept
    with _lock:
        _depth += 1
        if _depth == 1:
            _kept = os.dup(STDERR)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, STDERR)
            os.close(nowhere)


def _turn_back() -> None:
    global _depth, _kept
    with _lock:
        _depth -= 1
        if _depth == 0:
            os.dup2(_kept, STDERR)
            os.close(_kept)


def _is_plain(stream: object) -> bool:
    """Whether a stream is the process's stderr, and not one that a test or a program put in its place."""
    try:
        return isinstance(stream, io.TextIOWrapper) and stream.fileno() == STDERR
    except (OSError, ValueError):
        return False
