"""Explanations and runs as they look in a notebook: one table, its pictures inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protopyramid.figures.case_figure import (
    CaseFigureData,
    CaseRow,
    lead_lines,
    level_text,
    likeness,
    product_text,
    score_text,
    speaks_for,
    why_line,
)
from protopyramid.figures.drawing import AGAINST, FOR, Picture, Sheet, figure_bytes
from protopyramid.figures.film import headline
from protopyramid.figures.text import percent, signed
from protopyramid.model.activation import Box
from protopyramid.utils.html import Cell, Html, html_of, image, table

SIDE, SHARPNESS = 1.3, 90  # inches of a picture, and its pixels per inch
SMALL = 0.75  # inches of a prototype among many


def case_html(data: CaseFigureData) -> str:
    """Why one class and not another: a headline, a row per prototype with its pictures, and the sum."""
    prediction = data.prediction
    share = percent(prediction.probabilities[prediction.predicted])
    said = headline(prediction.predicted, share, prediction.unlike, prediction.film)
    head = f"<h3>{html_of(said.title)}</h3><p>{html_of(said.below)}. {html_of(said.note)}</p>"
    why = f"<p><b>{html_of(prediction.image_name)}</b>. {html_of(why_line(prediction))}:</p>"
    header = ["your image", "where it matches", "the case", "prototype", "points"]
    rows = [_case_cells(data, row) for row in data.rows]
    below = "".join(f"<p>{html_of(line)}</p>" for line in lead_lines(data))
    return f"{head}{why}{table(header, rows)}{below}"


def _case_cells(data: CaseFigureData, row: CaseRow) -> list[Cell]:
    own, heat, case = (Sheet(SIDE, SIDE) for _ in range(3))
    own_tile, case_tile = own.tile(0, 0, SIDE), case.tile(0, 0, SIDE)
    own_tile.show(data.image)
    own_tile.outline(row.region)
    heat.tile(0, 0, SIDE).show_heat(data.image, row.region)
    case_tile.show(row.case_image)
    case_tile.draw_box(row.case_cell, width=1.2)
    colour = FOR if row.points >= 0 else AGAINST
    what = f"{likeness(row)}<br><b>{html_of(row.class_name)}</b><br>{level_text(row.level)}"
    sum_text = f"{html_of(score_text(row))}<br>{html_of(product_text(row))}"
    points = f'<b style="color:{colour};font-size:130%">{signed(row.points)}</b>'
    return [
        _inline(own, f"where prototype {row.index} matches the image"),
        _inline(heat, f"how well each part matches prototype {row.index}"),
        _inline(case, f"the training image of prototype {row.index}"),
        Html(f"{what}<br>prototype {row.index}"),
        Html(f"{sum_text}<br>{points}<br>{html_of(speaks_for(row, data.prediction))}"),
    ]


def prototypes_html(
    title: str,
    words: str,
    pictures: Mapping[tuple[str, int], Sequence[tuple[int, Picture, Box]]],
    classes: Sequence[str],
) -> str:
    """A run: what it is, and its prototypes by class (down) and level (across).

    pictures: {(class, level): (index, source image, the prototype's cell)}.
    """
    levels = sorted({level for _, level in pictures})
    rows: list[list[Cell]] = []
    for name in classes:
        cells = (_prototype_row(pictures.get((name, level), ())) for level in levels)
        rows.append([name, *cells])
    grid = table(["class", *(level_text(level) for level in levels)], rows) if levels else ""
    return f"<h3>{html_of(title)}</h3><p>{html_of(words)}</p>{grid}"


def _prototype_row(found: Sequence[tuple[int, Picture, Box]]) -> Html:
    parts = []
    for index, picture, cell in found:
        sheet = Sheet(SMALL, SMALL)
        tile = sheet.tile(0, 0, SMALL)
        tile.show(picture)
        tile.draw_box(cell, width=1.0)
        parts.append(_inline(sheet, f"prototype {index}").text)
    return Html(" ".join(parts))


def _inline(sheet: Sheet, words: str) -> Html:
    return image(figure_bytes(sheet, "jpg", SHARPNESS), words, "jpg")
