"""What stands for a case whose picture stayed at its site: a drawn page that says in words what is known.

Nothing on it is guessed: class, level and name of the case, and where in the crop its part lies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from protopyramid.data.io.encoding import png_bytes
from protopyramid.figures.text import shortened, shortened_path
from protopyramid.model.activation import Box, MaskedRegion, Region
from protopyramid.runs.records import PrototypeRecord

PAPER, STRIPE, INK, MUTED = 226, 214, 40, 96  # grey values
NOT_SHARED = "not shared"
TITLE = f"picture {NOT_SHARED}"
ROWS, COLUMNS = ("upper", "middle", "lower"), ("left", "centre", "right")


def place_words(box: Box) -> str:
    """Where in an image the middle of a box lies.

    >>> place_words((0.0, 0.1, 0.2, 0.3)), place_words((0.4, 0.4, 0.6, 0.6))
    ('upper left', 'centre')
    """
    row, column = (
        min(int(3 * (low + high) / 2), 2) for low, high in ((box[1], box[3]), (box[0], box[2]))
    )
    if row == 1:
        return COLUMNS[column]
    return ROWS[row] if column == 1 else f"{ROWS[row]} {COLUMNS[column]}"


def case_words(record: PrototypeRecord, part: Box) -> list[str]:
    """What is known of a case without its picture, one text per line; part: what is drawn of it."""
    label = record.label or record.class_name
    return [
        TITLE,
        shortened(label, 20),
        f"level {record.level}, {place_words(part)}",
        shortened_path(record.image, 21),
    ]


def blank(size: int) -> NDArray[np.float32]:
    """What a figure shows in place of a picture: pale stripes, (size, size) in [0, 1]."""
    down, across = np.mgrid[:size, :size]
    stripes = (down + across) // max(size // 16, 2) % 2
    return np.where(stripes, PAPER / 255, STRIPE / 255).astype(np.float32)


def placeholder_png(record: PrototypeRecord, size: int) -> bytes:
    """The page that stands for a case, with what is known in words, as the bytes of a PNG."""
    image = Image.fromarray(np.round(blank(size) * 255).astype(np.uint8))
    _write(image, case_words(record, record.box), record.box)
    return png_bytes(np.asarray(image))


def box_region(box: Box, size: int) -> Region:
    """The region that a record's box tells of, on an image of that size; how strong it is, is not known."""
    mask = np.zeros((size, size), dtype=bool)
    x0, y0, x1, y1 = (round(side * size) for side in box)
    mask[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] = True
    return MaskedRegion(np.zeros((size, size), dtype=np.float32), mask, box)


def _write(image: Image.Image, lines: list[str], box: Box) -> None:
    """Write lines above the part that is meant, or below it where it lies in the upper half."""
    size = image.width
    draw = ImageDraw.Draw(image)
    letters = max(size // 15, 8)
    step = round(letters * 1.3)
    below = (box[1] + box[3]) / 2 < 0.5
    top = size - step * len(lines) - size // 7 if below else size // 20
    for number, line in enumerate(lines):
        font = _fitting(draw, line, letters, size * 0.9)
        place = (round(size * 0.05), top + step * number)
        draw.text(place, line, fill=INK if number else MUTED, font=font)


def _fitting(
    draw: ImageDraw.ImageDraw, line: str, letters: int, width: float
) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The largest letters up to a height with which a line is not wider than it may be."""
    found = ImageFont.load_default(letters)
    while letters > 6 and draw.textlength(line, font=found) > width:
        letters -= 1
        found = ImageFont.load_default(letters)
    return found
