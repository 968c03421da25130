"""Options that mark lesions on an image: --region, --region-mm, --lesion and --crop."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from protopyramid.errors import UserError

Box = tuple[float, float, float, float]


class Crop(StrEnum):
    """What the model sees of each image of a table."""

    NONE = "none"
    LESION = "lesion"


Regions = Annotated[
    list[str] | None,
    typer.Option(
        "--region",
        metavar="X0,Y0,X1,Y1",
        help="Part of one image that the model is to see, in pixels of the file; made square around its "
        "centre. Repeat it for several.",
    ),
]
RegionsMm = Annotated[
    list[str] | None,
    typer.Option(
        "--region-mm",
        metavar="X0,Y0,X1,Y1",
        help="The same in millimetres from the upper left corner (DICOM with pixel spacing).",
    ),
]
Lesions = Annotated[
    list[str] | None,
    typer.Option(
        "--lesion",
        metavar="X0,Y0,X1,Y1",
        help="Lesion box on one image, in pixels of the file; the run's margin is added around it.",
    ),
]
CropOption = Annotated[
    Crop | None,
    typer.Option(
        "--crop",
        help="Whether the lesion boxes of a table are cut from their images (default: as in training).",
    ),
]


def boxes(values: Sequence[str] | None, option: str) -> list[Box]:
    """The boxes of an option.

    >>> boxes(["1,2,3.5,4"], "--region")
    [(1.0, 2.0, 3.5, 4.0)]
    """
    return [_box(value, option) for value in values or ()]


def _box(text: str, option: str) -> Box:
    try:
        x0, y0, x1, y1 = (float(part) for part in text.split(","))
    except ValueError:
        raise UserError(
            f"{option}: {text!r} is not a box; give four numbers, as in {option} 120,340,260,480"
        ) from None
    return x0, y0, x1, y1
