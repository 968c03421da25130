"""Parts of a self-contained HTML page: no scripts, no network, pictures embedded."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

from matplotlib.figure import Figure

from protopyramid.figures.drawing import Sheet, figure_bytes
from protopyramid.utils.html import Cell, Html, html_of, matrix, table

__all__ = [
    "Cell",
    "Html",
    "bar",
    "cards",
    "html_of",
    "matrix",
    "page",
    "paragraph",
    "picture",
    "section",
    "table",
]

MEDIA = {"png": "image/png", "jpg": "image/jpeg", "svg": "image/svg+xml"}

STYLE = """
:root { --ink: #14181d; --muted: #58616b; --line: #d5dae0; --soft: #f3f5f7; --blue: #0072b2; }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: var(--ink);
  margin: 0; background: white; }
main { max-width: 1080px; margin: 0 auto; padding: 2.2rem 1.5rem 3rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.5rem 0 .4rem; }
p { max-width: 46rem; margin: .5rem 0; }
.muted, figcaption { color: var(--muted); font-size: .92rem; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.4rem 0 .4rem; }
.card { flex: 1 1 11rem; border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; }
.card b { display: block; font-size: 1.7rem; line-height: 1.2; }
.card span { color: var(--muted); font-size: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .9rem; text-align: right; border-bottom: 1px solid var(--line); }
th { font-weight: 600; font-size: .92rem; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
tr.total td { font-weight: 600; border-top: 2px solid var(--ink); }
table.matrix td, table.matrix th { text-align: center; border: 1px solid white; padding: .55rem .8rem; }
table.matrix th:first-child { text-align: right; }
table.matrix tbody th { vertical-align: middle; }
table.matrix td small { display: block; font-size: .78rem; opacity: .85; }
.bar { display: inline-block; width: 11rem; height: .8rem; background: var(--soft); position: relative;
  vertical-align: middle; }
.bar i { position: absolute; left: 0; top: 0; bottom: 0; background: var(--blue); }
.bar u { position: absolute; top: -3px; bottom: -3px; width: 2px; background: var(--ink); }
figure { margin: 1rem 0; }
figure img { max-width: 100%; height: auto; display: block; border: 1px solid var(--line);
  border-radius: 4px; }
figcaption { margin-top: .4rem; max-width: 46rem; }
.note { background: var(--soft); border-left: 4px solid var(--blue); padding: .7rem 1rem; }
.warn { border-left-color: #d55e00; }
code { font: .9em ui-monospace, "DejaVu Sans Mono", monospace; background: var(--soft);
  padding: .1em .3em; border-radius: 3px; }
footer { margin-top: 3rem; color: var(--muted); font-size: .88rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
/* Printed sideways: the letters in the pictures stay large enough, and each picture fits on a page. */
@page { size: landscape; margin: 10mm 12mm; }
@media print { main { max-width: none; padding: 0; } body { font-size: 11pt; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  h2 { margin-top: 1.2rem; } h2, h3 { break-after: avoid; } .scroll { overflow: visible; }
  figure, table, .card, .note { break-inside: avoid; }
  figure img { max-height: 160mm; width: auto; } p { orphans: 3; widows: 3; } }
"""


def page(title: str, sections: Iterable[str]) -> str:
    """The whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(sections)
        + "\n</main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A section of the page with a heading."""
    return f"<section><h2>{escape(title)}</h2>\n" + "\n".join(parts) + "</section>"


def paragraph(text: Cell, kind: str = "") -> str:
    """A paragraph; `kind` is a class of the style sheet, such as muted or note."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{html_of(text)}</p>"


def cards(items: Sequence[tuple[str, str]]) -> str:
    """A few numbers in large letters: (number, what it is)."""
    inside = "".join(
        f'<div class="card"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in items
    )
    return f'<div class="cards">{inside}</div>'


def bar(value: float, mark: float | None = None) -> Html:
    """A bar from 0 to 1, with a mark (the chance level) if given."""
    share = min(max(value, 0.0), 1.0)
    line = "" if mark is None else f'<u style="left:{min(max(mark, 0.0), 1.0):.1%}"></u>'
    return Html(f'<span class="bar"><i style="width:{share:.1%}"></i>{line}</span>')


def picture(
    figure: Sheet | Figure, words: str, caption: str = "", kind: str = "jpg", dpi: int = 90
) -> str:
    """A figure embedded in the page; `words` are its alternative text."""
    content = base64.b64encode(figure_bytes(figure, kind, dpi)).decode()
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f'<figure><img alt="{escape(words, quote=True)}" '
        f'src="data:{MEDIA[kind]};base64,{content}">{below}</figure>'
    )
