"""The paper's figure 5: the prototypes of one class at every level, at one scale."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from protopyramid.figures.case_figure import LEVEL_WORDS
from protopyramid.figures.drawing import MUTED, WHOLE, Sheet
from protopyramid.figures.scale import GalleryItem, draw_scale, magnification, pixels

TILE, GAP, ROW = 1.65, 0.08, 1.75
COLUMN = 2 * TILE + GAP + 0.35
LEFT, TOP = 0.3, 1.75
MOST_ROWS = 4  # prototypes shown per level
NOTE = (
    "Yellow: the patch that is the prototype. White: what it mostly depends on (90% of its sensitivity to "
    "the image).\nLeft: in its training image. Right: enlarged, by the same factor on every level."
)
FIELD_NOTE = " Dotted: nothing outside has any influence."
OTHER_NOTE = " ✕: an image of another class."


def level_figure(items: Sequence[GalleryItem], title: str) -> Sheet:
    """Prototypes of one class, a column per level: each in its source image, and enlarged.

    At most four of a level are shown, in their order.
    """
    by_level = {
        level: [item for item in items if item.level == level][:MOST_ROWS]
        for level in sorted({item.level for item in items})
    }
    rows = max(map(len, by_level.values()), default=1)
    width = max(LEFT + len(by_level) * COLUMN, 10.4)
    sheet = Sheet(width, TOP + rows * ROW + 0.2)
    sheet.write(LEFT, 0.2, title, fontsize=15, fontweight="bold")
    note = NOTE + (FIELD_NOTE if any(item.field not in (None, WHOLE) for item in items) else "")
    note += OTHER_NOTE if any(item.other_label for item in items) else ""
    sheet.write(LEFT, 0.52, note, fontsize=10.5, color=MUTED, linespacing=1.35)
    enlarged = magnification(items, TILE)
    for column, (level, shown) in enumerate(by_level.items()):
        x = LEFT + column * COLUMN
        sheet.write(x, 1.08, level_title(level), fontsize=13, fontweight="bold")
        sheet.write(x, 1.34, scale_text(shown), fontsize=10.5)
        for row, item in enumerate(shown):
            draw_scale(sheet, x, TOP + row * ROW, TILE, GAP, item, enlarged)
    return sheet


def level_title(level: int) -> str:
    """The name of a level in a heading.

    >>> level_title(2)
    'Level 2 (finest)'
    """
    word = LEVEL_WORDS.get(level)
    return f"Level {level}" + (f" ({word})" if word else "")


def scale_text(items: Sequence[GalleryItem]) -> str:
    """How large the patches of a level are, and the median of what they mostly depend on."""
    first = items[0]
    side = pixels(first.cell, first.image)
    text = f"patch {side} px wide"
    known = [pixels(item.reach, item.image) for item in items if item.reach is not None]
    if not known:
        return text
    reach = round(statistics.median(known))
    return f"{text}, mostly depends on {reach} px"
