"""Grids of images by methods."""

import numpy as np

from protopyramid.figures.grid_figure import Panel, grid_figure

from .examples import COLOUR, FLAT, GREY, MAP, SPIKE, drawn, region, texts


def test_grid_with_holes_masks_and_constant_maps() -> None:
    mask = np.zeros((16, 16), np.uint8)
    full = np.ones((16, 16), np.uint8)
    panels = [
        [Panel(GREY), Panel(GREY, region(FLAT), mask, "x"), None],
        [Panel(COLOUR, region(MAP), full), Panel(GREY, region(SPIKE)), None],
    ]
    figure = grid_figure(panels, ["one", "two words here", "three"], ["a", ""], "title")
    assert drawn(figure) and {"one", "title", "x"} <= texts(figure)
    assert drawn(grid_figure([], [], []))
