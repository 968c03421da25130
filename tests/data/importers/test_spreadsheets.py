"""Spreadsheets of a download: cells as text, and every hostile one refused with a reason."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from protopyramid.data.importers import spreadsheets
from protopyramid.data.importers.spreadsheets import read_sheets
from protopyramid.errors import UserError
from protopyramid.utils.csv_files import Record
from protopyramid.utils.opening import Kind

from .conftest import MAIN, save_workbook


def test_cells_of_all_sheets_are_read_as_text(tmp_path: Path) -> None:
    rows = [["name", "age", "note"], ["P1 ", 44, None], [None, None, None], ["a<b&c", 4.5, "x"]]
    save_workbook(tmp_path / "a.xlsx", {"first": rows, "second sheet": [[None, "only"]]})
    assert read_sheets(tmp_path / "a.xlsx") == {
        "first": [
            Record(1, ["name", "age", "note"]),
            Record(2, ["P1", "44", ""]),
            Record(4, ["a<b&c", "4.5", "x"]),
        ],
        "second sheet": [Record(1, ["", "only"])],
    }


def sheet(cells: str) -> str:
    return f'<worksheet xmlns="{MAIN}"><sheetData>{cells}</sheetData></worksheet>'


def test_inline_texts_formulas_and_rich_texts_are_their_values(tmp_path: Path) -> None:
    cells = (
        '<row><c t="inlineStr"><is><r><t>in</t></r><r><t>line</t></r></is></c>'
        '<c t="str"><f>A1&amp;"x"</f><v>inlinex</v></c><c t="b"><v>1</v></c>'
        '<c t="s"><v>0</v></c></row><row r="7"><c r="AB7"><v>3</v></c></row>'
    )
    texts = f'<sst xmlns="{MAIN}"><si><r><t>two</t></r><r><t>fold</t></r><rPh><t>no</t></rPh></si></sst>'
    save_workbook(tmp_path / "a.xlsx", {"s": []}, sheet1=sheet(cells), texts=texts)
    first, last = read_sheets(tmp_path / "a.xlsx")["s"]
    assert first.fields[:4] == ["inline", "inlinex", "1", "twofold"]
    assert last == Record(7, [""] * 27 + ["3"])


ENTITY = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ('<row r="9999999"><c><v>1</v></c></row>', "there is no row '9999999'"),
        ('<row r="-1"/>', "there is no row '-1'"),
        ('<row><c r="ZZZ1"><v>1</v></c></row>', "there is no column '18278'"),
        ('<row><c r="1A"><v>1</v></c></row>', "no cell can be called '1A'"),
        ('<row><c t="s"><v>5</v></c></row>', "there is no text '5'"),
        ('<row><c t="s"><v>1e9</v></c></row>', "there is no text '1e9'"),
        ("<row><c><v>1</v></row>", "its XML is damaged"),
    ],
)
def test_impossible_cells_are_refused(tmp_path: Path, cells: str, reason: str) -> None:
    path = tmp_path / "a.xlsx"
    save_workbook(path, {"s": []}, sheet1=sheet(cells))
    with pytest.raises(UserError, match="save its sheets as CSV") as caught:
        read_sheets(path)
    assert reason in str(caught.value)


def test_entities_are_refused_before_they_are_expanded(tmp_path: Path) -> None:
    for part in ("workbook", "texts", "sheet1"):
        path = tmp_path / f"{part}.xlsx"
        save_workbook(path, {"s": [["x"]]}, **{part: f"{ENTITY}<x>&b;</x>"})
        with pytest.raises(UserError, match="declares a document type"):
            read_sheets(path)


def test_a_part_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreadsheets, "LARGEST_PART", 100_000)
    path = tmp_path / "bomb.xlsx"
    save_workbook(path, {"s": []}, sheet1=sheet(" " * 3_000_000))
    assert path.stat().st_size < 10_000
    with pytest.raises(UserError, match="unpacks to more than 100000 bytes"):
        read_sheets(path)


def test_too_many_cells_and_too_large_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.xlsx"
    save_workbook(path, {"s": [["a"] * 5] * 5})
    monkeypatch.setattr(spreadsheets, "MOST_CELLS", 24)
    with pytest.raises(UserError, match="more than 24"):
        read_sheets(path)
    # Two far corners make a table that is mostly empty: it is not built.
    save_workbook(path, {"s": [["a"], [None] * 30 + ["b"]]})
    with pytest.raises(UserError, match="a sheet of more than 24 cells"):
        read_sheets(path)
    monkeypatch.setattr(spreadsheets, "SPREADSHEET", Kind("a spreadsheet", 10))
    with pytest.raises(UserError, match="10 bytes are the limit"):
        read_sheets(path)


def test_what_is_not_a_workbook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(UserError, match="not a zip of XML"):
        read_sheets(path)
    with zipfile.ZipFile(path, "w") as book:
        book.writestr("readme.txt", "nothing")
    with pytest.raises(UserError, match=r"it has no part xl/_rels/workbook.xml.rels"):
        read_sheets(path)
    save_workbook(path, {})
    with pytest.raises(UserError, match="it has no sheets"):
        read_sheets(path)
    with pytest.raises(UserError, match="No such file"):
        read_sheets(tmp_path / "none.xlsx")
