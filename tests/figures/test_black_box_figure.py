"""The figure of a model without prototypes."""

from __future__ import annotations

import numpy as np
import pytest

from protopyramid.figures.black_box_figure import BlackBoxFigureData, black_box_figure
from protopyramid.figures.case_figure import Prediction

from .examples import FLAT, GREY, MAP, drawn, region, texts

SHARES = {"a": 0.5, "b": 0.5}
PREDICTION = Prediction("x", "a", SHARES, SHARES)


@pytest.mark.parametrize("saliency", [MAP, FLAT, FLAT * 0], ids=["map", "flat", "zero"])
def test_black_box_figure_of_any_map(saliency) -> None:
    assert drawn(black_box_figure(BlackBoxFigureData(PREDICTION, GREY, region(saliency)), "jet"))


def test_black_box_figure_says_that_no_case_is_behind_it() -> None:
    shown = BlackBoxFigureData(PREDICTION, GREY, region(), np.ones((16, 16)))
    words = " ".join(texts(black_box_figure(shown)))
    assert "No case" in words and "black box" in words and "dashed: annotation" in words
