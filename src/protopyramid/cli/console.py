"""What the commands say and show: results on stdout, progress and warnings on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from protopyramid.errors import UserError

LINES_IN_A_LOG = 10

Update = Callable[[int, int], None]


def say(text: str) -> None:
    """A result, on stdout."""
    typer.echo(text)


def new_folder(folder: Path, force: bool = False) -> None:
    """Make a folder to write to; one with something in it is refused unless forced."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; give a folder to write to")
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty; give another folder, or --force to write into it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made: {error.strerror}") from None


@contextmanager
def progress(what: str) -> Iterator[Update]:
    """A function of (done, total): a bar on a terminal, about ten plain lines in a log."""
    if not sys.stderr.isatty():
        yield _plain_lines(what)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _plain_lines(what: str) -> Update:
    last = -1

    def update(done: int, total: int) -> None:
        nonlocal last
        tenth = done * LINES_IN_A_LOG // max(total, 1)
        if tenth != last:
            last = tenth
            print(f"{what}: {done} of {total}", file=sys.stderr, flush=True)

    return update
