"""Figures other than the case-based one: pure drawing from plain values, nothing computed here.

black_box_figure   a model without prototypes: its scores and a saliency map
gallery_figure     prototypes by class and level ("learned prototypes at different FPN levels")
neighbours_figure  each prototype beside its nearest patches
grid_figure        images x methods: the comparison figure and the 3 x 3 teaser
curves_figure      how training went
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from protopyramid.figures.case_figure import LEVEL_WORDS, draw_header
from protopyramid.figures.drawing import (
    AGAINST,
    COLOUR_MAP,
    FOR,
    INK,
    MUTED,
    Box,
    Picture,
    add_axes,
    draw_box,
    draw_mask,
    new_figure,
    rule,
    shortened,
    show,
    show_heat,
    write,
)

# Okabe and Ito's colours; line styles tell them apart in greyscale.
LINES = (
    ("#0072b2", "-"),
    ("#d55e00", "--"),
    ("#009e73", "-."),
    ("#cc79a7", ":"),
    ("#56b4e9", (0, (5, 1))),
    ("#e69f00", (0, (3, 1, 1, 1))),
)


@dataclass(frozen=True)
class BlackBoxView:
    """What is shown of a model without prototypes; saliency (S, S), mask (S, S) where there is one."""

    image_name: str
    image: Picture
    predicted: str
    logits: Mapping[str, float]
    probabilities: Mapping[str, float]
    saliency: Picture
    mask: NDArray[Any] | None = None
    unlike: bool = False


def black_box_figure(view: BlackBoxView, colour_map: str = COLOUR_MAP) -> Figure:
    """Scores, image and Grad-CAM, and what this cannot tell."""
    figure = new_figure(14.6, 6.4)
    draw_header(figure, view)
    rule(figure, 0.3, 14.3, 1.85, MUTED)
    first = "Your image" if view.mask is None else "Your image, dashed: annotation"
    for x, title in ((0.3, first), (4.3, f"Grad-CAM for {shortened(view.predicted)}")):
        write(figure, x, 2.0, title, fontsize=12, fontweight="bold")
    ax = add_axes(figure, 0.3, 2.3, 3.8, 3.8)
    show(ax, view.image)
    if view.mask is not None:
        draw_mask(ax, view.mask)
    show_heat(add_axes(figure, 4.3, 2.3, 3.8, 3.8), view.image, view.saliency, colour_map)
    write(figure, 8.5, 2.3, "No cases behind this answer", fontsize=15, fontweight="bold")
    note = (
        "This model is a black box: it has no prototypes and\n"
        "cannot say which known case your image resembles.\n\n"
        "The heat map shows where the score reacts to the image.\n"
        "It does not say what was seen there, nor why it counts.\n\n"
        "For research only, not a medical device."
    )
    write(figure, 8.5, 2.75, note, fontsize=12, linespacing=1.45, color=MUTED)
    return figure


@dataclass(frozen=True)
class GalleryItem:
    """A prototype with its source image, its activation map there and the box of its region."""

    index: int
    class_name: str
    level: int
    image: Picture
    activation: Picture
    box: Box


def gallery_figure(
    items: Sequence[GalleryItem], classes: Sequence[str], title: str, colour_map: str = COLOUR_MAP
) -> Figure:
    """Prototypes by class (down) and level (across): source image with box, and self-activation.

    A single class is not named again: the title does.
    """
    levels = sorted({item.level for item in items}) or [5]
    groups = {
        (name, level): [i for i in items if i.class_name == name and i.level == level]
        for name in classes
        for level in levels
    }
    heights = {name: max(len(groups[name, level]) for level in levels) for name in classes}
    shown = [name for name in classes if heights[name]]
    tile, gap, left, top = 1.15, 0.05, 0.3, 1.25
    space = 0.5 if len(classes) > 1 else 0.0
    block = 2 * tile + gap + 0.25
    height = top + sum(heights[n] * (tile + gap) + space for n in shown) + 0.35
    figure = new_figure(max(left + len(levels) * block + 0.2, 7.0), max(height, 2.2))
    write(figure, left, 0.2, title, fontsize=15, fontweight="bold")
    below = "each pair: the training image with the prototype's part in the box, and its activation"
    write(figure, left, 0.52, below, fontsize=10.5, color=MUTED)
    for column, level in enumerate(levels):
        write(
            figure, left + column * block, 0.9, level_title(level), fontsize=12, fontweight="bold"
        )
    y = top
    for name in shown:
        if space:
            style = {"fontsize": 13, "fontweight": "bold", "color": FOR}
            write(figure, left, y + 0.12, shortened(name, 40), **style)
        for column, level in enumerate(levels):
            for row, item in enumerate(groups[name, level]):
                corner = (left + column * block, y + 0.84 * space + row * (tile + gap))
                _draw_pair(figure, corner, tile, gap, item, colour_map)
        y += heights[name] * (tile + gap) + space
    return figure


def level_title(level: int) -> str:
    """The name of a level in a heading.

    >>> level_title(2)
    'Level 2 (finest)'
    """
    word = LEVEL_WORDS.get(level)
    return f"Level {level}" + (f" ({word})" if word else "")


def _draw_pair(
    figure: Figure,
    corner: tuple[float, float],
    tile: float,
    gap: float,
    item: GalleryItem,
    colour_map: str,
) -> None:
    x, y = corner
    first = add_axes(figure, x, y, tile, tile)
    show(first, item.image)
    draw_box(first, item.box, width=1.3)
    second = add_axes(figure, x + tile + gap, y, tile, tile)
    show_heat(second, item.image, item.activation, colour_map)
    _tag(first, f"{item.index}")


def _tag(
    ax: Axes, text: str, colour: str = INK, corner: tuple[float, float] = (0.03, 0.97)
) -> None:
    """A few letters on white in a corner of an image."""
    style: dict[str, Any] = {
        "boxstyle": "round,pad=0.18",
        "fc": "white",
        "ec": "none",
        "alpha": 0.85,
    }
    ax.text(
        *corner,
        text,
        transform=ax.transAxes,
        fontsize=8.5,
        color=colour,
        va="top" if corner[1] > 0.5 else "bottom",
        ha="left" if corner[0] < 0.5 else "right",
        bbox=style,
        parse_math=False,
    )


@dataclass(frozen=True)
class NeighbourTile:
    """An image near a prototype: the box of the prototype's region on it, and whose class it is."""

    image: Picture
    box: Box
    label: str
    similarity: float
    same_class: bool


