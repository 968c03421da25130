"""A journal gives back what was appended, whatever happened to its file in between."""

from __future__ import annotations

import errno
import json
import os
import resource
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protopyramid.errors import UserError
from protopyramid.utils.journal import FileName, Journal, is_file_name


@dataclass(frozen=True)
class Entry:
    name: FileName
    count: int
    box: tuple[float, float] | None = None


@pytest.fixture
def journal(tmp_path: Path) -> Journal[Entry]:
    return Journal(tmp_path / "work.jsonl", Entry)


def test_records_come_back_in_order(journal: Journal[Entry]) -> None:
    assert journal.read() == []
    entries = [Entry("a", 1), Entry("b", 2, (0.5, 3.0))]
    for entry in entries:
        journal.append(entry)
    assert journal.read() == entries
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert lines[1] == {"name": "b", "count": 2, "box": [0.5, 3.0]}
    journal.replace(entries[1:])
    assert journal.read() == entries[1:]


def test_a_line_cut_anywhere_is_ignored_and_the_next_record_is_whole(
    journal: Journal[Entry],
) -> None:
    journal.append(Entry("a", 1))
    journal.append(Entry("b", 2))
    whole = journal.path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole)):
        journal.path.write_bytes(whole[:end])
        assert journal.read() == [Entry("a", 1)]
        journal.append(Entry("c", 3))
        # Only its line feed may be missing: then the record is known after all.
        kept = [Entry("a", 1), Entry("c", 3)]
        if end == len(whole) - 1:
            kept.insert(1, Entry("b", 2))
        assert journal.read() == kept


@pytest.mark.parametrize(
    "line",
    [
        '{"name": "../../etc/passwd", "count": 1}',
        '{"name": "/etc/passwd", "count": 1}',
        '{"name": "..", "count": 1}',
        '{"name": "c:evil", "count": 1}',
        '{"name": "a\\\\b", "count": 1}',
        '{"name": "", "count": 1}',
        '{"name": "a", "count": "1"}',
        '{"name": "a"}',
        '{"name": "a", "count": 1, "box": [1]}',
        "[1, 2]",
        "null",
        "not JSON",
        "",
        "\x00\x01",
    ],
)
def test_a_line_that_is_not_a_valid_record_is_ignored(journal: Journal[Entry], line: str) -> None:
    journal.append(Entry("a", 1))
    with journal.path.open("a") as file:
        file.write(line + "\n")
    journal.append(Entry("b", 2))
    assert journal.read() == [Entry("a", 1), Entry("b", 2)]


@given(st.text(max_size=12))
def test_a_file_name_stays_in_its_folder(name: str) -> None:
    if is_file_name(name):
        folder = Path("/folder")
        assert Path(os.path.normpath(folder / f"{name}.png")).parent == folder


def test_where_there_is_no_room_the_journal_stays_as_it_was(tmp_path: Path) -> None:
    """In a process of its own, with a limit for files that falls within the second record."""
    journal = Journal(tmp_path / "work.jsonl", Entry)
    journal.append(Entry("a", 1))
    before = journal.path.read_bytes()
    child = os.fork()
    if not child:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 5, resource.RLIM_INFINITY))
            journal.append(Entry("b", 2))
        except UserError as error:
            code = 0 if str(journal.path) in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert journal.path.read_bytes() == before


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=os.strerror(errno.ENOENT)):
        Journal(tmp_path / "none/work.jsonl", Entry).append(Entry("a", 1))
