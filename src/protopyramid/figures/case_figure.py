"""The case-based figure: "this part of your image looks like that part of a training image".

One row per prototype: a your image, b how well each part of it matches the prototype, c the prototype,
d the training case it comes from, e the prototype on that case, f score × weight = points. The points
of the rows and of all other prototypes add up to the class total at the bottom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from protopyramid.figures.drawing import (
    AGAINST,
    COLOUR_MAP,
    FOR,
    INK,
    JET,
    MUTED,
    PAPER,
    WHOLE,
    Picture,
    Sheet,
    roomy,
)
from protopyramid.figures.film import headline
from protopyramid.figures.text import (
    counted,
    decimal,
    percent,
    shortened,
    shortened_path,
    signed,
)
from protopyramid.model.activation import Box, Region
from protopyramid.model.tta import tta_text

LEVEL_WORDS = {2: "finest", 3: "fine", 4: "coarse", 5: "coarsest"}
MOST_CLASSES = 6  # more do not fit; the most probable are shown
COLUMNS = (
    ("a", "Your image", "yellow: the part meant"),
    ("b", "Where it matches", "bright: best match"),
    ("c", "Looks like this …", "square: the prototype"),
    ("d", "… in this case", "a known training image"),
    ("e", "Match on the case", "bright: best match"),
    ("f", "What it adds", ""),
)
WIDTH, MARGIN, LABEL, PANEL, GAP = 14.6, 0.3, 1.75, 1.85, 0.1
HEADER, HEADS, ROW, FOOTER = 1.85, 0.62, 1.97, 2.75
RIGHT = WIDTH - MARGIN - 0.05
POINTS = MARGIN + LABEL + (PANEL + GAP) * 5 + 0.18  # left edge of column f
LINE = 0.28
CELLS, LEAST_PART = (
    3,
    0.36,
)  # panel c: coarsest cells per side, and the least share of the image's side


@dataclass(frozen=True)
class Prediction:
    """What the model says of an image: the header of a figure.

    `logits`: the total points of each class; `unlike`: whether the image is unlike the training images;
    `film`: whether it looks like a whole film given to a model of crops.
    """

    image_name: str
    predicted: str
    logits: Mapping[str, float]
    probabilities: Mapping[str, float]
    unlike: bool = False
    film: bool = False


@dataclass(frozen=True)
class CaseRow:
    """One prototype: where it matches the image, the case behind it, and what it adds.

    `region`: where the prototype activates on the image; `case_region`: on its own training image;
    `case_cell`: the square of that image that the prototype was taken from; `case_label`: its label, None
    where it is not known; `case_note`: what is written on the case where its picture was not shared.
    """

    index: int
    class_name: str
    level: int
    region: Region
    case_image: Picture
    case_region: Region
    score: float
    weight: float
    contribution: float
    case_cell: Box = WHOLE
    case_label: str | None = None
    case_note: str = ""


@dataclass(frozen=True)
class RunnerUp:
    """How the total of the second class comes about: its own prototypes, and those of other classes."""

    class_name: str
    own_count: int
    own_sum: float
    other_count: int
    other_sum: float


@dataclass(frozen=True)
class CaseFigureData:
    """Everything that the case-based figure shows.

    image (S, S) or (S, S, 3) in [0, 1]; `others`: number of prototypes without a row; `shown_sums` and
    `other_sums`: what prototypes with and without a row add to each class; `mask` (S, S): annotation of
    the image, if known; `tta`: over how many augmented copies maps and scores are averaged;
    `evidence`: whether evidence regions are outlined on the image.
    """

    prediction: Prediction
    image: Picture
    rows: Sequence[CaseRow]
    others: int
    shown_sums: Mapping[str, float]
    other_sums: Mapping[str, float]
    mask: NDArray[Any] | None = None
    tta: int = 1
    evidence: bool = False
    runner_up: RunnerUp | None = None


def case_figure(data: CaseFigureData, colour_map: str = COLOUR_MAP) -> Sheet:
    """Draw the case-based explanation of one image."""
    bottom = HEADER + HEADS + ROW * len(data.rows)
    sheet = Sheet(WIDTH, bottom + FOOTER)
    draw_header(sheet, data.prediction)
    _draw_column_heads(sheet, data, colour_map)
    largest = max((abs(row.contribution) for row in data.rows), default=1.0) or 1.0
    side = part_side(data.rows)
    for number, row in enumerate(data.rows):
        top = HEADER + HEADS + ROW * number
        _draw_row_label(sheet, top, row)
        _draw_pictures(sheet, top, data, row, side, colour_map)
        _draw_points(sheet, top, row, data.prediction.predicted, largest)
    sheet.rule(MARGIN, WIDTH - MARGIN, bottom + 0.02, MUTED)
    _draw_sum(sheet, bottom + 0.18, data)
    _draw_table(sheet, bottom + 0.18, data)
    for number, text in enumerate(sum_lines(data)):
        sheet.write(MARGIN, bottom + 1.66 + 0.22 * number, text, fontsize=11)
    strangers = any(row.case_label not in (None, row.class_name) for row in data.rows)
    other = "; ✕: a case of another class" if strangers else ""
    _draw_note(sheet, bottom + FOOTER - 0.58, colour_map, data.tta, other, data.evidence)
    return sheet


def top_classes(probabilities: Mapping[str, float], most: int = MOST_CLASSES) -> list[str]:
    """The classes that fit into a figure: all in their order, or the most probable ones."""
    if len(probabilities) <= most:
        return list(probabilities)
    return sorted(probabilities, key=lambda name: -probabilities[name])[:most]


def level_text(level: int) -> str:
    """A level and what it means.

    >>> level_text(2), level_text(7)
    ('level 2, finest', 'level 7')
    """
    word = LEVEL_WORDS.get(level)
    return f"level {level}" + (f", {word}" if word else "")


def draw_header(sheet: Sheet, prediction: Prediction, totals: str = "total points") -> None:
    """The predicted class, or why not to rely on it, in large letters, and a bar for each class.

    `totals` names the logits.
    """
    share = percent(prediction.probabilities[prediction.predicted])
    name = shortened(prediction.predicted, 26)
    said = headline(name, share, prediction.unlike, prediction.film)
    colour = AGAINST if said.note else INK
    sheet.write(MARGIN, 0.26, said.above, fontsize=13, color=MUTED)
    sheet.write(MARGIN, 0.48, said.title, fontsize=27, fontweight="bold", color=colour)
    sheet.write(MARGIN, 1.01, said.below, fontsize=13)
    image = f"image: {shortened_path(prediction.image_name)}"
    sheet.write(MARGIN, 1.29, image, fontsize=10.5, color=MUTED)
    sheet.write(MARGIN, 1.5, said.note, fontsize=11.5)
    _draw_class_bars(sheet, prediction, totals)


def _draw_class_bars(sheet: Sheet, prediction: Prediction, totals: str) -> None:
    classes = top_classes(prediction.probabilities)
    left, length, step = 8.35, 2.9, min(0.3, 1.25 / len(classes))
    right = left + length + 1.45
    sheet.write(left, 0.26, "probability", fontsize=10, color=MUTED)
    sheet.write(right, 0.26, totals, fontsize=10, color=MUTED, ha="right")
    for number, name in enumerate(classes):
        y = 0.52 + step * number
        middle = y + step * 0.38
        own, share = name == prediction.predicted, prediction.probabilities[name]
        style = {"fontweight": "bold" if own else "normal", "va": "center", "fontsize": 11.5}
        sheet.write(left - 0.12, middle, shortened(name), ha="right", **style)
        sheet.bar(left, y, length, step * 0.76, PAPER)
        sheet.bar(left, y, length * share, step * 0.76, FOR if own else "#9aa5b1")
        sheet.write(left + length + 0.1, middle, percent(share), **style)
        sheet.write(right, middle, signed(prediction.logits[name]), ha="right", **style)


def _panel_left(number: int) -> float:
    return MARGIN + LABEL + (PANEL + GAP) * number


def _draw_column_heads(sheet: Sheet, data: CaseFigureData, colour_map: str) -> None:
    sheet.rule(MARGIN, WIDTH - MARGIN, HEADER - 0.1, MUTED)
    other = {"f": f"to the total of {shortened(data.prediction.predicted, 18)}"}
    if colour_map == JET:
        other["b"] = other["e"] = "red: best match"
    if data.mask is not None:
        other["a"] = "dashed: annotation"
    for number, (letter, title, below) in enumerate(COLUMNS):
        x = POINTS if letter == "f" else _panel_left(number)
        sheet.write(x, HEADER + 0.04, letter, fontsize=12, fontweight="bold")
        sheet.write(x + 0.17, HEADER + 0.04, title, fontsize=12, fontweight="bold")
        sheet.write(x, HEADER + 0.28, other.get(letter, below), fontsize=10, color=MUTED)


def _draw_row_label(sheet: Sheet, top: float, row: CaseRow) -> None:
    middle = top + PANEL / 2
    name = shortened(row.class_name, 17)
    style = {"va": "center"}
    sheet.write(MARGIN, middle - 0.28, "looks like", fontsize=10, color=MUTED, **style)
    sheet.write(MARGIN, middle - 0.06, name, fontsize=12.5, fontweight="bold", **style)
    sheet.write(MARGIN, middle + 0.17, level_text(row.level), fontsize=10.5, **style)
    number = f"prototype {row.index}"
    sheet.write(MARGIN, middle + 0.37, number, fontsize=10, color=MUTED, **style)


def part_side(rows: Sequence[CaseRow]) -> float:
    """The share of an image's side that panel c shows: the same in all rows, so that fine looks fine."""
    sides = (row.case_cell[2] - row.case_cell[0] for row in rows)
    return min(1.0, max(LEAST_PART, CELLS * max(sides, default=0.0)))


