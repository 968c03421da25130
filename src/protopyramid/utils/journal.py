"""A journal of finished work: one JSON record per line, appended as work is done and read back to resume.

Records are dataclasses. What is read back is checked against their types, so that a damaged or foreign
line costs nothing but doing its work again; file names in records are `FileName`s, so that none leads out
of the folder that it belongs to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, TypeAdapter, ValidationError

from protopyramid.errors import UserError
from protopyramid.utils.files import disk_error, refuse_link, write_bytes
from protopyramid.utils.opening import RECORDS, read_file

Record = TypeVar("Record")


def _plain(name: str) -> str:
    if not is_file_name(name):
        raise ValueError("not the name of a file in this folder")
    return name


def is_file_name(name: str) -> bool:
    """Whether a text can be the name of a visible file: no path, and nothing that leads elsewhere.

    >>> is_file_name("film_1"), is_file_name("../film_1"), is_file_name(".."), is_file_name("C:film")
    (True, False, False, False)
    """
    return bool(name) and not name.startswith(".") and not any(each in name for each in "/\\:\0")


FileName = Annotated[str, AfterValidator(_plain)]


class Journal(Generic[Record]):
    """The journal of records of one dataclass in a file.

    Examples:
        >>> import tempfile
        >>> journal = Journal(Path(tempfile.mkdtemp()) / "work.jsonl", dict[str, int])
        >>> journal.append({"film": 1})
        >>> with journal.path.open("a") as file:
        ...     _ = file.write('{"film": 2')  # the process was killed
        >>> journal.append({"film": 3})
        >>> journal.read()
        [{'film': 1}, {'film': 3}]
    """

    def __init__(self, path: Path, kind: type[Record]) -> None:
        self.path = path
        self._adapter = TypeAdapter(kind)

    def read(self) -> list[Record]:
        """The valid records, in order; a last line that was cut short is ignored."""
        try:
            content = read_file(self.path, RECORDS)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror}); remove it") from None
        records = []
        for line in content.split(b"\n")[:-1]:
            try:
                records.append(self._adapter.validate_json(line, strict=True))
            except ValidationError:
                continue  # its work is done again
        return records

    def append(self, record: Record) -> None:
        """Add a record; where that fails, the journal stays as it was."""
        refuse_link(self.path)
        try:
            with self.path.open("ab+", buffering=0) as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(end - 1, 0))
                line = (b"" if file.read(1) in (b"", b"\n") else b"\n") + self._line(record)
                try:
                    while line:  # a nearly full disk takes part of it
                        line = line[file.write(line) :]
                except OSError:
                    file.truncate(end)
                    raise
        except OSError as error:
            raise disk_error(self.path, error) from error

    def replace(self, records: Iterable[Record]) -> None:
        """Write these records in place of all others, atomically."""
        write_bytes(self.path, b"".join(map(self._line, records)))

    def _line(self, record: Record) -> bytes:
        return (json.dumps(self._adapter.dump_python(record, mode="json")) + "\n").encode()