@dataclass(frozen=True)
class NeighbourRow:
    """A prototype, and its nearest images by the name of their split."""

    item: GalleryItem
    nearest: Mapping[str, Sequence[NeighbourTile]]


def neighbours_figure(rows: Sequence[NeighbourRow], title: str) -> Figure:
    """One row a prototype: its source, then the nearest patches of each split.

    A tile of another class has a dashed orange frame and a cross: told apart without colour.
    """
    splits = list(dict.fromkeys(name for row in rows for name in row.nearest))
    counts = {name: max(len(row.nearest.get(name, ())) for row in rows) for name in splits}
    tile, gap, left, label, top = 1.2, 0.07, 0.3, 1.35, 1.2
    starts, x = {}, left + label + tile + 0.3
    for name in splits:
        starts[name] = x
        x += counts[name] * (tile + gap) + 0.25
    figure = new_figure(max(x + 0.1, 8.0), top + max(len(rows), 1) * (tile + 0.12) + 0.15)
    write(figure, left, 0.2, title, fontsize=15, fontweight="bold")
    below = (
        "nearest images by similarity; ✕ and a dashed frame: of another class than the prototype"
    )
    write(figure, left, 0.5, below, fontsize=10.5, color=MUTED)
    write(figure, left + label, 0.88, "Prototype", fontsize=12, fontweight="bold")
    for name in splits:
        write(figure, starts[name], 0.88, f"Nearest in {name}", fontsize=12, fontweight="bold")
    for number, row in enumerate(rows):
        y = top + number * (tile + 0.12)
        _draw_prototype(figure, left, left + label, y, tile, row.item)
        for name, tiles in row.nearest.items():
            for column, near in enumerate(tiles):
                _draw_near(figure, starts[name] + column * (tile + gap), y, tile, near)
    return figure


def _draw_prototype(
    figure: Figure, left: float, x: float, y: float, tile: float, item: GalleryItem
) -> None:
    middle = y + tile / 2
    write(figure, left, middle - 0.3, f"prototype {item.index}", fontsize=10, color=MUTED)
    write(
        figure, left, middle - 0.1, shortened(item.class_name, 15), fontsize=11, fontweight="bold"
    )
    write(figure, left, middle + 0.12, f"level {item.level}", fontsize=10)
    ax = add_axes(figure, x, y, tile, tile)
    show(ax, item.image)
    draw_box(ax, item.box, width=1.3)


def _draw_near(figure: Figure, x: float, y: float, tile: float, near: NeighbourTile) -> None:
    ax = add_axes(figure, x, y, tile, tile)
    show(ax, near.image)
    draw_box(ax, near.box, width=1.2)
    if not near.same_class:
        edge: dict[str, Any] = {
            "color": AGAINST,
            "linewidth": 3,
            "linestyle": (0, (2, 1)),
            "clip_on": False,
        }
        ax.plot([0, 1, 1, 0, 0], [0, 0, 1, 1, 0], transform=ax.transAxes, **edge)
    cross = "" if near.same_class else "✕ "
    colour = INK if near.same_class else "#a34700"
    _tag(ax, cross + shortened(near.label, 14), colour)
    _tag(ax, f"{near.similarity:.2f}", INK, (0.97, 0.03))


