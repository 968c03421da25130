"""The paper's figure 2: a drawing of the architecture, with the sizes and counts of one network.

One row per level, the coarsest at the top: the backbone's map, the neck's, the prototypes compared with it,
and how their similarity maps become scores. Squares are as wide as the maps are, relative to each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.patches import FancyArrowPatch, Rectangle

from protopyramid.figures.drawing import INK, MUTED, PAPER, Sheet
from protopyramid.figures.text import counted, listed, shortened
from protopyramid.model.architecture import Architecture, LevelArchitecture, Size
from protopyramid.model.necks import COARSEST

WIDTH, TOP, ROW = 14.8, 1.55, 1.5
LARGEST = 0.95  # inches of the finest map's side
INPUT, BACKBONE, NECK, PROTOTYPES, SCORES, HEAD = 0.95, 2.95, 5.7, 7.4, 9.5, 13.15
SQUARE = 0.16  # a prototype
MOST_SQUARES = 6  # per class and level; more are a square and a number
MOST_CLASSES = 7
BLUE, BLUE_EDGE, GREEN, GREEN_EDGE = "#d6e6f2", "#0072b2", "#d9eee6", "#00795a"
# Okabe and Ito's colours, told apart by colour-blind readers; classes beyond them are grey.
CLASS_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1")
OTHER = "#9aa5b1"
SIMILARITY = {
    "cosine": "cosine similarity",
    "log-l2": "log-similarity of distances",
    "log-l2, squared": "log-similarity of squared distances",
}
NECKS = {
    "pyramid": "Feature pyramid",
    "add-on": "Add-on layers",
    "none": "",
}


@dataclass(frozen=True)
class ArchitectureFigureData:
    """What the drawing shows: a title, the name of the backbone, the classes, and the numbers."""

    title: str
    backbone: str
    classes: Sequence[str]
    architecture: Architecture


def architecture_figure(data: ArchitectureFigureData) -> Sheet:
    """Draw an architecture from its input to its classes."""
    levels = data.architecture.levels[::-1]
    sheet = Sheet(WIDTH, TOP + ROW * len(levels) + 0.35)
    sheet.write(0.3, 0.22, data.title, fontsize=17, fontweight="bold")
    sheet.write(0.3, 0.6, summary(data), fontsize=11.5, color=MUTED)
    middles = {each.level: TOP + ROW * (row + 0.42) for row, each in enumerate(levels)}
    _draw_heads(sheet, data)
    _draw_backbone(sheet, data, middles)
    _draw_neck(sheet, data, middles)
    if data.architecture.prototypes:
        for each in levels:
            if sum(each.prototypes):
                _draw_prototypes(sheet, middles[each.level], each, data.architecture)
    else:
        _draw_black_box(sheet, middles[levels[0].level], data.architecture)
    _draw_head(sheet, data, middles)
    return sheet


# -- words ---------------------------------------------------------------------------------------
def summary(data: ArchitectureFigureData) -> str:
    """The network in one line."""
    found = data.architecture
    height, width, _ = found.image
    parts = [f"images of {height} × {width} pixels", counted(len(data.classes), "class", "classes")]
    if found.prototypes:
        used = [str(each.level) for each in found.levels if sum(each.prototypes)]
        where = f"level {used[0]}" if len(used) == 1 else f"levels {listed(used, 'and')}"
        parts.append(f"{counted(found.prototypes, 'prototype')} on {where}")
    else:
        parts.append("no prototypes")
    parts.append(f"{found.parameters / 1e6:.1f} million parameters")
    return " · ".join(parts)


def size_text(size: Size) -> str:
    """A size as it is written beside a map.

    >>> size_text((56, 56, 128))
    '56 × 56 × 128'
    """
    return " × ".join(map(str, size))


def pooling_text(pooling: str, level: LevelArchitecture) -> str:
    """How a similarity map of a level becomes a score.

    >>> pooling_text("focal", LevelArchitecture(5, (14, 14, 512), (14, 14, 128), (3,), 9))
    'mean of top 9 of 196 − mean of all'
    """
    assert level.z is not None
    cells = level.z[0] * level.z[1]
    if pooling == "average":
        return f"mean of {cells}"
    if pooling == "max":
        return f"maximum of {cells}"
    top = f"mean of top {level.pooled} of {cells}"
    return f"{top} − mean of all" if pooling == "focal" else top


def channel_text(scores: int, channels: int) -> str:
    """How the channels of a black box become its scores.

    >>> channel_text(512, 512), channel_text(25088, 512)
    ('mean of each channel', 'averaged to 7 × 7, flattened')
    """
    side = math.isqrt(scores // channels)
    if side * side * channels != scores:
        return "pooled"
    return "mean of each channel" if side == 1 else f"averaged to {side} × {side}, flattened"


def neck_name(found: Architecture) -> str:
    """The heading of the neck."""
    alone = found.neck == "pyramid" and found.top_down == 0
    return "Levels, each by itself" if alone else NECKS[found.neck]


def lateral_text(found: Architecture, level: int) -> str:
    """The layers from a level's backbone map to what its prototypes see, or to the sum before it."""
    if found.neck != "pyramid":
        return "conv 1×1 ReLU\nconv 1×1 sigmoid"
    alone = found.top_down == 0 and level < COARSEST
    return "conv 1×1, conv 3×3" if alone else "conv 1×1"


