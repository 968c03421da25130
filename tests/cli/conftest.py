"""Commands that are refused, and the tables that commands write."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from protopyramid.cli.main import main

Refused = Callable[..., list[str]]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Refused:
    """Call a command that must be refused: refused("train", ...) gives the lines on stderr."""

    def call(*words: str | Path) -> list[str]:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        return capsys.readouterr().err.splitlines()

    return call


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a table (CSV)."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