@dataclass(frozen=True)
class Panel:
    """One cell of a grid: an image with, where given, heat, box, annotation and a line below."""

    image: Picture
    activation: Picture | None = None
    box: Box | None = None
    mask: NDArray[Any] | None = None
    caption: str = ""


def grid_figure(
    panels: Sequence[Sequence[Panel | None]],
    columns: Sequence[str],
    rows: Sequence[str],
    title: str = "",
    colour_map: str = COLOUR_MAP,
    tile: float = 1.9,
    note: str = "",
) -> Figure:
    """Images (down) by methods (across), with a title and a note above them."""
    captions = any(panel is not None and panel.caption for line in panels for panel in line)
    gap, below = 0.1, 0.24 if captions else 0.0
    left = 0.3 + (1.6 if any(rows) else 0.0)
    top = 0.6 + (0.4 if title else 0.0) + (0.25 if note else 0.0)
    width = left + max(len(columns), 1) * (tile + gap) + 0.2
    figure = new_figure(width, top + max(len(panels), 1) * (tile + gap + below) + 0.15)
    if title:
        write(figure, 0.3, 0.2, title, fontsize=14, fontweight="bold")
    write(figure, 0.3, 0.5 if title else 0.2, note, fontsize=10, color=MUTED)
    for number, name in enumerate(columns):
        x = left + number * (tile + gap) + tile / 2
        style = {"fontsize": 12, "fontweight": "bold", "ha": "center", "va": "bottom"}
        write(figure, x, top - 0.08, _wrapped(name, 18), **style)
    for line, (name, cells) in enumerate(zip(rows, panels, strict=True)):
        y = top + line * (tile + gap + below)
        style = {"fontsize": 12, "va": "center", "fontweight": "bold"}
        write(figure, 0.3, y + tile / 2, _wrapped(name, 14), **style)
        for number, panel in enumerate(cells):
            if panel is not None:
                corner = (left + number * (tile + gap), y)
                _draw_panel(figure, corner, tile, panel, colour_map)
    return figure


def _draw_panel(
    figure: Figure, corner: tuple[float, float], tile: float, panel: Panel, colour_map: str
) -> None:
    x, y = corner
    ax = add_axes(figure, x, y, tile, tile)
    if panel.activation is None:
        show(ax, panel.image)
    else:
        show_heat(ax, panel.image, panel.activation, colour_map)
    if panel.mask is not None:
        draw_mask(ax, panel.mask)
    if panel.box is not None:
        draw_box(ax, panel.box)
    if panel.caption:
        style = {"fontsize": 9.5, "ha": "center", "color": MUTED}
        write(figure, x + tile / 2, y + tile + 0.04, shortened(panel.caption, 30), **style)


def _wrapped(text: str, width: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width, break_long_words=False)) or text


@dataclass(frozen=True)
class Curve:
    """A line of a plot: x and y of equal length; NaN leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Plot:
    """A plot of several curves; `marks` are places on the x axis with a word."""

    title: str
    curves: Sequence[Curve]
    y_limits: tuple[float, float] | None = None
    marks: Sequence[tuple[float, str]] = ()


def curves_figure(plots: Sequence[Plot], x_label: str = "epoch") -> Figure:
    """Plots side by side."""
    figure = new_figure(5.4 * max(len(plots), 1), 4.1)
    axes = figure.subplots(1, max(len(plots), 1), squeeze=False)[0]
    for ax, plot in zip(axes, plots, strict=False):
        _draw_plot(ax, plot, x_label)
    figure.tight_layout(pad=1.2)
    return figure


def _draw_plot(ax: Axes, plot: Plot, x_label: str) -> None:
    ax.set_title(plot.title, fontsize=12, fontweight="bold", loc="left", color=INK)
    for number, curve in enumerate(plot.curves):
        colour, style = LINES[number % len(LINES)]
        y = np.asarray(curve.y, dtype=float)
        marker = "o" if len(y) < 40 else None
        label = shortened(curve.name, 24)
        line: dict[str, Any] = {
            "color": colour,
            "linestyle": style,
            "marker": marker,
            "markersize": 3.5,
        }
        ax.plot(curve.x, y, label=label, linewidth=1.8, **line)
    for x, word in plot.marks:
        ax.axvline(x, color=MUTED, linewidth=0.8, linestyle=":")
        ax.text(x, 1.0, word, transform=ax.get_xaxis_transform(), fontsize=8, color=MUTED, va="top")
    if plot.y_limits is not None:
        ax.set_ylim(*plot.y_limits)
    ax.set_xlabel(x_label, fontsize=11)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.grid(axis="y", color="#e3e7eb", linewidth=0.8)
    ax.spines[["top", "right"]].set_visible(False)
    if plot.curves:
        place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncols": 3}
        ax.legend(fontsize=9.5, frameon=False, **place)
