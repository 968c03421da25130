"""Frozen dataclasses to JSON content and back, checked on the way in.

Examples:
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Point:
    ...     x: float
    ...     name: str | None = None
    >>> to_json(Point(1.0))
    {'x': 1.0, 'name': None}
    >>> from_json(Point, {"x": 1.0}, "point.json", "write it again")
    Point(x=1.0, name=None)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from protopyramid.errors import UserError
from protopyramid.utils.opening import RECORDS, Kind, read_text

T = TypeVar("T")


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}  # they are slow to build


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def read_json(path: Path, kind: Kind = RECORDS) -> Any:
    """The content of a JSON file; OSError where it cannot be read, ValueError where it is not JSON."""
    return parse_json(read_text(path, kind))


def parse_json(text: str | bytes) -> Any:
    """JSON as plain values; ValueError where it is none, or is nested too deeply.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: is nested too deeply
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def to_json(record: Any) -> Any:
    """The content of a dataclass as plain values, keys in the order of its fields."""
    return _adapter(type(record)).dump_python(record, mode="json", by_alias=True)


def from_json(kind: type[T], content: object, place: str | Path, remedy: str) -> T:
    """The dataclass of JSON content; UserError that names `place`, the key and the remedy.

    Unknown keys are ignored: a newer version may have written them. Types are not guessed.
    """
    try:
        record: T = _adapter(kind).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        raise UserError(f"{place}: damaged: {first_problem(error)}; {remedy}") from None
    return record


def first_problem(error: ValidationError) -> str:
    """The first thing that does not fit its type, on one line, and how many others there are."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "content"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{key}: {first['msg'].lower()}{more}"
