"""Reading a download: files are found, tables and JSON are parsed, and nothing is trusted.

An item that cannot be used raises Unusable, whose message is the reason given to the user.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protopyramid.data.importers.base import Skipped
from protopyramid.data.io.decoding import read_size
from protopyramid.errors import UserError, printable
from protopyramid.utils.csv_files import Record, read_table
from protopyramid.utils.opening import TEXT, is_file, read_file
from protopyramid.utils.typed_json import parse_json

LONGEST_NAME = 100  # bytes, so that a suffix has room
SHOWN = 100  # letters of a value in a message
TWICE = "folder that was already read, through a link"


class Unusable(Exception):
    """One item of a download cannot be used; the message is a reason for Skipped."""


@dataclass(frozen=True)
class Row:
    """One record of a table, with the line on which it starts."""

    line: int
    values: dict[str, str]

    def __getitem__(self, column: str) -> str:
        return self.values.get(column, "")


@dataclass
class Names:
    """Gives out plain, distinct file names, also for file systems that ignore case."""

    taken: dict[str, int] = field(default_factory=dict)  # name -> the last number tried with it

    def new(self, wanted: str) -> str:
        """The wanted name with odd characters replaced, and numbered if it is taken."""
        plain = re.sub(r"[^\w.-]+", "_", unicodedata.normalize("NFC", wanted))
        plain = plain.encode()[-LONGEST_NAME:].decode(errors="ignore").strip("._-") or "image"
        name = plain
        while name.casefold() in self.taken:
            self.taken[plain.casefold()] += 1
            name = f"{plain}_{self.taken[plain.casefold()]}"
        self.taken[name.casefold()] = 1
        return name


def short(value: object) -> str:
    """A value that a file holds, as text for a message."""
    text = str(value)
    return printable(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def relative(path: Path, source: Path) -> str:
    """The name of a file below the source, for messages and ids."""
    return printable(Path(os.path.relpath(path, source)).as_posix())


def walk(source: Path) -> tuple[list[Path], list[Skipped]]:
    """All files below a folder in a fixed order, and what is hidden, no file, or not to be named.

    Links are followed, but no folder is read twice, so that a link to a folder above does no harm.
    """
    files: list[Path] = []
    skipped: list[Skipped] = []

    def unreadable(error: OSError) -> None:
        reason = f"cannot be read: {error.strerror}"
        skipped.append(Skipped(relative(Path(error.filename), source), reason))

    def usable(path: Path, problem: str) -> bool:
        reason = _name_problem(path.name) or problem
        if reason:
            skipped.append(Skipped(relative(path, source), reason))
        return not reason

    entered = {os.path.realpath(source)}
    for folder, folders, names in os.walk(source, onerror=unreadable, followlinks=True):
        paths = [Path(folder, name) for name in sorted(names)]
        files += [
            path for path in paths if usable(path, "" if is_file(path) else "not a regular file")
        ]
        kept = []
        for name in sorted(folders):
            real = os.path.realpath(Path(folder, name))
            if usable(Path(folder, name), TWICE if real in entered else ""):
                kept.append(name)
                entered.add(real)
        folders[:] = kept
    return files, skipped


def _name_problem(name: str) -> str:
    if name.startswith("."):
        return "hidden file or folder"
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "name is not UTF-8 text: rename it"
    return ""


def inside(source: Path, folder: Path, name: str) -> Path:
    """The path of a file that a download names, relative to one of its folders.

    Only paths within the source are accepted: a download must not name files elsewhere.
    """
    name = name.replace("\\", "/")
    if not name.strip() or "\0" in name:
        raise Unusable("no image file is given")
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        raise Unusable(f"absolute path of the image: {printable(name)}; make it relative")
    below = Path(os.path.relpath(os.path.abspath(folder / name), os.path.abspath(source)))
    if below.is_absolute() or ".." in below.parts:
        raise Unusable(f"path of the image leads outside the source: {printable(name)}")
    return source / below


def check_size(path: Path, size: tuple[float, float] | None) -> None:
    """Refuse an image whose header gives another (width, height) than its annotation."""
    known = None if size is None else read_size(path)
    real = None if known is None else known[::-1]
    if size is not None and real is not None and real != size:
        raise Unusable(
            f"image size differs from its annotation: {real[0]} x {real[1]} pixels, "
            f"not {size[0]:g} x {size[1]:g}"
        )


def number(value: object) -> float:
    """A finite number, given as such or as text."""
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            found = math.nan
        if math.isfinite(found):
            return found
    raise Unusable(f"not a number: {short(value)!r}")


def read_bytes(path: Path) -> bytes:
    """The content of a file of sane size."""
    try:
        return read_file(path, TEXT)
    except OSError as error:
        raise Unusable(f"cannot be read: {error.strerror}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        content = parse_json(read_bytes(path).decode("utf-8-sig"))
    except ValueError as error:
        reason = str(error).partition(":")[0]
        raise Unusable(f"not JSON: {reason}") from None
    if not isinstance(content, dict):
        raise Unusable("not JSON: not an object")
    return content


def read_rows(path: Path, required: Sequence[str]) -> tuple[list[Row], list[Skipped]]:
    """The rows of a CSV file, separated by commas or semicolons, and those that are malformed.

    Column names are compared without case and outer spaces, and are those of `required` where they
    match. A table that cannot be read at all is the user's to mend.
    """
    return table_rows(path, read_table(path, lenient=True), required)


def table_rows(
    path: Path, records: Sequence[Record], required: Sequence[str], name: str = ""
) -> tuple[list[Row], list[Skipped]]:
    """The rows of a table whose first record is its header; `name`: of the table, if not the file's."""
    if not records:
        raise UserError(f"{path}: has no rows; is the file complete?")
    header, *rest = records
    columns = _columns(path, header.fields, required)
    rows: list[Row] = []
    skipped: list[Skipped] = []
    for line, fields in rest:
        if len(fields) == len(columns):
            values = (value.strip() for value in fields)
            rows.append(Row(line, dict(zip(columns, values, strict=True))))
        else:
            reason = f"malformed row: {len(fields)} fields, but {len(columns)} in the header"
            skipped.append(Skipped(f"{name or path.name} row {line}", reason))
    if not rest:
        raise UserError(f"{path}: has no rows; is the file complete?")
    return rows, skipped


def _columns(path: Path, fields: Sequence[str], required: Sequence[str]) -> list[str]:
    known = {name.lower(): name for name in required}
    columns = [known.get(name.strip().lower(), name.strip()) for name in fields]
    missing = [name for name in required if name not in columns]
    if missing:
        found = printable(", ".join(columns[:20]))
        raise UserError(f"{path}: no column {', '.join(missing)}; columns found: {found}")
    return columns


def only_file(found: Sequence[Path], source: Path, what: str, advice: str) -> Path:
    """The one file that was found; none, or several, is the user's to settle."""
    if not found:
        raise UserError(f"{source}: no {what} in it; {advice}")
    if len(found) > 1:
        names = ", ".join(relative(path, source) for path in found[:4])
        raise UserError(f"{source}: several files could be {what}: {names}; keep one")
    return found[0]
