"""Pictures, maps and regions to draw: ordinary ones and degenerate ones."""

from __future__ import annotations

import numpy as np
import torch

from protopyramid.figures.drawing import Sheet, figure_bytes
from protopyramid.figures.strokes import TextStroke
from protopyramid.model.activation import Region, region_of

RNG = np.random.default_rng(0)
GREY = RNG.random((16, 16)).astype(np.float32)
COLOUR = RNG.random((16, 16, 3)).astype(np.float32)
MAP = RNG.random((16, 16)).astype(np.float32)
FLAT = np.full((16, 16), 0.5, np.float32)
BROKEN = np.full((16, 16), np.nan, np.float32)
SPIKE = np.eye(16, dtype=np.float32) * (np.arange(16) == 3)  # its 95th percentile is its minimum


def region(activation: np.ndarray = MAP) -> Region:
    """The region of an activation map."""
    return region_of(torch.from_numpy(activation))


def drawn(sheet: Sheet) -> bool:
    """Whether a figure can be written, as pixels and as vectors."""
    png, pdf = (figure_bytes(sheet, kind, dpi=30) for kind in ("png", "pdf"))
    return png.startswith(b"\x89PNG") and pdf.startswith(b"%PDF")


def texts(sheet: Sheet) -> set[str]:
    """The words of a figure."""
    return {each.text for each in sheet.strokes if isinstance(each, TextStroke)}


def tags(sheet: Sheet) -> list[str]:
    """The letters in the corners of a figure's tiles."""
    return [each.text for each in sheet.strokes if isinstance(each, TextStroke) and each.plate]
