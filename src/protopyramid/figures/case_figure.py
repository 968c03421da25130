"""The case-based figure: "this part of your image looks like that part of a training image".

One row a prototype: a your image, b where it resembles the prototype, c the prototype, d the case it
comes from, e the prototype on its own case, f similarity x weight = contribution. The rows, and what
the other prototypes add, sum to the class score at the bottom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from matplotlib.figure import Figure
from numpy.typing import NDArray

from protopyramid.figures.drawing import (
    AGAINST,
    COLOUR_MAP,
    FOR,
    INK,
    JET,
    MUTED,
    PAPER,
    RULE,
    Box,
    Picture,
    add_axes,
    add_crop,
    bar,
    draw_box,
    draw_mask,
    new_figure,
    percent,
    roomy,
    rule,
    shortened,
    shortened_path,
    show,
    show_heat,
    signed,
    write,
)
from protopyramid.model.tta import tta_text

LEVEL_WORDS = {2: "finest", 3: "fine", 4: "coarse", 5: "coarsest"}
UNLIKE = "Caution: this image is unlike the training images"
MOST_CLASSES = 6  # more do not fit; the most probable are shown
COLUMNS = (
    ("a", "Your image", "box: the part meant"),
    ("b", "Where it is alike", "bright: most alike"),
    ("c", "Looks like this …", "the prototype, enlarged"),
    ("d", "… in this case", "a known training image"),
    ("e", "Map of that case", "the prototype on its case"),
    ("f", "What it adds", ""),
)
WIDTH, MARGIN, LABEL, PANEL, GAP, SUM = 14.6, 0.3, 1.75, 1.85, 0.1, 2.55
HEADER, HEADS, ROW, FOOTER = 1.85, 0.62, 1.97, 2.2


@dataclass(frozen=True)
class CaseRow:
    """One prototype: what it found in the image, and the case behind it."""

    index: int
    class_name: str
    level: int
    activation: Picture
    box: Box
    case_name: str
    case_image: Picture
    case_activation: Picture
    case_box: Box
    similarity: float
    weight: float
    contribution: float


@dataclass(frozen=True)
class CaseView:
    """Everything that the figure shows. `others`: number of prototypes without a row.

    `shown_sums` and `other_sums`: what prototypes with and without a row add to each class's score.
    `mask` (S, S), where given, is the annotation of the image; `unlike`: whether the image is unlike the
    training data; `tta`: over how many augmented copies its maps and similarities are averaged.
    """

    image_name: str
    image: Picture
    predicted: str
    logits: Mapping[str, float]
    probabilities: Mapping[str, float]
    rows: Sequence[CaseRow]
    others: int
    shown_sums: Mapping[str, float]
    other_sums: Mapping[str, float]
    mask: NDArray[Any] | None = None
    unlike: bool = False
    tta: int = 1


def case_figure(view: CaseView, colour_map: str = COLOUR_MAP) -> Figure:
    """Draw the case-based explanation of one image."""
    classes = top_classes(view.probabilities)
    figure = new_figure(WIDTH, HEADER + HEADS + ROW * len(view.rows) + FOOTER)
    draw_header(figure, view)
    _column_heads(figure, view, colour_map)
    largest = max((abs(row.contribution) for row in view.rows), default=1.0) or 1.0
    for number, row in enumerate(view.rows):
        _draw_row(figure, HEADER + HEADS + ROW * number, view, row, largest, colour_map)
    bottom = HEADER + HEADS + ROW * len(view.rows)
    rule(figure, MARGIN, WIDTH - MARGIN, bottom + 0.02, MUTED)
    _draw_sum(figure, bottom + 0.18, view)
    _draw_table(figure, bottom + 0.18, view, classes)
    _draw_note(figure, bottom + FOOTER - 0.5, colour_map, view.tta)
    return figure


def top_classes(probabilities: Mapping[str, float], most: int = MOST_CLASSES) -> list[str]:
    """The classes that fit into a figure: all in their order, or the most probable ones."""
    if len(probabilities) <= most:
        return list(probabilities)
    return sorted(probabilities, key=lambda name: -probabilities[name])[:most]


class Said(Protocol):
    """What the header of a figure shows: what the model says of an image."""

    @property
    def image_name(self) -> str: ...
    @property
    def predicted(self) -> str: ...
    @property
    def logits(self) -> Mapping[str, float]: ...
    @property
    def probabilities(self) -> Mapping[str, float]: ...
    @property
    def unlike(self) -> bool: ...


def draw_header(figure: Figure, view: Said) -> None:
    """The predicted class in large letters, and a bar for each class."""
    share = view.probabilities[view.predicted]
    write(figure, MARGIN, 0.26, "The model says", fontsize=13, color=MUTED)
    write(figure, MARGIN, 0.48, shortened(view.predicted, 26), fontsize=27, fontweight="bold")
    write(figure, MARGIN, 1.01, f"probability {percent(share)}", fontsize=13)
    name = f"image: {shortened_path(view.image_name)}"
    write(figure, MARGIN, 1.29, name, fontsize=10.5, color=MUTED)
    if view.unlike:
        style = {"fontsize": 11.5, "fontweight": "bold", "color": AGAINST}
        write(figure, MARGIN, 1.5, UNLIKE, **style)
    _class_bars(figure, view.predicted, view.logits, view.probabilities)


def _class_bars(
    figure: Figure, predicted: str, logits: Mapping[str, float], probabilities: Mapping[str, float]
) -> None:
    classes = top_classes(probabilities)
    left, length, step = 8.35, 2.9, min(0.3, 1.25 / len(classes))
    top = 0.52
    write(figure, left, 0.26, "probability", fontsize=10, color=MUTED)
    write(figure, left + length + 1.45, 0.26, "class score", fontsize=10, color=MUTED, ha="right")
    for number, name in enumerate(classes):
        y = top + step * number
        own = name == predicted
        strong = {"fontweight": "bold" if own else "normal", "va": "center", "fontsize": 11.5}
        middle = y + step * 0.38
        write(figure, left - 0.12, middle, shortened(name), ha="right", **strong)
        share = probabilities[name]
        bar(figure, left, y, length, step * 0.76, PAPER)
        bar(figure, left, y, length * share, step * 0.76, FOR if own else "#9aa5b1")
        write(figure, left + length + 0.1, middle, percent(share), **strong)
        write(figure, left + length + 1.45, middle, signed(logits[name]), ha="right", **strong)


def _panel_left(number: int) -> float:
    return MARGIN + LABEL + (PANEL + GAP) * number


def _column_heads(figure: Figure, view: CaseView, colour_map: str) -> None:
    rule(figure, MARGIN, WIDTH - MARGIN, HEADER - 0.1, MUTED)
    other = {"f": f"to the score of {shortened(view.predicted, 18)}"}
    if colour_map == JET:
        other["b"] = "red: most alike"
    if view.mask is not None:
        other["a"] = "dashed: annotation"
    for number, (letter, title, below) in enumerate(COLUMNS):
        x = _panel_left(number) + (0.18 if letter == "f" else 0.0)
        below = other.get(letter, below)
        write(figure, x, HEADER + 0.04, letter, fontsize=12, fontweight="bold")
        write(figure, x + 0.17, HEADER + 0.04, title, fontsize=12, fontweight="bold")
        write(figure, x, HEADER + 0.28, below, fontsize=10, color=MUTED)


def _draw_row(
    figure: Figure, top: float, view: CaseView, row: CaseRow, largest: float, colour_map: str
) -> None:
    _row_label(figure, top, row)
    axes = {n: add_axes(figure, _panel_left(n), top, PANEL, PANEL) for n in (0, 1, 3, 4)}
    show(axes[0], view.image)
    if view.mask is not None:
        draw_mask(axes[0], view.mask)
    draw_box(axes[0], row.box)
    show_heat(axes[1], view.image, row.activation, colour_map)
    add_crop(figure, _panel_left(2), top, PANEL, row.case_image, roomy(row.case_box))
    show(axes[3], row.case_image)
    draw_box(axes[3], row.case_box)
    show_heat(axes[4], row.case_image, row.case_activation, colour_map)
    _draw_contribution(figure, top, row, view.predicted, largest)


def _row_label(figure: Figure, top: float, row: CaseRow) -> None:
    word = LEVEL_WORDS.get(row.level)
    level = f"level {row.level}" + (f", {word}" if word else "")
    middle = top + PANEL / 2
    style = {"va": "center"}
    write(figure, MARGIN, middle - 0.28, "looks like", fontsize=10, color=MUTED, **style)
    name = shortened(row.class_name, 17)
    write(figure, MARGIN, middle - 0.06, name, fontsize=12.5, fontweight="bold", **style)
    write(figure, MARGIN, middle + 0.17, level, fontsize=10.5, **style)
    number = f"prototype {row.index}"
    write(figure, MARGIN, middle + 0.37, number, fontsize=10, color=MUTED, **style)


def _draw_contribution(
    figure: Figure, top: float, row: CaseRow, predicted: str, largest: float
) -> None:
    x, middle = _panel_left(5) + 0.18, top + PANEL / 2
    speaks_for = row.contribution >= 0
    colour = FOR if speaks_for else AGAINST
    product = f"{number_text(row.similarity)} × {number_text(row.weight)} ="
    write(figure, x, middle - 0.42, "similarity × weight", fontsize=10, color=MUTED)
    write(figure, x, middle - 0.2, product, fontsize=11.5)
    value = signed(row.contribution)
    right = WIDTH - MARGIN - 0.05
    write(
        figure,
        right,
        middle - 0.25,
        value,
        fontsize=17,
        fontweight="bold",
        color=colour,
        ha="right",
    )
    length = (right - x) * abs(row.contribution) / largest
    bar(figure, x, middle + 0.1, length, 0.16, colour, None if speaks_for else "////")
    words = "speaks for" if speaks_for else "speaks against"
    write(
        figure, x, middle + 0.31, f"{words} {shortened(predicted, 17)}", fontsize=10, color=colour
    )


def number_text(value: float) -> str:
    """A factor of a product: two decimals, a real minus sign.

    >>> number_text(-0.5)
    '−0.50'
    """
    return f"{value:.2f}".replace("-", "−")


def _draw_sum(figure: Figure, top: float, view: CaseView) -> None:
    """The rows above, the others and their sum, under column f."""
    x, right = _panel_left(5) + 0.18, WIDTH - MARGIN - 0.05
    name = view.predicted
    lines = [
        (counted(len(view.rows), "prototype") + " above", view.shown_sums[name]),
        (counted(view.others, "other prototype"), view.other_sums[name]),
    ]
    for number, (text, value) in enumerate(lines):
        write(figure, x, top + 0.28 * number, text, fontsize=11)
        write(figure, right, top + 0.28 * number, signed(value), fontsize=12, ha="right")
    rule(figure, x, right, top + 0.6, INK)
    style = {"fontsize": 17, "fontweight": "bold", "ha": "right"}
    write(figure, right, top + 0.68, signed(view.logits[name]), **style)
    write(figure, x, top + 0.73, "= score of", fontsize=11)
    write(figure, x, top + 0.95, shortened(name, 18), fontsize=12, fontweight="bold")


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "prototype"), counted(2, "prototype")
    ('1 prototype', '2 prototypes')
    """
    return f"{number} {what}" + ("" if number == 1 else "s")


