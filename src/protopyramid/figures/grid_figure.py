"""Images (down) by methods (across): the comparison figure and the 3 x 3 teaser."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from protopyramid.figures.drawing import COLOUR_MAP, MUTED, Picture, Sheet
from protopyramid.figures.text import shortened
from protopyramid.model.activation import Region

GAP = 0.1
HEAD = {"fontsize": 12, "fontweight": "bold"}


@dataclass(frozen=True)
class Panel:
    """One cell of a grid: an image with, where given, a region and its heat, annotation and caption.

    boxed: whether the box around the region is drawn, too.
    """

    image: Picture
    region: Region | None = None
    mask: NDArray[Any] | None = None
    caption: str = ""
    boxed: bool = True


def grid_figure(
    panels: Sequence[Sequence[Panel | None]],
    columns: Sequence[str],
    rows: Sequence[str],
    title: str = "",
    colour_map: str = COLOUR_MAP,
    tile: float = 1.9,
    note: str = "",
) -> Sheet:
    """Panels in a grid with named rows and columns, a title and a note above them."""
    captions = any(panel is not None and panel.caption for line in panels for panel in line)
    step = tile + GAP + (0.24 if captions else 0.0)
    left = 0.3 + (1.6 if any(rows) else 0.0)
    heads = [_wrapped(name, 16) for name in columns]
    lines = max((head.count("\n") + 1 for head in heads), default=1)
    top = 0.4 + 0.2 * lines + (0.4 if title else 0.0) + (0.25 if note else 0.0)
    width = left + max(len(columns), 1) * (tile + GAP) + 0.2
    sheet = Sheet(width, top + max(len(panels), 1) * step + 0.15)
    if title:
        sheet.write(0.3, 0.2, title, fontsize=14, fontweight="bold")
    sheet.write(0.3, 0.5 if title else 0.2, note, fontsize=10, color=MUTED)
    for number, head in enumerate(heads):
        middle = left + number * (tile + GAP) + tile / 2
        sheet.write(middle, top - 0.08, head, ha="center", va="bottom", **HEAD)
    for line, (name, cells) in enumerate(zip(rows, panels, strict=True)):
        y = top + line * step
        sheet.write(0.3, y + tile / 2, _wrapped(name, 14), va="center", **HEAD)
        for number, panel in enumerate(cells):
            if panel is not None:
                _draw_panel(sheet, left + number * (tile + GAP), y, tile, panel, colour_map)
    return sheet


def _draw_panel(
    sheet: Sheet, x: float, y: float, side: float, panel: Panel, colour_map: str
) -> None:
    tile = sheet.tile(x, y, side)
    if panel.region is None:
        tile.show(panel.image)
    else:
        tile.show_heat(panel.image, panel.region, colour_map)
        if panel.boxed:
            tile.draw_box(panel.region.box)
    if panel.mask is not None:
        tile.draw_mask(panel.mask)
    if panel.caption:
        style = {"fontsize": 9.5, "ha": "center", "color": MUTED}
        sheet.write(x + side / 2, y + side + 0.04, shortened(panel.caption, 30), **style)


def _wrapped(text: str, width: int) -> str:
    """A text in lines of that width; its own line breaks are kept."""
    parts = (textwrap.wrap(line, width, break_long_words=False) for line in text.split("\n"))
    return "\n".join(line for part in parts for line in part) or text
