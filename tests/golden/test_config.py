"""Presets and recipes mean what they meant."""

import pytest

from .comparison import missing
from .conftest import EXPECTED, recorded
from .observations import config_keys, config_texts

NAMES = sorted(path.relative_to(EXPECTED).as_posix() for path in EXPECTED.glob("config/*.toml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_is_written_as_it_was(name):
    assert config_texts().get(name) == recorded(name)


def test_every_key_is_still_there():
    assert not missing(recorded("config/keys.json"), config_keys())
