"""Curves of a training: losses and validation metrics by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from protopyramid.figures.drawing import INK, MUTED
from protopyramid.figures.text import shortened
from protopyramid.figures.vector import new_figure

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
class Curve:
    """A line of a plot: x and y of equal length; NaN leaves a gap."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Plot:
    """A plot of several curves; `marks` are named places on the x axis."""

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
