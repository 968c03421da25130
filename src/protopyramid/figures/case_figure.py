"""The case-based figure: "this part of your image looks like that part of a training image".

It says why one class and not another. One row per prototype: a your image, b how well each part of it
matches the prototype, c the prototype, d the training case it comes from, e the prototype on that case, f
its points: what it adds to the lead of the predicted class over the other. The lead of an average training
image, the points of the rows and those of all other prototypes add up to the lead at the bottom.
"""

from __future__ import annotations

import math
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
HEADER, HEADS, ROW, FOOTER = 1.85, 0.62, 1.97, 2.4
RIGHT = WIDTH - MARGIN - 0.05
POINTS = MARGIN + LABEL + (PANEL + GAP) * 5 + 0.18  # left edge of column f
LINE = 0.28
RIVAL = "#9aa5b1"
CELLS, LEAST_PART = (
    3,
    0.36,
)  # panel c: coarsest cells per side, and the least share of the image's side


@dataclass(frozen=True)
class Prediction:
    """What the model says of an image: the header of a figure.

    `logits`: the total points of each class; `unlike`: whether the image is unlike the training images;
    `film`: whether it looks like a whole film given to a model of crops; `against`: the class that the
    predicted one is compared with; `changed`: what a reader changed in the model's weights, in words.
    """

    image_name: str
    predicted: str
    logits: Mapping[str, float]
    probabilities: Mapping[str, float]
    unlike: bool = False
    film: bool = False
    against: str | None = None
    changed: str = ""

    @property
    def lead(self) -> float:
        """The points by which the predicted class is ahead of the one it is compared with."""
        behind = 0.0 if self.against is None else self.logits[self.against]
        return self.logits[self.predicted] - behind


@dataclass(frozen=True)
class CaseRow:
    """One prototype: where it matches the image, the case behind it, and what it adds.

    `region`: where the prototype activates on the image; `case_region`: on its own training image;
    `case_cell`: the square of that image that the prototype was taken from; `case_label`: its label, None
    where it is not known; `case_note`: what is written on the case where its picture was not shared.
    `average`: the score of an average training image, None where it is not known; `weight`: the
    prototype's weight for the predicted class less that for the other; `points`: the score, less the
    average, times the weight.
    """

    index: int
    class_name: str
    level: int
    region: Region
    case_image: Picture
    case_region: Region
    score: float
    weight: float
    points: float
    average: float | None = None
    case_cell: Box = WHOLE
    case_label: str | None = None
    case_note: str = ""


@dataclass(frozen=True)
class Side:
    """The prototypes that speak for one of two classes: how many, their points, and those with a row."""

    count: int = 0
    points: float = 0.0
    shown: int = 0
    shown_points: float = 0.0


@dataclass(frozen=True)
class Lead:
    """How the lead of the predicted class over another comes about.

    total = average (that of an average training image, None: not known) + ahead.points (those for the
    predicted class) + behind.points (those for the other).
    """

    average: float | None
    ahead: Side
    behind: Side
    total: float


@dataclass(frozen=True)
class CaseFigureData:
    """Everything that the case-based figure shows.

    image (S, S) or (S, S, 3) in [0, 1]; `lead`: over the class that the predicted one is compared with;
    `reference`: what an average training image is, in words, None where it is not known; `mask` (S, S):
    annotation of the image, if known; `tta`: over how many augmented copies
    maps and scores are averaged; `evidence`: whether evidence regions are outlined on the image.
    """

    prediction: Prediction
    image: Picture
    rows: Sequence[CaseRow]
    lead: Lead
    reference: str | None = None
    mask: NDArray[Any] | None = None
    tta: int = 1
    evidence: bool = False


