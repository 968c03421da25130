"""The figure of a model without prototypes: its probabilities, a saliency map, and what it cannot tell."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from protopyramid.figures.case_figure import Prediction, draw_header
from protopyramid.figures.drawing import COLOUR_MAP, MUTED, Picture, Sheet
from protopyramid.figures.text import shortened
from protopyramid.model.activation import Region

NOTE_WIDTH = 58  # letters of a line
NOTE = (
    "This model is a black box: it has no prototypes and\n"
    "cannot say which known case your image resembles.\n\n"
    "The heat map shows where the prediction reacts to the image.\n"
    "It does not say what was seen there, nor why it counts.\n\n"
    "White outline: the strongest 5% of the map.\n"
    "For research only, not a medical device."
)


@dataclass(frozen=True)
class BlackBoxFigureData:
    """What is shown of a model without prototypes.

    image (S, S) or (S, S, 3) in [0, 1]; saliency: the region of a saliency map of the predicted class;
    mask (S, S): annotation of the image, if known; remark: what else to say of the model.
    """

    prediction: Prediction
    image: Picture
    saliency: Region
    mask: NDArray[Any] | None = None
    remark: str = ""


def black_box_figure(data: BlackBoxFigureData, colour_map: str = COLOUR_MAP) -> Sheet:
    """Draw the prediction, the image and the saliency map, and say what they cannot tell."""
    sheet = Sheet(14.6, 6.4)
    draw_header(sheet, data.prediction)
    sheet.rule(0.3, 14.3, 1.85, MUTED)
    first = "Your image" if data.mask is None else "Your image (dashed: annotation)"
    second = f"Grad-CAM for {shortened(data.prediction.predicted)}"
    sheet.write(0.3, 2.0, first, fontsize=12, fontweight="bold")
    sheet.write(4.3, 2.0, second, fontsize=12, fontweight="bold")
    image = sheet.tile(0.3, 2.3, 3.8)
    image.show(data.image)
    if data.mask is not None:
        image.draw_mask(data.mask)
    sheet.tile(4.3, 2.3, 3.8).show_heat(data.image, data.saliency, colour_map)
    sheet.write(8.5, 2.3, "No case behind this prediction", fontsize=15, fontweight="bold")
    note = f"{textwrap.fill(data.remark, NOTE_WIDTH)}\n\n{NOTE}" if data.remark else NOTE
    sheet.write(8.5, 2.75, note, fontsize=12, linespacing=1.45, color=MUTED)
    return sheet
