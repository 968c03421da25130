"""Dataclasses survive JSON; damaged content is refused with the key and the remedy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import Field

from protopyramid.errors import UserError
from protopyramid.utils.typed_json import from_json, to_json


@dataclass(frozen=True)
class Part:
    value: float | None
    between: tuple[float, float] | None


@dataclass(frozen=True)
class Whole:
    name: str
    count: int
    parts: Mapping[str, Part]
    renamed: Annotated[bool, Field(alias="old name")]
    later: int | None = None


WHOLE = Whole("a", 2, {"x": Part(0.5, (0.1, 1.0)), "y": Part(None, None)}, True)
CONTENT = {
    "name": "a",
    "count": 2,
    "parts": {"x": {"value": 0.5, "between": [0.1, 1.0]}, "y": {"value": None, "between": None}},
    "old name": True,
    "later": None,
}


def test_a_dataclass_survives_json_with_keys_in_order():
    assert to_json(WHOLE) == CONTENT and list(to_json(WHOLE)) == list(CONTENT)
    assert from_json(Whole, json.loads(json.dumps(CONTENT)), "file", "") == WHOLE


def test_keys_of_a_newer_version_are_ignored_and_those_of_an_older_one_are_none():
    content = {**CONTENT, "new": 1}
    del content["later"]
    assert from_json(Whole, content, "file", "") == WHOLE


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"count": "2"}, "count"),
        ({"count": 2.5}, "count"),
        ({"parts": {"x": {"value": "high", "between": None}}}, "parts.x.value"),
        ({"parts": {"x": {"value": 1, "between": [1]}}}, "parts.x.between"),
        ({"old name": None}, "old name"),
        ({"name": None}, "name"),
    ],
)
def test_a_wrong_value_is_named(change, key):
    with pytest.raises(UserError) as raised:
        from_json(Whole, {**CONTENT, **change}, "some/file.json", "make it again")
    message = str(raised.value)
    assert message.startswith(f"some/file.json: damaged: {key}")
    assert message.endswith("; make it again") and "\n" not in message


@pytest.mark.parametrize("content", [None, [], 3, "text", {}])
def test_other_content_is_refused(content):
    with pytest.raises(UserError, match=r"^f: damaged: .*; again$"):
        from_json(Whole, content, "f", "again")