def case_figure(data: CaseFigureData, colour_map: str = COLOUR_MAP) -> Sheet:
    """Draw the case-based explanation of one image."""
    bottom = HEADER + HEADS + ROW * len(data.rows)
    sheet = Sheet(WIDTH, bottom + FOOTER)
    draw_header(sheet, data.prediction, behind=True)
    _draw_column_heads(sheet, data, colour_map)
    largest = max((abs(row.points) for row in data.rows), default=1.0) or 1.0
    side = part_side(data.rows)
    for number, row in enumerate(data.rows):
        top = HEADER + HEADS + ROW * number
        _draw_row_label(sheet, top, row)
        _draw_pictures(sheet, top, data, row, side, colour_map)
        _draw_points(sheet, top, row, data.prediction, largest)
    sheet.rule(MARGIN, WIDTH - MARGIN, bottom + 0.02, MUTED)
    _draw_sum(sheet, bottom + 0.18, data)
    first, *more = lead_lines(data)
    sheet.write(MARGIN, bottom + 0.16, first, fontsize=14, fontweight="bold")
    sheet.write(MARGIN, bottom + 0.48, "\n".join(more), fontsize=12, linespacing=1.35)
    _draw_note(sheet, bottom + FOOTER - 0.86, data, colour_map)
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


def draw_header(sheet: Sheet, prediction: Prediction, behind: bool = False) -> None:
    """The predicted class, or why not to rely on it, in large letters, and a bar for each class.

    behind: say how far each class is behind the predicted one; else their logits.
    """
    share = percent(prediction.probabilities[prediction.predicted])
    name = shortened(prediction.predicted, 26)
    said = headline(name, share, prediction.unlike, prediction.film)
    colour = AGAINST if said.note else INK
    above = said.above if not prediction.changed else f"{said.above}, changed by a reader"
    sheet.write(MARGIN, 0.26, above, fontsize=13, color=AGAINST if prediction.changed else MUTED)
    sheet.write(MARGIN, 0.48, said.title, fontsize=27, fontweight="bold", color=colour)
    below = f"{said.below}. {said.note}" if prediction.changed and said.note else said.below
    sheet.write(MARGIN, 1.01, below, fontsize=13)
    image = f"image: {shortened_path(prediction.image_name)}"
    sheet.write(MARGIN, 1.29, image, fontsize=10.5, color=MUTED)
    why = why_line(prediction) if behind else ""
    sheet.write(MARGIN, 1.47, prediction.changed or said.note or why, fontsize=12)
    _draw_class_bars(sheet, prediction, behind)


def why_line(prediction: Prediction) -> str:
    """What the figure explains: why this class and not another."""
    if prediction.against is None:
        return ""
    name, other = shortened(prediction.predicted, 26), shortened(prediction.against, 26)
    return f"Below: why {name} and not {other}"


def _draw_class_bars(sheet: Sheet, prediction: Prediction, behind: bool) -> None:
    classes = top_classes(prediction.probabilities)
    left, length, step = 8.35, 2.9, min(0.3, 1.25 / len(classes))
    right = left + length + 1.45
    sheet.write(left, 0.26, "probability", fontsize=10, color=MUTED)
    title = "points behind" if behind else "logit"
    sheet.write(right, 0.26, title, fontsize=10, color=MUTED, ha="right")
    colours = {prediction.predicted: FOR, prediction.against: AGAINST if behind else RIVAL}
    for number, name in enumerate(classes):
        y = 0.52 + step * number
        middle = y + step * 0.38
        own, share = name == prediction.predicted, prediction.probabilities[name]
        style = {"fontweight": "bold" if own else "normal", "va": "center", "fontsize": 11.5}
        sheet.write(left - 0.12, middle, shortened(name), ha="right", **style)
        sheet.bar(left, y, length, step * 0.76, PAPER)
        sheet.bar(left, y, length * share, step * 0.76, colours.get(name, RIVAL))
        sheet.write(left + length + 0.1, middle, percent(share), **style)
        points = signed(prediction.logits[name])
        if behind:
            away = prediction.logits[prediction.predicted] - prediction.logits[name]
            points = "ahead" if own else decimal(away)
        sheet.write(right, middle, points, ha="right", **style)


def _panel_left(number: int) -> float:
    return MARGIN + LABEL + (PANEL + GAP) * number