def step_text(finer: Size, coarser: Size) -> str:
    """What the pyramid's top-down path does from one level to the next finer one.

    >>> step_text((28, 28, 128), (14, 14, 128)), step_text((14, 14, 128), (14, 14, 128))
    ('up ×2, +, conv 3×3', '+, conv 3×3')
    """
    factor = finer[0] / coarser[0]
    return ("" if factor == 1 else f"up ×{factor:g}, ") + "+, conv 3×3"


# -- parts ---------------------------------------------------------------------------------------
def _draw_heads(sheet: Sheet, data: ArchitectureFigureData) -> None:
    found = data.architecture
    heads = [(INPUT, "Image", ""), (BACKBONE, "Backbone", data.backbone)]
    if found.neck != "none":
        heads.append(
            (NECK, neck_name(found), "batch norm on each level" if found.normalised else "")
        )
    if found.prototypes:
        dim = next(each.z[2] for each in found.levels if each.z is not None)
        heads.append((PROTOTYPES + 0.75, "Prototypes", f"1 × 1 × {dim} each"))
        similarity = SIMILARITY.get(found.similarity or "", found.similarity or "")
        heads.append((SCORES + 1.05, "Scores", similarity))
    heads.append((HEAD + 0.65, "Head", ""))
    for x, title, below in heads:
        sheet.write(x, 1.0, title, fontsize=13, fontweight="bold", ha="center")
        sheet.write(x, 1.24, shortened(below, 34), fontsize=10, color=MUTED, ha="center")


def _draw_backbone(sheet: Sheet, data: ArchitectureFigureData, middles: dict[int, float]) -> None:
    levels = data.architecture.levels
    first = middles[levels[0].level]
    _draw_map(sheet, INPUT, first, 1.15, data.architecture.image, "x", PAPER, MUTED)
    _arrow(sheet, (INPUT + 0.6, first), (BACKBONE - _side(levels[0].c, levels) / 2 - 0.04, first))
    for each in levels:
        side = _side(each.c, levels)
        _draw_map(
            sheet, BACKBONE, middles[each.level], side, each.c, f"c{each.level}", BLUE, BLUE_EDGE
        )
    for lower, upper in pairwise(levels):
        start = middles[lower.level] - _side(lower.c, levels) / 2 - 0.03
        end = middles[upper.level] + _side(upper.c, levels) / 2 + 0.3
        _arrow(sheet, (BACKBONE, start), (BACKBONE, end))


def _draw_neck(sheet: Sheet, data: ArchitectureFigureData, middles: dict[int, float]) -> None:
    levels = data.architecture.levels
    made = [each for each in levels if each.z is not None]
    for each in made:
        assert each.z is not None
        y, side = middles[each.level], _side(each.z, levels)
        start = BACKBONE + _side(each.c, levels) / 2 + 0.04
        _arrow(sheet, (start, y), (NECK - side / 2 - 0.04, y))
        middle = (BACKBONE + NECK) / 2
        word = lateral_text(data.architecture, each.level)
        sheet.write(middle, y - 0.05, word, fontsize=10, ha="center", va="bottom")
        _draw_map(sheet, NECK, y, side, each.z, f"z{each.level}", GREEN, GREEN_EDGE)
    for finer, coarser in pairwise(made) if data.architecture.top_down else ():
        assert finer.z is not None and coarser.z is not None
        start = middles[coarser.level] + _side(coarser.z, levels) / 2 + 0.3
        end = middles[finer.level] - _side(finer.z, levels) / 2 - 0.03
        _arrow(sheet, (NECK, start), (NECK, end))
        text = step_text(finer.z, coarser.z)
        sheet.write(NECK - 0.1, (start + end) / 2, text, fontsize=10, ha="right", va="center")


