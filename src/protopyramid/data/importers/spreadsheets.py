"""Reading spreadsheets of a download: the cells of an .xlsx file as text, and nothing else of it.

An .xlsx file is a zip of XML. Formulas, styles and macros are not looked at; a cell is the value that
was saved with it. Nothing is trusted: the sizes that the zip states are not believed, a document type
(the only place where entities are declared) is refused, and rows and cells are counted.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.parsers.expat import ExpatError, ParserCreate

from protopyramid.data.importers.reading import short
from protopyramid.errors import UserError, printable
from protopyramid.utils.csv_files import Record
from protopyramid.utils.opening import SPREADSHEET, open_file

SUFFIX = ".xlsx"
LARGEST_PART = 2**27  # bytes of one part, unpacked
MOST_CELLS = 2_000_000
MOST_COLUMNS = 16_384  # of a sheet, by the format
MOST_ROWS = 1_048_576
LONGEST_CELL = 32_767  # letters, by the format
CELL = re.compile(r"([A-Z]{1,3})([1-9]\d{0,6})")
BOOK, LINKS, TEXTS = "xl/workbook.xml", "xl/_rels/workbook.xml.rels", "xl/sharedStrings.xml"

Start = Callable[[str, Mapping[str, str]], None]
End = Callable[[str], None]
Data = Callable[[str], None]


class _Refused(Exception):
    """A part of the file that is not read; the message says why."""


def read_sheets(path: Path) -> dict[str, list[Record]]:
    """The non-empty rows of every sheet, as text, by the name of the sheet."""
    try:
        with open_file(path, SPREADSHEET) as file, zipfile.ZipFile(file) as book:
            return _sheets(book)
    except _Refused as error:
        reason = str(error)
    except ExpatError as error:
        reason = f"its XML is damaged ({printable(str(error))})"
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError):
        # A RuntimeError is zipfile's word for encryption and unknown compression.
        reason = "not a zip of XML, or damaged"
    except OSError as error:
        reason = error.strerror or "it cannot be read"
    raise UserError(f"{path}: cannot read the spreadsheet: {reason}; save its sheets as CSV files")


def _sheets(book: zipfile.ZipFile) -> dict[str, list[Record]]:
    parts = set(book.namelist())
    targets = _attributes(book, LINKS, "Relationship", ("Id", "Target"))
    named = _attributes(book, BOOK, "sheet", ("name", "id"))
    texts = _shared_texts(book) if TEXTS in parts else []
    files = dict(targets)
    counted = [0]
    found: dict[str, list[Record]] = {}
    for name, link in named:
        target = files.get(link, "")
        part = posixpath.normpath(posixpath.join("/xl", target)).lstrip("/")
        if part in parts and part.endswith(".xml"):
            found[name] = _Sheet(texts, counted).read(book, part)
    if not found:
        raise _Refused("it has no sheets")
    return found


def _attributes(
    book: zipfile.ZipFile, part: str, element: str, names: tuple[str, str]
) -> list[tuple[str, str]]:
    """Two attributes of every such element of a part, whatever their namespaces."""
    found: list[tuple[str, str]] = []

    def start(tag: str, values: Mapping[str, str]) -> None:
        if tag == element:
            plain = {_local(name): value for name, value in values.items()}
            found.append((plain.get(names[0], ""), plain.get(names[1], "")))

    _parse(_part(book, part), start)
    return found


def _shared_texts(book: zipfile.ZipFile) -> list[str]:
    """The texts that cells refer to by number, without the phonetic guides of East Asian ones."""
    texts: list[str] = []
    pieces: list[str] = []
    inside: list[str] = []

    def start(tag: str, values: Mapping[str, str]) -> None:
        inside.append(tag)
        if tag == "si":
            pieces.clear()

    def end(tag: str) -> None:
        inside.pop()
        if tag == "si":
            texts.append("".join(pieces)[:LONGEST_CELL])
            if len(texts) > MOST_CELLS:
                raise _Refused(f"more than {MOST_CELLS} texts")

    def data(text: str) -> None:
        if inside[-1] == "t" and "rPh" not in inside:
            pieces.append(text)

    _parse(_part(book, TEXTS), start, end, data)
    return texts


class _Sheet:
    """Collects the cells of one sheet."""

    def __init__(self, texts: Sequence[str], counted: list[int]) -> None:
        self.texts, self.counted = texts, counted  # counted: cells of all sheets
        self.rows: dict[int, dict[int, str]] = {}
        self.row = self.column = 0
        self.kind = ""
        self.pieces: list[str] = []
        self.open = False
        self.inside: list[str] = []

    def read(self, book: zipfile.ZipFile, part: str) -> list[Record]:
        _parse(_part(book, part), self._start, self._end, self._data)
        width = max((max(cells) for cells in self.rows.values()), default=-1) + 1
        if width * len(self.rows) > MOST_CELLS:
            raise _Refused(f"a sheet of more than {MOST_CELLS} cells")
        return [
            Record(row, [cells.get(column, "") for column in range(width)])
            for row, cells in sorted(self.rows.items())
        ]

    def _start(self, tag: str, values: Mapping[str, str]) -> None:
        self.inside.append(tag)
        if tag == "row":
            self.row = _whole(values.get("r", str(self.row + 1)), MOST_ROWS, "row")
            self.column = -1
        elif tag == "c":
            self.row, self.column = self._place(values.get("r", ""))
            self.kind, self.pieces = values.get("t", "n"), []
        elif tag in ("v", "t"):
            self.open = "rPh" not in self.inside

    def _place(self, reference: str) -> tuple[int, int]:
        if not reference:
            column = self.column + 1
            if column >= MOST_COLUMNS:
                raise _Refused(f"more than {MOST_COLUMNS} columns")
            return self.row, column
        match = CELL.fullmatch(reference)
        if match is None:
            raise _Refused(f"no cell can be called {short(reference)!r}")
        column = 0
        for letter in match[1]:
            column = 26 * column + ord(letter) - 64
        _whole(str(column), MOST_COLUMNS, "column")
        return _whole(match[2], MOST_ROWS, "row"), column - 1

    def _data(self, text: str) -> None:
        if self.open:
            self.pieces.append(text)

    def _end(self, tag: str) -> None:
        self.inside.pop()
        if tag in ("v", "t"):
            self.open = False
        elif tag == "c":
            self._add("".join(self.pieces))

    def _add(self, text: str) -> None:
        if self.kind == "s" and text.strip():
            number = _whole(text, len(self.texts) - 1, "text", least=0)
            text = self.texts[number]
        text = text[:LONGEST_CELL].strip()
        if not text:
            return
        self.counted[0] += 1
        if self.counted[0] > MOST_CELLS:
            raise _Refused(f"more than {MOST_CELLS} cells")
        self.rows.setdefault(self.row, {})[self.column] = text


def _whole(text: str, largest: int, what: str, least: int = 1) -> int:
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= largest:
        raise _Refused(f"there is no {what} {short(text)!r}")
    return int(text)


def _part(book: zipfile.ZipFile, name: str) -> bytes:
    try:
        with book.open(name) as part:
            content = part.read(LARGEST_PART + 1)  # the size in the directory may be a lie
    except KeyError:
        raise _Refused(f"it has no part {name}") from None
    if len(content) > LARGEST_PART:
        raise _Refused(f"its part {name} unpacks to more than {LARGEST_PART} bytes")
    return content


def _parse(content: bytes, start: Start, end: End | None = None, data: Data | None = None) -> None:
    """Parse XML; a document type, where entities would be declared, is refused."""
    parser = ParserCreate(namespace_separator="}")

    def refuse(*_: object) -> None:
        raise _Refused("its XML declares a document type")

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.StartElementHandler = lambda tag, values: start(_local(tag), values)
    if end is not None:
        parser.EndElementHandler = lambda tag: end(_local(tag))
    if data is not None:
        parser.CharacterDataHandler = data
    parser.Parse(content, True)


def _local(name: str) -> str:
    return name.rpartition("}")[2]
