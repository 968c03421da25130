"""Reading CSV tables: manifests, tables of films, those of a download, and our own results."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from protopyramid.errors import UserError
from protopyramid.utils.opening import TABLE, read_file
from protopyramid.utils.tables import unquoted


class Record(NamedTuple):
    """One record of a table, with the line on which it starts (the header is on line 1)."""

    line: int
    fields: list[str]


def read_table(path: Path, what: str = "table", lenient: bool = False) -> list[Record]:
    """The non-empty records of a CSV file, the header first. `what` names the table in messages.

    With `lenient`, for files of others: semicolons may separate fields, text that is not UTF-8 is taken
    for Latin-1, and stray quotation marks are kept.
    """
    table = _records(path, what, lenient)
    if not table:
        raise UserError(f"{path}: the {what} is empty; add a header line and rows")
    return table


def _records(path: Path, what: str = "table", lenient: bool = False) -> list[Record]:
    text = _text(path, what, lenient)
    header = text.partition("\n")[0]
    semicolons = lenient and header.count(";") > header.count(",")
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=";" if semicolons else ",", strict=not lenient
    )
    table: list[Record] = []
    line = 1
    try:
        for fields in reader:
            if any(value.strip() for value in fields):
                table.append(Record(line, [unquoted(field) for field in fields]))
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}: row {line} is not CSV ({error}); check its quotation marks"
        ) from None
    return table


def read_columns(path: Path, columns: Sequence[str], remedy: str) -> list[dict[str, str]]:
    """The rows of a table of ours by column; UserError where it is damaged or a column is missing.

    `remedy` says how to get a new one.
    """
    try:
        header, *rows = _records(path) or [Record(1, [])]
    except UserError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise UserError(f"{path}: cannot be read ({reason}); {remedy}") from None
    missing = [name for name in columns if name not in header.fields]
    if missing:
        raise UserError(f"{path}: has no column {missing[0]!r}; {remedy}")
    for row in rows:
        if len(row.fields) < len(header.fields):
            raise UserError(f"{path}: row {row.line} is incomplete; {remedy}")
    return [dict(zip(header.fields, row.fields, strict=False)) for row in rows]


def numbers_in(
    path: Path, rows: Sequence[Mapping[str, str]], columns: Sequence[str], remedy: str
) -> list[list[float]]:
    """The numbers of these columns, row by row; UserError where one is not a finite number."""
    try:
        values = [[float(row[name]) for name in columns] for row in rows]
    except ValueError as error:
        raise UserError(f"{path}: damaged ({error}); {remedy}") from None
    if not all(math.isfinite(value) for row in values for value in row):
        raise UserError(f"{path}: damaged (it holds a number that is not finite); {remedy}")
    return values


def _text(path: Path, what: str, lenient: bool) -> str:
    content = _content(path, what)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if not lenient:
            raise UserError(
                f"{path}: byte {error.start} is not UTF-8 text; save the {what} as CSV in UTF-8"
            ) from None
        text = content.decode("latin-1")
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise UserError(f"{path}: line {line} has a NUL byte; save the {what} as plain CSV")
    return text


def _content(path: Path, what: str) -> bytes:
    try:
        return read_file(path, TABLE)
    except OSError as error:
        raise UserError(
            f"{path}: cannot read the {what} ({error.strerror}); give the path of a CSV file"
        ) from None
