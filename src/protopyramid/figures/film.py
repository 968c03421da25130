"""The film beside an explanation, with the region that the model saw, and the words above it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from protopyramid.figures.drawing import BOX, Sheet, Tile
from protopyramid.figures.strokes import LineStroke

Box = tuple[float, float, float, float]

WIDTH, HEIGHT, EDGE = 1.45, 1.58, 0.3  # inches: the film's place, and its distance from the right
TOP = 0.12


class Headline(NamedTuple):
    """What stands at the head of a figure: a large title with a line above it and two below it."""

    above: str
    title: str
    below: str
    note: str = ""


def headline(
    predicted: str, probability: str, unlike: bool = False, film: bool = False
) -> Headline:
    """What is said first: the prediction, or that it is not to be trusted, and why.

    An image framed otherwise than in training (a whole film) is told apart from one that is unlike the
    training images.

    >>> headline("spiculated", "97 %").title, headline("spiculated", "97 %", unlike=True).title
    ('spiculated', 'Unlike the training images')
    """
    anyway = f"The prediction would be {predicted}, probability {probability}"
    if film:
        above = "Caution: size or shape is not that of the training images"
        below = "Mark the lesion: --region x0,y0,x1,y1, in Python region=(x0, y0, x1, y1)"
        return Headline(above, "A whole film?", below, anyway)
    if unlike:
        return Headline(
            "Caution", "Unlike the training images", "Do not rely on the prediction", anyway
        )
    return Headline("Prediction", predicted, f"probability {probability}")


def draw_film(sheet: Sheet, film: NDArray[np.float32], marked: Box) -> None:
    """Draw a film (H, W) or (H, W, 3) at the upper right of a sheet, the marked part outlined.

    marked: fractions x0, y0, x1, y1 of the film; they may reach beyond it.
    """
    height, width = film.shape[:2]
    scale = min(WIDTH / width, HEIGHT / height)
    across, down = width * scale, height * scale
    left = sheet.width - EDGE - across
    Tile(sheet, left, TOP, across, down).show(film)
    x0, y0, x1, y1 = marked
    corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]])
    line = corners * (across, down) + (left, TOP)
    sheet.strokes.append(LineStroke([line], BOX, 1.3, halo=1.3))  # seen on dark and bright films
