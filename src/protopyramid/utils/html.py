"""Parts of HTML, for reports and for notebooks; text is escaped unless it is marked as HTML."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Html:
    """Text that already is HTML; any other string is escaped."""

    text: str


Cell = str | Html


def html_of(cell: Cell) -> str:
    """A cell as HTML.

    >>> html_of("a < b"), html_of(Html("<b>x</b>"))
    ('a &lt; b', '<b>x</b>')
    """
    return cell.text if isinstance(cell, Html) else escape(cell)


def table(header: Sequence[str], rows: Sequence[Sequence[Cell]], total: bool = False) -> str:
    """A table; with `total`, its last row stands out."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in header)
    lines = []
    for number, row in enumerate(rows):
        kind = ' class="total"' if total and number == len(rows) - 1 else ""
        lines.append(f"<tr{kind}>" + "".join(f"<td>{html_of(c)}</td>" for c in row) + "</tr>")
    body = "\n".join(lines)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def matrix(names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """A confusion matrix: rows are true classes, columns predictions, shade is the share of the row."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    lines = []
    for name, row in zip(names, counts, strict=True):
        cells = "".join(_matrix_cell(count, sum(row)) for count in row)
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    return (
        '<div class="scroll"><table class="matrix"><thead><tr><th>true ↓ &nbsp; predicted →</th>'
        f"{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _matrix_cell(count: int, total: int) -> str:
    share = count / total if total else 0.0
    # From nearly white to dark blue, in steps of lightness, so that it prints in grey.
    red, green, blue = (round(243 - share * (243 - low)) for low in (0, 62, 110))
    colour = "white" if share > 0.5 else "#14181d"
    below = f" <small>{share:.0%}</small>" if total else ""
    return f'<td style="background:rgb({red},{green},{blue});color:{colour}">{count}{below}</td>'


def image(content: bytes, words: str, kind: str = "png", width: int | None = None) -> Html:
    """A picture that is part of the page; `words` are its alternative text, width in pixels."""
    media = {"png": "image/png", "jpg": "image/jpeg"}[kind]
    wide = "" if width is None else f' width="{width}"'
    text = base64.b64encode(content).decode()
    return Html(f'<img alt="{escape(words, quote=True)}"{wide} src="data:{media};base64,{text}">')
