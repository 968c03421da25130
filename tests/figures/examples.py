"""Pictures, maps and regions to draw: ordinary ones and degenerate ones."""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.figure import Figure

from protopyramid.figures.drawing import figure_bytes
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


def drawn(figure: Figure) -> bool:
    """Whether a figure can be written."""
    return figure_bytes(figure, dpi=30).startswith(b"\x89PNG")


def texts(figure: Figure) -> set[str]:
    """The words of a figure."""
    return {text.get_text() for text in figure.texts}


def tags(figure: Figure) -> list[str]:
    """The letters in the corners of a figure's tiles."""
    return [text.get_text() for axes in figure.axes for text in axes.texts]
