"""What the commands print: results on stdout, progress and warnings on stderr."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from protopyramid.errors import UserError, printable

LOG_WIDTH = 132


def say(line: str) -> None:
    """Print a result on stdout: one line, whatever the names in it hold."""
    typer.echo(printable(line))


def say_lines(text: str) -> None:
    """Print a text of several lines on stdout, without what would steer a terminal."""
    for line in text.split("\n"):
        say(line)


def say_on_stderr(line: str) -> None:
    """Print a line of progress on stderr."""
    from protopyramid.utils.log import logger

    logger().info("%s", line)


def new_folder(folder: Path, force: bool = False) -> None:
    """Make a folder to write to; one that holds anything is refused unless forced."""
    from protopyramid.utils.files import check_output_folder, holds_anything

    check_output_folder(folder)
    if not force and holds_anything(folder):
        raise UserError(f"{folder}: is not empty; give another folder, or --force to write into it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be created: {error.strerror}") from None


def terminal() -> Any:
    """The terminal, or a log that is wide enough for the tables."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else LOG_WIDTH
    return Console(width=width, highlight=False, markup=False, soft_wrap=False)


def new_table(first: str, *others: str) -> Any:
    """A table whose columns after the first are numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right")
    return table


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on stdout."""
    table = new_table(*header)
    for row in rows:
        table.add_row(*row)
    terminal().print(table)


def parse_numbers(text: str, option: str) -> list[int]:
    """The numbers of an option.

    >>> parse_numbers("3, 7", "--remove")
    [3, 7]
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise UserError(
            f"{option}: expected numbers separated by commas, as in 0,1,2; got {text!r}"
        )
    return [int(part) for part in parts]