def _draw_pictures(
    sheet: Sheet, top: float, data: CaseFigureData, row: CaseRow, side: float, colour_map: str
) -> None:
    """Panels a to e: where the prototype activates, on the image and on its case, and its own cell.

    side: the part of the case that panel c shows, as a share of its side.
    """
    own, own_heat, case, case_heat = (sheet.tile(_panel_left(n), top, PANEL) for n in (0, 1, 3, 4))
    own.show(data.image)
    if data.mask is not None:
        own.draw_mask(data.mask)
    own.mark(row.region)
    own_heat.show_heat(data.image, row.region, colour_map)
    part = sheet.crop(_panel_left(2), top, PANEL, roomy(row.case_cell, side, 0.0))
    part.show(row.case_image)
    part.draw_box(row.case_cell, width=1.2)
    case.show(row.case_image)
    case.draw_box(row.case_cell, width=1.0)
    if row.case_note:
        case.tag(row.case_note, INK, (0.03, 0.97 if row.case_cell[1] < 0.5 else 0.03))
    elif row.case_label is not None and row.case_label != row.class_name:
        case.tag_other(row.case_label)
    elif row.case_label is not None:
        case.tag(shortened(row.case_label, 16), INK, (0.03, 0.97))
    case_heat.show_heat(row.case_image, row.case_region, colour_map)