def _draw_column_heads(sheet: Sheet, data: CaseFigureData, colour_map: str) -> None:
    sheet.rule(MARGIN, WIDTH - MARGIN, HEADER - 0.1, MUTED)
    other = {"f": "points for and against"}
    if data.prediction.against is not None:
        other["f"] = f"to the lead over {shortened(data.prediction.against, 14)}"
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
    sheet.write(MARGIN, middle - 0.28, likeness(row), fontsize=10, color=MUTED, **style)
    sheet.write(MARGIN, middle - 0.06, name, fontsize=12.5, fontweight="bold", **style)
    sheet.write(MARGIN, middle + 0.17, level_text(row.level), fontsize=10.5, **style)
    number = f"prototype {row.index}"
    sheet.write(MARGIN, middle + 0.37, number, fontsize=10, color=MUTED, **style)


def likeness(row: CaseRow) -> str:
    """How the image compares with the prototype: with an average training image as the measure."""
    if row.average is None:
        return "looks like"
    return "looks more like" if row.score >= row.average else "looks less like"


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


def _draw_points(
    sheet: Sheet, top: float, row: CaseRow, prediction: Prediction, largest: float
) -> None:
    """Score, average and weight, and a bar from the middle: to the right for the predicted class."""
    middle = top + PANEL / 2
    forwards = row.points >= 0
    colour = FOR if forwards else AGAINST
    sheet.write(POINTS, middle - 0.5, score_text(row), fontsize=10, color=MUTED)
    sheet.write(POINTS, middle - 0.23, product_text(row), fontsize=10.5)
    strong = {"fontsize": 17, "fontweight": "bold", "color": colour, "ha": "right"}
    sheet.write(RIGHT, middle - 0.3, signed(row.points), **strong)
    half = (RIGHT - POINTS) / 2
    length = half * abs(row.points) / largest
    start = POINTS + half - (0.0 if forwards else length)
    sheet.bar(POINTS, middle + 0.1, 2 * half, 0.16, PAPER)
    sheet.bar(start, middle + 0.1, length, 0.16, colour, not forwards)
    sheet.bar(POINTS + half - 0.006, middle + 0.06, 0.012, 0.24, INK)
    style = {"fontsize": 10, "color": colour}
    sheet.write(POINTS, middle + 0.34, speaks_for(row, prediction), **style)


def score_text(row: CaseRow) -> str:
    """The score beside that of an average training image."""
    average = "" if row.average is None else f", average {decimal(row.average)}"
    return f"score {decimal(row.score)}{average}"


def product_text(row: CaseRow) -> str:
    """What the points are the product of."""
    if row.average is None:
        return f"{decimal(row.score)} × {decimal(row.weight)} ="
    return f"{signed(row.score - row.average)} × {decimal(row.weight)} ="


def speaks_for(row: CaseRow, prediction: Prediction) -> str:
    """Which of the two classes a row speaks for."""
    return shortened(sides(prediction)[0 if row.points >= 0 else 1], 22)


def _draw_sum(sheet: Sheet, top: float, data: CaseFigureData) -> None:
    """The average image, both sides and their sum, under column f."""
    lead, (one, other) = data.lead, sides(data.prediction)
    lines = [(f"{lead.ahead.count} {one}", lead.ahead.points, FOR)]
    lines += [(f"{lead.behind.count} {other}", lead.behind.points, AGAINST)]
    if lead.average is not None:
        lines.insert(0, ("average image", lead.average, INK))
    for number, (text, value, colour) in enumerate(lines):
        y = top + LINE * number
        sheet.write(POINTS, y, shortened(text, 20), fontsize=10.5, color=colour)
        sheet.write(RIGHT, y, signed(value), fontsize=12, ha="right", color=colour)
    below = top + LINE * len(lines)
    sheet.rule(POINTS, RIGHT, below + 0.04, INK)
    strong = {"fontsize": 17, "fontweight": "bold", "ha": "right"}
    sheet.write(RIGHT, below + 0.12, signed(lead.total), **strong)
    against = data.prediction.against
    words = "= total" if against is None else "= lead over"
    sheet.write(POINTS, below + 0.17, words, fontsize=11)
    name = data.prediction.predicted if against is None else against
    sheet.write(POINTS, below + 0.39, shortened(name, 18), fontsize=12, fontweight="bold")


