"""The library's logger."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from protopyramid.utils.files import write_text
from protopyramid.utils.log import LOGGER, logger, set_verbosity
from protopyramid.utils.progress import Reporter


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    handlers, level, propagate = list(LOGGER.handlers), LOGGER.level, LOGGER.propagate
    yield
    LOGGER.handlers[:], LOGGER.propagate = handlers, propagate
    LOGGER.setLevel(level)


def test_lines_go_to_stderr_unless_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    set_verbosity(quiet=False, verbose=False)
    Reporter().say("training")
    assert capsys.readouterr().err == "training\n"
    set_verbosity(quiet=True, verbose=False)
    Reporter().say("training")
    assert capsys.readouterr().err == ""


def test_verbose_names_the_files_that_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verbose, expected in ((False, ""), (True, f"wrote {tmp_path / 'a.txt'}\n")):
        set_verbosity(quiet=False, verbose=verbose)
        write_text(tmp_path / "a.txt", "a")
        assert capsys.readouterr().err == expected


def test_a_handler_of_the_users_own_gets_every_line_and_stderr_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines: list[str] = []

    class Mine(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    LOGGER.handlers[:] = [Mine()]
    LOGGER.propagate = False
    Reporter().say("100 % of [bold] images")
    assert lines == ["100 % of [bold] images"]
    assert capsys.readouterr().err == ""
    assert logger().handlers == LOGGER.handlers


def test_a_name_in_a_line_neither_breaks_it_nor_steers_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Reporter().say("reading a\nb\x1b[31m.png")
    assert capsys.readouterr().err == "reading a\\nb\\x1b[31m.png\n"
