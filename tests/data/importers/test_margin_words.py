"""Margins in words."""

from __future__ import annotations

import pytest

from protopyramid.data.importers.base import Options
from protopyramid.data.importers.margin_words import margin_label, margins_in
from protopyramid.data.importers.reading import Unusable


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Circumscribed", "circumscribed"),
        ("well-defined", "circumscribed"),
        ("ILL_DEFINED margin", "indistinct"),
        ("Speculated", "spiculated"),
        ("irregular mass with spiculations. No calcifications", "spiculated"),
        ("indistinct, indistinct", "indistinct"),
    ],
)
def test_one_margin_is_a_label(text: str, label: str) -> None:
    assert margin_label(text, Options()) == label


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unknown margin"),
        ("oval mass", "unknown margin: 'oval mass'"),
        ("lobulated", "unknown margin: 'lobulated'"),
        ("not circumscribed", "ambiguous margin: 'not circumscribed'"),
        ("non-circumscribed", "ambiguous margin: 'non-circumscribed'"),
        ("Circumscribed - Obscured", "mixed margins: circumscribed, obscured"),
        ("obscured", "margin is not one of the three classes: obscured (use --margins five)"),
    ],
)
def test_what_is_unclear_is_told(text: str, reason: str) -> None:
    with pytest.raises(Unusable) as caught:
        margin_label(text, Options())
    assert str(caught.value) == reason


def test_options_take_the_first_margin_and_all_five() -> None:
    assert margin_label("Indistinct - Circumscribed", Options(mixed="first")) == "indistinct"
    assert margin_label("partially obscured", Options(margins="five")) == "obscured"
    assert margin_label("micro-lobulated", Options(margins="five")) == "microlobulated"


def test_a_word_inside_another_is_not_a_margin() -> None:
    assert margins_in("uncircumscribed macrolobulated") == []
