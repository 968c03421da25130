"""Presets and recipes mean what they meant."""

import tomllib
from typing import Any

import pytest

from .comparison import missing
from .conftest import EXPECTED, recorded
from .observations import config_keys, config_texts

NAMES = sorted(path.relative_to(EXPECTED).as_posix() for path in EXPECTED.glob("config/*.toml"))


def known(found: Any, recorded: Any) -> Any:
    """What is found without the settings that are new since the recording.

    >>> known({"a": {"b": 1, "new": 2}, "new": 3}, {"a": {"b": 0}})
    {'a': {'b': 1}}
    """
    if isinstance(recorded, dict) and isinstance(found, dict):
        return {key: known(value, recorded[key]) for key, value in found.items() if key in recorded}
    if isinstance(recorded, list) and isinstance(found, list) and len(found) == len(recorded):
        return [known(one, other) for one, other in zip(found, recorded, strict=True)]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_is_written_as_it_was(name):
    """Settings may be added; none may go, change its value or its type."""
    before = tomllib.loads(recorded(name))
    found = known(tomllib.loads(config_texts()[name]), before)
    assert repr(found) == repr(before)


def test_every_key_is_still_there():
    assert not missing(recorded("config/keys.json"), config_keys())
