"""Tables are read with the lines of their records, strictly or as others write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from protopyramid.errors import UserError
from protopyramid.utils.csv_files import read_columns, read_table


def written(folder: Path, content: bytes) -> Path:
    (folder / "table.csv").write_bytes(content)
    return folder / "table.csv"


def test_records_have_the_line_on_which_they_start(tmp_path: Path) -> None:
    path = written(tmp_path, b'a,b\n1,"two\nlines"\n\n , \r\n3,"say ""x"""\n')
    assert [tuple(record) for record in read_table(path)] == [
        (1, ["a", "b"]),
        (2, ["1", "two\nlines"]),
        (6, ["3", 'say "x"']),
    ]


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeffimage\nä.png\n".encode())
    assert [record.fields for record in read_table(path)] == [["image"], ["ä.png"]]


def test_tables_of_others_may_have_semicolons_latin_letters_and_stray_quotes(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, 'name;note\nä;"x" y\n'.encode("latin-1"))
    assert [record.fields for record in read_table(path, lenient=True)] == [
        ["name", "note"],
        ["ä", "x y"],
    ]
    with pytest.raises(UserError, match="byte 10 is not UTF-8"):
        read_table(path)
    path = written(tmp_path, b'a,b\n1,"x" y\n')
    with pytest.raises(UserError, match="row 2 is not CSV"):
        read_table(path)


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the list of films is empty"),
        (b"\n , \n", "the list of films is empty"),
        (b"a\n\0\n", "line 2 has a NUL byte"),
    ],
)
def test_what_is_not_a_table_is_refused_by_its_name(
    tmp_path: Path, content: bytes, message: str, lenient: bool
) -> None:
    with pytest.raises(UserError, match=rf"table\.csv: .*{message}"):
        read_table(written(tmp_path, content), "list of films", lenient)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.csv: cannot read the table"):
        read_table(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a\n1\n", "has no column 'b'"),
        (b"", "has no column 'a'"),
        (b"a,b\n1\n", "row 2 is incomplete"),
        (b'a,b\n1,"2\n', "cannot be read"),
        (b"a,b\n\xff,1\n", "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_a_damaged_csv_is_refused_with_the_remedy(content, words, tmp_path):
    path = tmp_path / "table.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as raised:
        read_columns(path, ["a", "b"], "make it again")
    assert words in str(raised.value) and str(raised.value).endswith("; make it again")


def test_rows_are_read_by_column(tmp_path):
    (tmp_path / "table.csv").write_text('a,b,c\n1,"x,y",\n')
    assert read_columns(tmp_path / "table.csv", ["b"], "") == [{"a": "1", "b": "x,y", "c": ""}]
