"""Boxes as they are given on the command line, for --region, --region-mm and --lesion."""

from collections.abc import Sequence
from typing import TypedDict

from protopyramid.errors import UserError

Box = tuple[float, float, float, float]


class MarkedBoxes(TypedDict):
    """Lesions marked on one image, by the names that the API gives them."""

    regions: list[Box]
    regions_mm: list[Box]
    lesions: list[Box]


def marked_boxes(
    region: Sequence[str] | None, region_mm: Sequence[str] | None, lesion: Sequence[str] | None
) -> MarkedBoxes:
    """What the options --region, --region-mm and --lesion mark."""
    return MarkedBoxes(
        regions=boxes(region, "--region"),
        regions_mm=boxes(region_mm, "--region-mm"),
        lesions=boxes(lesion, "--lesion"),
    )


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
