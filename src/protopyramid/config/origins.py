"""Where each value of a preset comes from, read from the marks in its file.

A preset file ends every line that sets a value with a mark:

    kind = "focal"  # paper
    k = 9  # ancestor: IAIA-BL; 9 of its 196 patches
    dim = 128  # ours: the paper gives no number

`paper` is the FPN-IAIA-BL paper or, in the file of another published system, that system's own; `ancestor`
a published system that it builds on, by name; `ours` a choice of this project, with the reason. What
follows a semicolon is a note.
"""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

from protopyramid.config.catalogue import preset_text

Kind = Literal["paper", "ancestor", "ours"]
NAMES = frozenset({"system", "preset", "overlays"})  # of the file itself: no settings
MARK = re.compile(r"(paper|ancestor|ours)(?::\s*([^;]+))?(?:;\s*(.+))?")
HEADER = re.compile(r"(\[\[?)\s*([^\[\]]+?)\s*\]\]?")


@dataclass(frozen=True)
class Origin:
    """Where a value comes from; `text` is an ancestor's name or our reason, "" for the paper."""

    kind: Kind
    text: str = ""
    note: str = ""


@cache
def preset_origins(name: str) -> dict[str, Origin | None]:
    """The origin of every value that a preset's own file sets, by dotted key; None where it has no mark.

    >>> preset_origins("fpn-iaia-bl")["model.pooling.kind"]
    Origin(kind='paper', text='', note='')
    """
    return read_origins(preset_text(name))


def origins_below(key: str, origins: dict[str, Origin | None]) -> list[Origin]:
    """The origins of a key, or of all values below it where it holds a table or a list."""
    found = [each for name, each in origins.items() if name == key or name.startswith(f"{key}.")]
    return [each for each in found if each is not None]


def read_origins(text: str) -> dict[str, Origin | None]:
    """The origin of every value in a TOML file that has one value per line.

    >>> read_origins('[model.pooling]\\nk = 9  # ancestor: IAIA-BL')
    {'model.pooling.k': Origin(kind='ancestor', text='IAIA-BL', note='')}
    """
    found: dict[str, Origin | None] = {}
    table, entries = "", dict[str, int]()
    for line in text.splitlines():
        content, comment = _split_comment(line)
        if not content:
            continue
        if header := HEADER.fullmatch(content):
            table = _table(header[2], header[1] == "[[", entries)
            continue
        parsed: dict[str, Any] = tomllib.loads(
            content
        )  # a value that goes on below is an error here
        (key,) = parsed
        if table or key not in NAMES:
            found[f"{table}.{key}" if table else key] = _origin(comment)
    return found


def _table(name: str, is_list: bool, entries: dict[str, int]) -> str:
    """The dotted key of a table, with the index of the entry in each list on the way.

    `entries` has the index of the last entry of each list so far.
    """
    key, parts = "", name.split(".")
    for depth, part in enumerate(parts, start=1):
        key = f"{key}.{part}" if key else part
        if is_list and depth == len(parts):
            entries[key] = entries.get(key, -1) + 1
        if key in entries:
            key = f"{key}.{entries[key]}"
    return key


def _origin(comment: str) -> Origin | None:
    mark = MARK.fullmatch(comment)
    if mark is None:
        return None
    kind, text, note = mark[1], (mark[2] or "").strip(), (mark[3] or "").strip()
    if (kind == "paper") == bool(text):  # the paper needs no name; the others do
        return None
    return Origin(cast(Kind, kind), text, note)


def _split_comment(line: str) -> tuple[str, str]:
    """The content of a line and its comment; a # within a string is content."""
    quote = ""
    for place, character in enumerate(line):
        if character in "\"'" and not quote:
            quote = character
        elif character == quote:
            quote = ""
        elif character == "#" and not quote:
            return line[:place].strip(), line[place + 1 :].strip()
    return line.strip(), ""
