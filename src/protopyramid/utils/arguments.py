"""Arguments of public functions, checked at the door: what was expected, and what came."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

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
    if "\0" in plain:
        raise UserError(f"{what}: no file can have the name {plain}")
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
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong_type(what, "a number", value)


def check_count(value: Any, what: str, least: int = 0) -> None:
    """TypeError unless a value is a whole number, UserError if it is too small or beyond any use.

    >>> check_count(-1, "seed")
    Traceback (most recent call last):
    ...
    protopyramid.errors.UserError: seed: expected a whole number from 0 to 4294967295, got -1
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise wrong_type(what, "a whole number", value)
    if not least <= int(value) <= LARGEST:
        raise UserError(f"{what}: expected a whole number from {least} to {LARGEST}, got {value}")


def check_counts(values: Any, what: str) -> None:
    """TypeError unless a value is a list of whole numbers, or a table whose keys are."""
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | Mapping):
        raise wrong_type(what, "a list of whole numbers", values)
    for each in values:
        check_count(each, what)


def _check_list(values: Any, what: str) -> None:
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise wrong_type(what, "a list", values)


def _check_weights(values: Any, what: str) -> None:
    expected = "a table {prototype: {class: weight}}"
    checked_type(values, Mapping, what, expected)
    for index, row in values.items():
        check_count(index, what)
        checked_type(row, Mapping, f"{what}[{index}]", "a table {class: weight}")
        for name, weight in row.items():
            check_number(weight, f"{what}[{index}][{name}]")


def _check_picture(value: Any, what: str) -> None:
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        raise wrong_type(what, "an array (S, S)", value)
    if len(shape) != 2 or 0 in shape:
        raise TypeError(f"{what}: expected an array (S, S), got {tuple(shape)}")


LARGEST = 2**32 - 1  # the largest seed, and more than there is of anything
TEXT = "a text"
P = ParamSpec("P")
R = TypeVar("R")
Check = Callable[[Any, str], object]


def _is(kind: type, expected: str) -> Check:
    return lambda value, what: checked_type(value, kind, what, expected)


def _is_called(value: Any, what: str) -> None:
    if not callable(value):
        raise wrong_type(what, "a function", value)


# The check of an argument, by how it is annotated. Arguments of other types are checked where they are used.
BY_ANNOTATION: dict[str, Check] = {
    "int": check_count,
    "float": check_number,
    "bool": _is(bool, "True or False"),
    "str": _is(str, TEXT),
    "Place": as_path,
    "Update": _is_called,
    "Bars": _is_called,
    "Callable[[Path, UserError], None]": _is_called,
    "Sequence[Box]": _check_list,
    "Sequence[str]": _check_list,
    "Sequence[int]": check_counts,
    "Sequence[int] | Required": check_counts,
    "Weights": _check_weights,
    "NDArray[Any]": _check_picture,
}


def checked_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """A function that checks its plain arguments by their annotations before it does anything.

    >>> @checked_arguments
    ... def draw(count: int, title: str | None = None) -> int:
    ...     return count
    >>> draw(3), draw(count=2, title="a")
    (3, 2)
    >>> draw(1, title=5)
    Traceback (most recent call last):
    ...
    TypeError: title: expected a text or None, got int
    """
    signature = inspect.signature(function)
    annotations = {name: _annotated(each) for name, each in signature.parameters.items()}
    checks = {
        name: (BY_ANNOTATION[kind], optional)
        for name, (kind, optional) in annotations.items()
        if kind in BY_ANNOTATION
    }

    @wraps(function)
    def checking(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            check, optional = checks.get(name, (None, True))
            if check is not None and not (optional and value is None):
                _apply(check, value, name, optional)
        return function(*args, **kwargs)

    return checking


def _apply(check: Check, value: Any, name: str, optional: bool) -> None:
    try:
        check(value, name)
    except TypeError as error:
        if not optional:
            raise
        raise TypeError(str(error).replace(", got ", " or None, got ", 1)) from None


def _annotated(parameter: inspect.Parameter) -> tuple[str, bool]:
    """The annotation of a parameter as it is written, without None, and whether None is allowed."""
    kind = parameter.annotation
    written = kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))
    return written.removesuffix(" | None"), written.endswith(" | None")


def checked_tensors(**shapes: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that checks the shapes of its tensors, and its plain arguments, before it does anything.

    Shapes are names of sides: maps="B m h w", own="bool B m". Sides of one name are equal in all tensors.

    >>> @checked_tensors(scores="B m", labels="B")
    ... def loss(scores, labels): ...
    >>> loss([1.0], None)
    Traceback (most recent call last):
    ...
    TypeError: scores: expected a tensor (B, m), got list
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature, checked = inspect.signature(function), checked_arguments(function)

        @wraps(function)
        def checking(*args: P.args, **kwargs: P.kwargs) -> R:
            given, sides = signature.bind(*args, **kwargs).arguments, dict[str, int]()
            for name, shape in shapes.items():
                _check_shape(given[name], name, shape, sides)
            return checked(*args, **kwargs)

        return checking

    return decorate


def _check_shape(value: Any, what: str, shape: str, sides: dict[str, int]) -> None:
    """TypeError unless a tensor has a shape; the sizes of its sides are noted in `sides`."""
    of_bool, names = shape.startswith("bool "), shape.removeprefix("bool ").split()
    expected = f"a {'bool ' if of_bool else ''}tensor ({', '.join(names)})"
    if not hasattr(value, "shape") or not hasattr(value, "is_floating_point"):
        raise wrong_type(what, expected, value)
    size = tuple(value.shape)
    if of_bool and str(value.dtype) != "torch.bool":
        raise TypeError(f"{what}: expected {expected}, got {value.dtype}")
    known = {name: sides[name] for name in names if name in sides}
    if len(size) != len(names) or any(size[names.index(name)] != known[name] for name in known):
        of = "".join(f", {name} = {known[name]}" for name in known)
        raise TypeError(f"{what}: expected {expected}{of}, got {size}")
    sides.update(zip(names, size, strict=True))