def _draw_points(sheet: Sheet, top: float, row: CaseRow, predicted: str, largest: float) -> None:
    middle = top + PANEL / 2
    counts_for = row.contribution >= 0
    colour, words = (FOR, "counts for") if counts_for else (AGAINST, "counts against")
    sheet.write(POINTS, middle - 0.42, "score × weight = points", fontsize=10, color=MUTED)
    product = f"{decimal(row.score)} × {decimal(row.weight)} ="
    sheet.write(POINTS, middle - 0.2, product, fontsize=11.5)
    strong = {"fontsize": 17, "fontweight": "bold", "color": colour, "ha": "right"}
    sheet.write(RIGHT, middle - 0.25, signed(row.contribution), **strong)
    length = (RIGHT - POINTS) * abs(row.contribution) / largest
    sheet.bar(POINTS, middle + 0.1, length, 0.16, colour, not counts_for)
    words = f"{words} {shortened(predicted, 17)}"
    sheet.write(POINTS, middle + 0.31, words, fontsize=10, color=colour)


def _draw_sum(sheet: Sheet, top: float, data: CaseFigureData) -> None:
    """The rows above, the others and their sum, under column f."""
    name = data.prediction.predicted
    lines = [
        (counted(len(data.rows), "prototype") + " above", data.shown_sums[name]),
        (counted(data.others, "other prototype"), data.other_sums[name]),
    ]
    for number, (text, value) in enumerate(lines):
        sheet.write(POINTS, top + LINE * number, text, fontsize=11)
        sheet.write(RIGHT, top + LINE * number, signed(value), fontsize=12, ha="right")
    sheet.rule(POINTS, RIGHT, top + 0.6, INK)
    strong = {"fontsize": 17, "fontweight": "bold", "ha": "right"}
    sheet.write(RIGHT, top + 0.68, signed(data.prediction.logits[name]), **strong)
    sheet.write(POINTS, top + 0.73, "= total of", fontsize=11)
    sheet.write(POINTS, top + 0.95, shortened(name, 18), fontsize=12, fontweight="bold")


