"""The commands and their options, as their help tells them, and what telling it imports."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from .workflow import environment


@dataclass(frozen=True)
class Help:
    """The help of a command: options with their defaults ("" for none), and its own commands."""

    options: dict[str, str]
    commands: list[str]
    imported: frozenset[str]


def ask(command: list[str]) -> Help:
    """Call a command with --help."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "protopyramid", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    names = re.findall(r"^import time:.*\|\s*([\w.]+)$", done.stderr, re.MULTILINE)
    return Help(
        options=options(section(done.stdout, "Options")),
        commands=re.findall(r"^  (\S+)  ", section(done.stdout, "Commands"), re.MULTILINE),
        imported=frozenset(name.partition(".")[0] for name in names),
    )


def section(text: str, title: str) -> str:
    """The lines below a title, up to the next empty line."""
    found = re.search(rf"^{title}:\n((?:.+\n?)*)", text, re.MULTILINE)
    return found[1] if found else ""


def options(text: str) -> dict[str, str]:
    """Option names with their defaults; how the lines are wrapped does not matter.

    >>> options("  --seed <int>  Of the\\n       data.  [default: 0; x>=0]\\n  -h, --help  Show it.")
    {'--seed': '0', '-h': '', '--help': ''}
    """
    found = {}
    for block in re.split(r"^  (?=-)", text, flags=re.MULTILINE)[1:]:
        names = re.match(r"[-\w]+(?:(?:, | / )[-\w]+)*", block)
        default = re.search(r"\[default:([^;\]]*)", block)
        assert names, block
        value = re.sub(r"\s", "", default[1]) if default else ""
        found.update(dict.fromkeys(re.findall(r"-[-\w]+", names[0]), value))
    return found


def every_help(command: tuple[str, ...] = ()) -> Iterator[tuple[str, Help]]:
    """The help of a command and of all below it, by the words that call them."""
    own = ask(list(command))
    yield " ".join(command), own
    for name in own.commands:
        yield from every_help((*command, name))
