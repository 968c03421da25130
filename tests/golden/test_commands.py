"""Every command and option is still there, and help is told without anything heavy."""

import pytest

from .conftest import recorded
from .helptext import Help, every_help

HEAVY = {"torch", "numpy", "matplotlib"}
COMMANDS = recorded("commands.json")


@pytest.fixture(scope="module")
def helps() -> dict[str, Help]:
    return dict(every_help())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_its_options_and_their_defaults(command, helps):
    assert command in helps
    assert COMMANDS[command].items() <= helps[command].options.items()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_imports_nothing_heavy(command, helps):
    assert "protopyramid" in helps[command].imported
    assert not HEAVY & helps[command].imported
