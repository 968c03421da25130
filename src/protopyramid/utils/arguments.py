"""Arguments of public functions, checked at the door: what was expected, and what came."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protopyramid.errors import UserError


def as_path(value: Any, what: str) -> Path:
    """The path that an argument is; TypeError for anything else.

    >>> as_path(3, "run")
    Traceback (most recent call last):
    ...
    TypeError: run: expected a path as text or pathlib.Path, got int
    """
    if not isinstance(value, str | os.PathLike):
        raise wrong_type(what, "a path as text or pathlib.Path", value)
    plain = os.fspath(value)
    if not isinstance(plain, str):
        raise wrong_type(what, "a path as text or pathlib.Path", value)
    if not plain:  # it would be the current folder
        raise UserError(f"{what}: expected a path, got an empty text")
    return Path(plain)


def paths_of(values: Any, what: str) -> list[Path]:
    """The paths that an argument is: one, or a list."""
    if isinstance(values, str | os.PathLike):
        return [as_path(values, what)]
    if not isinstance(values, Sequence) or isinstance(values, bytes):
        raise wrong_type(what, "a path or a list of paths", values)
    return [as_path(each, what) for each in values]


def checked_type(value: Any, kind: type, what: str, expected: str) -> None:
    """TypeError unless a value is of a kind."""
    if not isinstance(value, kind):
        raise wrong_type(what, expected, value)


def wrong_type(what: str, expected: str, value: object) -> TypeError:
    """The error of an argument of another type."""
    got = value.__name__ if isinstance(value, type) else type(value).__name__
    return TypeError(f"{what}: expected {expected}, got {got}")


def check_tensor(value: Any, what: str, shape: str, dimensions: int) -> None:
    """TypeError unless a value is a float tensor of `dimensions` dimensions with at least one element."""
    size = getattr(value, "shape", None)
    if size is None or not hasattr(value, "is_floating_point"):
        raise wrong_type(what, f"a tensor {shape}", value)
    if len(size) != dimensions or 0 in tuple(size):
        raise TypeError(f"{what}: expected a tensor {shape} with no side of 0, got {tuple(size)}")


def check_number(value: Any, what: str) -> None:
    """TypeError unless a value is a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(what, "a number", value)