def sides(prediction: Prediction) -> tuple[str, str]:
    """What prototypes with positive and with negative points speak for."""
    if prediction.against is None:
        return f"for {prediction.predicted}", f"against {prediction.predicted}"
    return f"for {prediction.predicted}", f"for {prediction.against}"


def lead_lines(data: CaseFigureData) -> list[str]:
    """What the lead means, where an average image stands, and how much of both sides the rows explain."""
    lead, prediction = data.lead, data.prediction
    name = shortened(prediction.predicted)
    lines = [f"{name} gets {signed(lead.total)} points."]
    if prediction.against is not None:
        other = shortened(prediction.against)
        times = times_text(lead.total)
        lines = [
            f"{name} is {times} as probable as {other}: a lead of {signed(lead.total)} points."
        ]
    if lead.average is not None:
        where = "would have a lead of" if prediction.against is not None else "gets"
        lines.append(
            f"An average training image {where} {signed(lead.average)}. This image differs:"
        )
    for side, words in zip((lead.ahead, lead.behind), sides(prediction), strict=True):
        lines.append(_side_line(side, words))
    return lines


def _side_line(side: Side, words: str) -> str:
    """What the prototypes of one side add, and how much of it the rows above explain."""
    if not side.count:
        return f"No prototype speaks {words}."
    verb = "speaks" if side.count == 1 else "speak"
    text = f"{counted(side.count, 'prototype')} {verb} {words}: {signed(side.points)}"
    if not side.shown:
        return f"{text}, none of them shown."
    if side.shown == side.count:
        return f"{text}, all shown above."
    share = percent(side.shown_points / side.points) if side.points else "0%"
    others = side.count - side.shown
    return f"{text}; the {side.shown} above explain {share} of it, the other {others} the rest."


def times_text(lead: float) -> str:
    """How many times as probable a lead makes one class as another: e to that power.

    >>> times_text(0.693147), times_text(3.5), times_text(20.0), times_text(-0.693147)
    ('2.0 times', '33 times', 'over 1,000 times', '0.50 times')
    """
    if lead > 6.9:
        return "over 1,000 times"
    times = math.exp(lead)
    digits = 0 if times >= 10 else 1 if times >= 1 else 2
    return f"{times:.{digits}f} times"


def _draw_note(sheet: Sheet, top: float, data: CaseFigureData, colour_map: str) -> None:
    heat = "Red" if colour_map == JET else "Bright colours"
    mean = f" b and f: the mean over {tta_text(data.tta)}." if data.tta > 1 else ""
    outlines = "in a, b and e: the strongest 5% of the map."
    if data.evidence:
        outlines = "in a and b: the smallest part found that keeps 90% of the rise; in e: the strongest 5%."
    strangers = any(row.case_label not in (None, row.class_name) for row in data.rows)
    other = "; ✕: a case of another class" if strangers else ""
    text = (
        f"{heat}: best match; each map has its own colour scale. Outlines {outlines}\n"
        f"Square in c and d: the patch that is the prototype; c enlarges all cases alike{other}.{mean}\n"
        f"{points_note(data)}\nNumbers are rounded. For research only, not a medical device."
    )
    sheet.write(MARGIN, top, text, fontsize=9.5, color=MUTED, linespacing=1.4)


def points_note(data: CaseFigureData) -> str:
    """What a point is, and what the average training image is."""
    point = "One point of lead more makes a class 2.7 times as probable as the other."
    if data.reference is None:
        return (
            f"Points: score × weight. The score of an average training image is not known. {point}"
        )
    return f"Points: (score − average) × weight; average: {data.reference}. {point}"
