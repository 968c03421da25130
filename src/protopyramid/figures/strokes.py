"""What a sheet is made of: texts, bars, pictures and lines, as plain values in inches.

A stroke knows nothing of a library. `raster.py` turns strokes into pixels, fast; `vector.py` into a
Matplotlib figure, for PDF and SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rectangle = tuple[float, float, float, float]  # x, y, width, height in inches from the top left


@dataclass(frozen=True)
class TextStroke:
    """Words at a place; `size` in points; `across` and `down` say which part of them is at (x, y).

    plate: whether they stand on a white plate, as the tags of pictures do.
    """

    x: float
    y: float
    text: str
    size: float
    colour: str
    bold: bool = False
    across: Literal["left", "center", "right"] = "left"
    down: Literal["top", "center", "bottom"] = "top"
    spacing: float = 1.2
    plate: bool = False


@dataclass(frozen=True)
class BarStroke:
    """A filled rectangle, or with `hatched` one with white stripes."""

    place: Rectangle
    colour: str
    hatched: bool = False


@dataclass(frozen=True, eq=False)
class PictureStroke:
    """An image (S, S) or (S, S, 3) in [0, 1] that fills `place`, of which `window` is seen."""

    picture: NDArray[np.float32]
    place: Rectangle
    window: Rectangle
    pale: bool = False


@dataclass(frozen=True, eq=False)
class LineStroke:
    """Lines, each (n, 2) in inches, cut off at the window; `width` in points.

    halo: points by which a dark line below them is wider, 0 for none; dashes: points on and off.
    """

    lines: Sequence[NDArray[np.float64]]
    colour: str
    width: float
    window: Rectangle | None = None
    halo: float = 0.0
    dashes: tuple[float, float] | None = None
    opacity: float = 1.0


Stroke = TextStroke | BarStroke | PictureStroke | LineStroke
