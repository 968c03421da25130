"""Arguments are checked at the door."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch

import protopyramid as pp
from protopyramid import api
from protopyramid.api import edit, plan_edit
from protopyramid.errors import UserError
from protopyramid.explanations.result import Explanation
from protopyramid.utils.arguments import (
    as_path,
    check_count,
    check_counts,
    checked_arguments,
    checked_tensors,
)


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


@checked_tensors(maps="B m h w", own="bool B m", classes="m")
def shaped(maps, own, classes, share: float = 0.5) -> float:
    return share


MAPS, OWN, CLASSES = torch.rand(2, 3, 4, 5), torch.ones(2, 3, dtype=torch.bool), torch.arange(3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], OWN, CLASSES), "maps: expected a tensor (B, m, h, w), got list"),
        ((MAPS[0], OWN, CLASSES), "maps: expected a tensor (B, m, h, w), got (3, 4, 5)"),
        ((MAPS, OWN.float(), CLASSES), "own: expected a bool tensor (B, m), got torch.float32"),
        ((MAPS, OWN[:1], CLASSES), "own: expected a bool tensor (B, m), B = 2, m = 3, got (1, 3)"),
        ((MAPS, OWN, CLASSES[:2]), "classes: expected a tensor (m), m = 3, got (2,)"),
        ((MAPS, OWN, CLASSES, "much"), "share: expected a number, got str"),
    ],
)
def test_tensors_of_other_shapes_are_named_with_expected_and_got(arguments, message) -> None:
    assert shaped(MAPS, OWN, CLASSES, np.float32(0.25)) == 0.25
    with pytest.raises(TypeError) as caught:
        shaped(*arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("wrong", [None, 5, "abc", [], torch.zeros(0), np.zeros(3), torch.ones(9)])
def test_every_loss_names_an_argument_of_another_type_or_shape(wrong) -> None:
    """One wrong argument at a time, in each public loss."""
    good = {
        "closeness": torch.rand(2, 3),
        "labels": torch.tensor([0, 1]),
        "classes": torch.tensor([0, 1, 1]),
        "levels": torch.tensor([2, 2, 5]),
        "maps": torch.rand(2, 3, 4, 4),
        "swapped": torch.rand(2, 3, 4, 4),
        "masks": torch.zeros(2, 16, 16),
        "own": torch.ones(2, 3, dtype=torch.bool),
        "inner": torch.ones(2, 4, 4, dtype=torch.bool),
        "weight": torch.rand(2, 3),
        "vectors": torch.rand(3, 8),
        "inside": torch.ones(2, 3),
        "outside": torch.ones(2, 3),
    }
    plain = {"k": 2, "share": 0.2}
    names = ("cluster", "separation", "orthogonality", "contrast", "context", "extent", "l1")
    for name in (*names, "fine_annotation", "fine_grouped"):
        loss = getattr(pp.losses, name)
        needed = [
            p.name for p in inspect.signature(loss).parameters.values() if p.default is p.empty
        ]
        arguments = {each: {**good, **plain}[each] for each in needed}
        if name == "fine_grouped":
            arguments["maps"] = {2: good["maps"]}
        assert torch.isfinite(loss(**arguments))
        for each in set(needed) - set(plain):
            with pytest.raises(TypeError, match=rf"^{each}: expected .*, got"):
                loss(**{**arguments, each: wrong})


@pytest.mark.parametrize("wrong", [5, "abc", [1], {"a": {}}, {1: 5}, {1: {"circumscribed": "x"}}])
def test_weights_chosen_by_hand_are_a_table_of_tables(wrong) -> None:
    for function in (edit, plan_edit):
        with pytest.raises(TypeError, match=r"^weights.*: expected .*, got"):
            function(None, weights=wrong)


@pytest.mark.parametrize("wrong", [5, "abc", [[1]], np.zeros(3), np.zeros((2, 0))])
def test_a_mask_to_draw_is_a_picture(wrong) -> None:
    with pytest.raises(TypeError, match=r"^mask: expected an array \(S, S\).*, got"):
        Explanation.figure(None, mask=wrong)
