"""Tables as text: the one Markdown table, the one CSV writer and reader, the one number format."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from protopyramid.errors import printable

UNDEFINED = "–"
QUOTE = "'"  # marks a field as text
# What begins a formula in a spreadsheet; marked fields too, so that one mark can be taken away again.
FORMULA = re.compile(r"'*[=+\-@\t\r]")
Cell = str | float | int | None


def number(value: float | None, interval: Sequence[float] | None = None) -> str:
    """A value with its interval as in the paper: three decimals, no leading zero, a dash for None.

    >>> number(0.8125, [0.7, 0.9]), number(None), number(-0.0123), number(1.0)
    ('.812 [.700, .900]', '–', '-.012', '1.000')
    """
    if value is None:
        return UNDEFINED
    text = _three_decimals(value)
    if interval is None:
        return text
    low, high = interval
    return f"{text} [{_three_decimals(low)}, {_three_decimals(high)}]"


def mean_and_spread(mean: float | None, spread: float | None) -> str:
    """A mean with its standard deviation.

    >>> mean_and_spread(0.92, 0.02), mean_and_spread(0.5, None), mean_and_spread(None, None)
    ('.920 ± .020', '.500', '–')
    """
    return number(mean) if mean is None or spread is None else f"{number(mean)} ± {number(spread)}"


def _three_decimals(value: float) -> str:
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], words: bool = False
) -> str:
    """A Markdown table; bars in cells are escaped. Columns after the first are aligned right unless of words.

    >>> print(markdown_table(["a", "b"], [["x|y", "1"]]))
    | a | b |
    |---|---:|
    | x\\|y | 1 |
    """

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_markdown_cell(cell) for cell in cells) + " |"

    rule = "|---" + ("|---" if words else "|---:") * (len(header) - 1) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def markdown_text(text: str) -> str:
    """Text in Markdown with no HTML and no links in it: names in it may be anything.

    >>> markdown_text("<b>x</b> [a](b)")
    '&lt;b>x&lt;/b> [a]\\\\(b)'
    """
    return text.replace("<", "&lt;").replace("](", "]\\(")


def _markdown_cell(cell: str) -> str:
    return markdown_text(printable(" ".join(cell.split())).replace("|", "\\|"))


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A CSV table; None is an empty field. Text that a spreadsheet would run as a formula is quoted.

    >>> print(csv_text(["name", "value"], [["a,b", None], ["=1+1", -0.5]]), end="")
    name,value
    "a,b",
    '=1+1,-0.5
    """
    return "".join(map(_csv_line, (header, *rows)))


def _csv_line(row: Sequence[Cell]) -> str:
    text = io.StringIO()
    # The writer quotes what occurs in its line ending: carriage returns, too.
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(["" if cell is None else _quoted(cell) for cell in row])
    return text.getvalue().removesuffix("\r\n") + "\n"


def unquoted(field: str) -> str:
    """A field of a CSV table without the mark that `csv_text` sets before a formula.

    >>> unquoted("'=1+1"), unquoted("'tis")
    ('=1+1', "'tis")
    """
    return field[1:] if field[:1] == QUOTE and FORMULA.match(field) else field


def _quoted(cell: str | float | int) -> str | float | int:
    runs = isinstance(cell, str) and FORMULA.match(cell) and not _is_number(cell)
    return f"{QUOTE}{cell}" if runs else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