def _draw_table(figure: Figure, top: float, view: CaseView, classes: Sequence[str]) -> None:
    """How the scores of all classes add up."""
    first, step = MARGIN + 3.4, min(1.55, 7.6 / max(len(classes), 1))
    labels = ("", "prototypes above", "other prototypes", "class score", "probability")
    for line, text in enumerate(labels):
        bold = "bold" if line == 3 else "normal"
        write(figure, MARGIN, top + 0.28 * line, text, fontsize=11, fontweight=bold)
    write(figure, MARGIN, top, "All class scores", fontsize=11, fontweight="bold")
    for number, name in enumerate(classes):
        values = (
            shortened(name, 14),
            signed(view.shown_sums[name]),
            signed(view.other_sums[name]),
            signed(view.logits[name]),
            percent(view.probabilities[name]),
        )
        weight = "bold" if name == view.predicted else "normal"
        for line, text in enumerate(values):
            x, y = first + step * number, top + 0.28 * line
            write(figure, x, y, text, fontsize=11, ha="right", fontweight=weight)
    rule(figure, MARGIN, first + step * (len(classes) - 1), top + 0.81, RULE)


def _draw_note(figure: Figure, top: float, colour_map: str, tta: int) -> None:
    heat = "Red" if colour_map == JET else "Bright colours"
    mean = f"b and f: the mean over {tta_text(tta)}. " if tta > 1 else ""
    text = (
        f"{heat} and the white line: the strongest 5 % of each map, scaled to itself; yellow box: the part "
        f"of it with the peak. {mean}\nHow far a class score is ahead of the others "
        "makes its probability. Numbers are rounded. For research only, not a medical device."
    )
    write(figure, MARGIN, top, text, fontsize=9.5, color=MUTED, linespacing=1.4)
