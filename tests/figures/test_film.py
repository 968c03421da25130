"""The film beside an explanation, and what is said first."""

from __future__ import annotations

import numpy as np
import pytest

from protopyramid.figures.drawing import Sheet, figure_pixels
from protopyramid.figures.film import draw_film, headline


def test_the_flag_is_the_headline_when_it_is_up() -> None:
    plain = headline("indistinct", ">99 %")
    assert plain.title == "indistinct" and ">99 %" in plain.below
    flagged = headline("indistinct", ">99 %", unlike=True)
    assert "nlike" in flagged.title and "indistinct" not in flagged.title
    assert "indistinct" in flagged.note
    film = headline("indistinct", ">99 %", unlike=True, film=True)
    assert "film" in film.title and film.title != flagged.title
    assert "--region" in film.below and "indistinct" in film.note


@pytest.mark.parametrize("shape", [(400, 200), (200, 400), (300, 300, 3)])
def test_the_mark_is_drawn_where_the_region_is(shape: tuple[int, ...]) -> None:
    sheet = Sheet(14, 6)
    draw_film(sheet, np.zeros(shape, np.float32), (0.5, 0.25, 0.75, 0.5))
    pixels = figure_pixels(sheet, 100).astype(int)
    yellow = (pixels[..., 0] > 200) & (pixels[..., 1] > 160) & (pixels[..., 2] < 90)
    black = pixels.sum(2) < 60
    rows, columns = np.nonzero(black)
    top, left = rows.min(), columns.min()
    height, width = rows.max() - top + 1, columns.max() - left + 1
    assert height / width == pytest.approx(shape[0] / shape[1], rel=0.05)
    rows, columns = np.nonzero(yellow)
    assert (columns.min() - left) / width == pytest.approx(0.5, abs=0.03)
    assert (columns.max() - left) / width == pytest.approx(0.75, abs=0.03)
    assert (rows.min() - top) / height == pytest.approx(0.25, abs=0.03)
    assert (rows.max() - top) / height == pytest.approx(0.5, abs=0.03)
