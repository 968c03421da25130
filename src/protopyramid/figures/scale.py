"""The scale of prototypes: each one's patch on its source image, and the part around it enlarged.

All are enlarged alike, so that a prototype of a fine level looks as small as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from protopyramid.figures.drawing import INK, MUTED, OUTLINE, WHOLE, Picture, Sheet, Tile, roomy
from protopyramid.model.activation import Box, Region

CELLS = 3  # cells per side of an enlarged part: the prototype's own, and its eight neighbours
REACH = OUTLINE
THIN = 0.8  # lines on small tiles
IDLE = "never matters"


@dataclass(frozen=True)
class GalleryItem:
    """A prototype with its source image, the region on which it activates there, and its cell.

    cell: the square of the image that the prototype was taken from, as fractions x0, y0, x1, y1; reach: the
    part of the image that it mostly depends on; field: the part that it can depend on at all, None where
    they are not known; other_label: the label of the source image where it is another than the
    prototype's class; idle: whether it never matters, on any image that was looked at; note: what is written
    on the image where its picture was not shared.
    """

    index: int
    class_name: str
    level: int
    image: Picture
    region: Region
    cell: Box
    reach: Box | None = None
    field: Box | None = None
    other_label: str | None = None
    idle: bool = False
    note: str = ""

    @property
    def part(self) -> Box:
        """What is shown enlarged: the reach, or the cell with its neighbours where that is not known."""
        return part_around(self.cell) if self.reach is None else self.reach


def part_around(cell: Box) -> Box:
    """A cell with its neighbours, moved into the image at its border.

    >>> part_around((0.25, 0.5, 0.375, 0.625))
    (0.125, 0.375, 0.5, 0.75)
    """
    return roomy(cell, CELLS * max(cell[2] - cell[0], cell[3] - cell[1]), 0.0)


def magnification(items: Iterable[GalleryItem], slot: float) -> float:
    """Inches per image side at which the largest of the enlarged parts fills a slot."""
    return slot / max((_side(item.part) for item in items), default=1.0)


def draw_scale(
    sheet: Sheet, x: float, y: float, tile: float, gap: float, item: GalleryItem, enlarged: float
) -> None:
    """The source image with the prototype's cell and reach, and beside it the part around the cell.

    enlarged: inches per image side, the same for all prototypes of a figure.
    """
    source = sheet.tile(x, y, tile)
    source.show(item.image, item.idle)
    if item.field is not None and item.field != WHOLE:
        source.draw_field(item.field)
    if item.reach is not None:
        source.draw_box(item.reach, REACH, THIN)
    source.draw_box(item.cell, width=THIN)
    draw_tag(source, item)
    if item.other_label is not None:
        source.tag_other(item.other_label)
    elif item.note:
        source.tag(item.note, corner=(0.97, 0.97 if item.cell[1] < 0.6 else 0.03))
    part = sheet.magnified(x + tile + gap, y, tile, enlarged, item.part)
    part.show(item.image, item.idle)
    part.draw_box(item.cell, width=THIN)


def draw_tag(tile: Tile, item: GalleryItem) -> None:
    """The prototype's number and, where it never matters, that it does not."""
    tile.tag(f"{item.index} {IDLE}" if item.idle else f"{item.index}", MUTED if item.idle else INK)


def pixels(box: Box, image: Picture) -> int:
    """The longer side of a box in pixels of an image (S, S) or (S, S, 3).

    >>> import numpy as np
    >>> pixels((0.25, 0.5, 0.375, 0.625), np.zeros((32, 32), np.float32))
    4
    """
    height, width = image.shape[:2]
    return round(float(max((box[2] - box[0]) * width, (box[3] - box[1]) * height)))


def _side(box: Box) -> float:
    return max(box[2] - box[0], box[3] - box[1])
