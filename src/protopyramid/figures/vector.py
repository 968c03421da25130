"""Strokes as a Matplotlib figure: for PDF and SVG, whose letters and lines stay sharp at any size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch, Rectangle
from matplotlib.path import Path as Outline
from matplotlib.patheffects import withStroke

from protopyramid.figures.raster import PALE
from protopyramid.figures.strokes import BarStroke, LineStroke, PictureStroke, Stroke, TextStroke

DPI = 150


def new_figure(width: float, height: float) -> Figure:
    """A white figure of that size in inches."""
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def drawn_figure(
    strokes: Iterable[Stroke], width: float, height: float, patches: Sequence[Patch] = ()
) -> Figure:
    """A sheet as a figure; patches are in inches from its top left, as the strokes are.

    All strokes share one pair of axes: axes of their own would take most of a figure's time.
    """
    figure = new_figure(width, height)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    for stroke in strokes:
        if isinstance(stroke, TextStroke):
            _write(figure, axes, stroke, width, height)
        elif isinstance(stroke, BarStroke):
            _fill(figure, stroke, width, height)
        elif isinstance(stroke, PictureStroke):
            _show(axes, stroke)
        else:
            _trace(axes, stroke)
    for patch in patches:
        axes.add_patch(patch)
    return figure


def _write(figure: Figure, axes: Axes, text: TextStroke, width: float, height: float) -> None:
    style: dict[str, Any] = {
        "color": text.colour,
        "fontsize": text.size,
        "fontweight": "bold" if text.bold else "normal",
        "ha": text.across,
        "va": text.down,
        "linespacing": text.spacing,
        "parse_math": False,
    }
    if text.plate:
        plate = {"boxstyle": "round,pad=0.18", "fc": "white", "ec": "none", "alpha": 0.85}
        axes.text(text.x, text.y, text.text, bbox=plate, **style)
    else:
        figure.text(text.x / width, 1 - text.y / height, text.text, **style)


def _fill(figure: Figure, stroke: BarStroke, width: float, height: float) -> None:
    x, y, wide, high = stroke.place
    bar = Rectangle((x / width, 1 - (y + high) / height), wide / width, high / height)
    hatch = "////" if stroke.hatched else None
    bar.set(facecolor=stroke.colour, edgecolor="white", linewidth=0, hatch=hatch)
    bar.set(transform=figure.transFigure, zorder=-1)
    figure.add_artist(bar)


def _show(axes: Axes, stroke: PictureStroke) -> None:
    x, y, wide, high = stroke.place
    shown = stroke.picture * (1 - PALE) + PALE if stroke.pale else stroke.picture
    image = axes.imshow(
        shown,
        cmap="gray",
        vmin=0,
        vmax=1,
        extent=(x, x + wide, y + high, y),
        interpolation="bicubic",
        aspect="auto",
    )
    image.set_clip_path(_window(axes, stroke.window))


def _trace(axes: Axes, stroke: LineStroke) -> None:
    if not stroke.lines:
        return
    outline = Outline.make_compound_path(*(Outline(np.asarray(line)) for line in stroke.lines))
    style: dict[str, Any] = {"color": stroke.colour, "linewidth": stroke.width}
    style["alpha"] = stroke.opacity
    if stroke.halo:
        width = stroke.width + stroke.halo
        style["path_effects"] = [withStroke(linewidth=width, foreground="#000000")]
    if stroke.dashes is not None:
        lengths = tuple(length / stroke.width for length in stroke.dashes)  # it scales them
        style["linestyle"] = (0, lengths)
    patch = PathPatch(outline, fill=False, zorder=2, **style)
    axes.add_artist(patch)
    if stroke.window is not None:
        patch.set_clip_path(_window(axes, stroke.window))  # last: being added resets it


def _window(axes: Axes, place: tuple[float, float, float, float]) -> Rectangle:
    x, y, wide, high = place
    return Rectangle((x, y), wide, high, transform=axes.transData)
