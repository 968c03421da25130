"""Arguments are checked at the door."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import protopyramid as pp
from protopyramid import api
from protopyramid.errors import UserError
from protopyramid.utils.arguments import as_path, check_count, check_counts, checked_arguments


@pytest.mark.parametrize("value", [None, 0.5, float("nan"), True, "3", [1], np.zeros(2), int])
def test_a_count_is_a_whole_number(value: Any) -> None:
    with pytest.raises(TypeError, match="seed: expected a whole number, got"):
        check_count(value, "seed")


def test_a_count_has_a_range_and_may_be_of_numpy() -> None:
    check_count(np.int64(3), "seed")
    for value in (0, -1, 10**30):
        with pytest.raises(UserError, match="bootstrap: expected a whole number from 1 to"):
            check_count(value, "bootstrap", 1)


@pytest.mark.parametrize("value", [3, "12", b"12", None, [0.5], {"a": 1}, [None]])
def test_counts_are_a_list_of_whole_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match="remove: expected a"):
        check_counts(value, "remove")


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(UserError, match=r"out: no file can have the name a\\x00b"):
        as_path("a\0b", "out")


def test_arguments_are_checked_by_position_and_by_name_and_before_the_work() -> None:
    done: list[int] = []

    @checked_arguments
    def work(count: int, name: str | None = None, *, quick: bool = False) -> None:
        done.append(count)

    work(1, "a", quick=True)
    work(2, None)
    for arguments, named, said in (
        (("1",), {}, "count: expected a whole number, got str"),
        ((1, 2), {}, "name: expected a text or None, got int"),
        ((1,), {"quick": 1}, "quick: expected True or False, got int"),
    ):
        with pytest.raises(TypeError, match=said):
            work(*arguments, **named)  # type: ignore[arg-type]
    assert done == [1, 2]


@pytest.mark.parametrize("name", ["train", "evaluate", "predict", "explain", "compare", "export"])
def test_public_functions_are_checked_and_keep_their_signature(name: str) -> None:
    function = getattr(pp, name)
    assert function is getattr(api, name)
    plain = inspect.unwrap(function)
    assert plain is not function
    assert inspect.signature(function) == inspect.signature(plain) and function.__doc__


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pp.evaluate("run", bootstrap=None), "bootstrap: expected a whole number, got None"),
        (lambda: pp.compare(["a", "b"], seed=0.5), "seed: expected a whole number, got float"),
        (lambda: pp.predict("run", "a.png", regions=3), "regions: expected a list, got int"),
        (lambda: pp.explain("run", "a.png", np.zeros(3)), "name: expected a text or None, got ndarr"),
        (lambda: pp.explain("run", "a.png", evidence="yes"), "evidence: expected True or False or None"),
        (lambda: pp.export("run", out=b"x"), "out: expected a path as text or pathlib.Path or None"),
        (lambda: pp.train("vgg16", "a.csv", "out", resume=1), "resume: expected True or False, got int"),
    ],
)  # fmt: skip
def test_what_was_expected_and_what_came_is_said(call: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()


@pytest.mark.parametrize("split", ["tset", "x" * 5000, ""])
def test_a_comparison_is_of_a_split(split: str) -> None:
    with pytest.raises(UserError, match="split: expected one of train, validation, test"):
        pp.compare(["a", "b"], split=split)