def _draw_prototypes(sheet: Sheet, y: float, each: LevelArchitecture, found: Architecture) -> None:
    """The prototypes of a level as squares, a line per class, and what their maps become."""
    assert each.z is not None and found.pooling is not None
    _arrow(sheet, (NECK + _side(each.z, found.levels) / 2 + 0.04, y), (PROTOTYPES - 0.05, y))
    lines = [(number, count) for number, count in enumerate(each.prototypes) if count]
    shown = lines[:MOST_CLASSES]
    step = SQUARE + 0.05
    top = y - step * len(shown) / 2
    for line, (number, count) in enumerate(shown):
        row = top + line * step
        for place in range(min(count, MOST_SQUARES)):
            _square(sheet, PROTOTYPES + place * (SQUARE + 0.03), row, class_colour(number))
        x = PROTOTYPES + min(count, MOST_SQUARES) * (SQUARE + 0.03) + 0.04
        sheet.write(x, row + SQUARE / 2, f"{count}", fontsize=9.5, va="center")
    if len(lines) > len(shown):
        text = f"and {len(lines) - len(shown)} more classes"
        sheet.write(PROTOTYPES, top + len(shown) * step, text, fontsize=9.5, color=MUTED)
    _arrow(sheet, (PROTOTYPES + 1.45, y), (SCORES - 0.08, y))
    total = sum(each.prototypes)
    height, width, _ = each.z
    maps = f"{counted(total, 'map')} of {height} × {width}"
    sheet.write(SCORES, y - 0.17, maps, fontsize=10.5, va="center")
    pooled = pooling_text(found.pooling, each)
    sheet.write(SCORES, y + 0.03, pooled, fontsize=10.5, va="center")
    sheet.write(
        SCORES, y + 0.24, counted(total, "score"), fontsize=10.5, va="center", fontweight="bold"
    )
    _arrow(sheet, (SCORES + 3.0, y), (HEAD - 0.06, y))


def _draw_black_box(sheet: Sheet, y: float, found: Architecture) -> None:
    """Without prototypes: channels are pooled and go to the head."""
    last = found.levels[-1]
    start = BACKBONE + _side(last.c, found.levels) / 2 + 0.04
    _arrow(sheet, (start, y), (HEAD - 0.06, y))
    height, width, channels = last.c
    text = (
        f"{channel_text(found.scores, channels)}: {height} × {width} × {channels} → {found.scores}"
    )
    middle = (start + HEAD) / 2
    sheet.write(middle, y - 0.06, text, fontsize=11, ha="center", va="bottom")
    note = "A black box: no prototypes, so no cases behind a prediction."
    sheet.write(middle, y + 0.08, note, fontsize=10.5, ha="center", color=MUTED)


def _draw_head(sheet: Sheet, data: ArchitectureFigureData, middles: dict[int, float]) -> None:
    """The fully connected layers as a bar, and the classes beside it."""
    top, bottom = min(middles.values()) - 0.55, max(middles.values()) + 0.6
    box = Rectangle((HEAD, top), 1.3, bottom - top, facecolor=PAPER, edgecolor=MUTED, linewidth=1)
    sheet.patches.append(box)
    lines = [f"{inputs} → {outputs}" for inputs, outputs in data.architecture.layers]
    middle = (top + bottom) / 2
    sheet.write(HEAD + 0.65, middle - 0.32, "linear", fontsize=11, ha="center", va="bottom")
    text = "\n".join(lines)
    sheet.write(HEAD + 0.65, middle - 0.25, text, fontsize=12.5, ha="center", fontweight="bold")
    classes = data.classes[:MOST_CLASSES]
    y = bottom - 0.25 * len(classes) - (0.25 if len(data.classes) > len(classes) else 0) - 0.08
    for number, name in enumerate(classes):
        if data.architecture.prototypes:
            _square(sheet, HEAD + 0.08, y + number * 0.25, class_colour(number))
        sheet.write(
            HEAD + 0.3, y + number * 0.25 + 0.08, shortened(name, 13), fontsize=9.5, va="center"
        )
    if len(data.classes) > len(classes):
        text = f"and {len(data.classes) - len(classes)} more"
        sheet.write(HEAD + 0.3, bottom - 0.25, text, fontsize=9.5, va="center", color=MUTED)


def class_colour(number: int) -> str:
    """The colour of a class's prototypes."""
    return CLASS_COLOURS[number] if number < len(CLASS_COLOURS) else OTHER


# -- strokes -------------------------------------------------------------------------------------
def _side(size: Size, levels: Sequence[LevelArchitecture]) -> float:
    """Inches of a map's side: true to scale, but never too small to see."""
    return max(LARGEST * max(size[:2]) / max(levels[0].c[:2]), 0.16)


def _draw_map(
    sheet: Sheet,
    x: float,
    y: float,
    side: float,
    size: Size,
    name: str,
    colour: str,
    edge: str,
) -> None:
    """A map as a square around (x, y), its name inside and its size below."""
    corner = (x - side / 2, y - side / 2)
    sheet.patches.append(
        Rectangle(corner, side, side, facecolor=colour, edgecolor=edge, linewidth=1.2)
    )
    text = f"{name}  {size_text(size)}"
    sheet.write(x, y + side / 2 + 0.05, text, fontsize=10.5, ha="center")


def _square(sheet: Sheet, x: float, y: float, colour: str) -> None:
    sheet.patches.append(Rectangle((x, y), SQUARE, SQUARE, facecolor=colour, edgecolor="none"))


def _arrow(sheet: Sheet, start: tuple[float, float], end: tuple[float, float]) -> None:
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0, "shrinkB": 0}
    sheet.patches.append(FancyArrowPatch(start, end, color=INK, linewidth=1.1, **style))
