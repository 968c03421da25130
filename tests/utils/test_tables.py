"""Tables: the one number format, Markdown, and CSV that is read back."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protopyramid.utils.tables import csv_text, markdown_table, mean_and_spread, number, unquoted

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=8)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, ".500"),
        (1.0, "1.000"),
        (-0.25, "-.250"),
        (0.99996, "1.000"),
        (-0.99996, "-1.000"),
        (10.0, "10.000"),
        (0.0, ".000"),
        (None, "–"),
    ],
)
def test_numbers_have_three_decimals_and_no_leading_zero(value, text):
    assert number(value) == text


def test_an_undefined_value_has_no_interval_and_no_spread():
    assert number(None, (0.1, 0.2)) == "–"
    assert mean_and_spread(None, 0.1) == "–"
    assert number(0.0, (-0.1, 1.0)) == ".000 [-.100, 1.000]"


def test_a_markdown_cell_stays_on_its_line_and_in_its_column():
    lines = markdown_table(["name", "n"], [["a|b\nc", "1"]]).splitlines()
    assert lines[2] == "| a\\|b c | 1 |" and len(lines) == 3


@given(st.lists(st.tuples(TEXT, TEXT), max_size=5))
def test_csv_is_what_the_standard_reader_reads(rows):
    found = list(csv.reader(io.StringIO(csv_text(["a", "b"], rows))))
    assert [[unquoted(field) for field in row] for row in found] == [["a", "b"], *map(list, rows)]


FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "=cmd|'/c calc'!A0", "\t=1", "\r=1", "'=1", "''@x"]


@pytest.mark.parametrize("text", FORMULAS)
def test_no_text_becomes_a_formula_in_a_spreadsheet(text):
    ((field,),) = list(csv.reader(io.StringIO(csv_text([text], []), newline="")))
    assert field[0] not in "=+-@\t\r" and unquoted(field) == text


def test_numbers_stay_numbers():
    assert csv_text(["-1.5"], [["-2e-3"], [-4]]) == "-1.5\n-2e-3\n-4\n"


def test_none_is_an_empty_field_and_zero_is_not():
    assert csv_text(["a", "b"], [[None, 0.0]]) == "a,b\n,0.0\n"