def sum_lines(data: CaseFigureData) -> list[str]:
    """How much the rows explain of the predicted class, and how the runner-up's total comes about."""
    name = data.prediction.predicted
    total, shown = data.prediction.logits[name], data.shown_sums[name]
    share = f" ({percent(shown / total)})" if 0 < shown <= total else ""
    verb = "adds" if len(data.rows) == 1 else "add"
    lines = [
        f"The {counted(len(data.rows), 'prototype')} above {verb} {signed(shown)} of the {signed(total)} of "
        f"{shortened(name)}{share}; the other {data.others} add {signed(data.other_sums[name])}."
    ]
    second = data.runner_up
    if second is not None:
        lines.append(
            f"Runner-up {shortened(second.class_name)}: its own {counted(second.own_count, 'prototype')} "
            f"add {signed(second.own_sum)}, the other {second.other_count} add "
            f"{signed(second.other_sum)}: {signed(second.own_sum + second.other_sum)} in all."
        )
    return lines


def _draw_table(sheet: Sheet, top: float, data: CaseFigureData) -> None:
    """How the points of all classes add up."""
    prediction = data.prediction
    classes = top_classes(prediction.probabilities)
    first, step = MARGIN + 3.4, min(1.55, 7.6 / max(len(classes), 1))
    labels = (
        "Points of every class",
        "prototypes above",
        "other prototypes",
        "total",
        "probability",
    )
    for line, text in enumerate(labels):
        weight = "bold" if line in (0, 3) else "normal"
        sheet.write(MARGIN, top + LINE * line, text, fontsize=11, fontweight=weight)
    for number, name in enumerate(classes):
        values = (
            shortened(name, 14),
            signed(data.shown_sums[name]),
            signed(data.other_sums[name]),
            signed(prediction.logits[name]),
            percent(prediction.probabilities[name]),
        )
        weight = "bold" if name == prediction.predicted else "normal"
        style = {"fontsize": 11, "ha": "right", "fontweight": weight}
        for line, text in enumerate(values):
            sheet.write(first + step * number, top + LINE * line, text, **style)
    sheet.rule(MARGIN, first + step * (len(classes) - 1), top + 0.81)


def _draw_note(
    sheet: Sheet, top: float, colour_map: str, tta: int, other: str, evidence: bool
) -> None:
    heat = "Red" if colour_map == JET else "Bright colours"
    mean = f"b and f: the mean over {tta_text(tta)}. " if tta > 1 else ""
    outlines = "in a, b and e: the strongest 5% of the map."
    if evidence:
        outlines = "in a and b: the smallest part found that keeps 90% of the rise; in e: the strongest 5%."
    text = (
        f"{heat}: best match; each map has its own colour scale. Outlines {outlines} "
        f"{mean}\nSquare in c and d: the patch that is the prototype; c enlarges all cases alike"
        f"{other}.\nThe probability of a class depends on how far its total is ahead of the others. Numbers "
        "are rounded. For research only, not a medical device."
    )
    sheet.write(MARGIN, top, text, fontsize=9.5, color=MUTED, linespacing=1.4)
