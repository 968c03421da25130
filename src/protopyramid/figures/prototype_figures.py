"""Figures of the prototypes of a run: by class and level, and each beside its nearest images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protopyramid.figures.drawing import (
    AGAINST,
    COLOUR_MAP,
    FOR,
    INK,
    MUTED,
    OTHER_CLASS,
    Picture,
    Sheet,
)
from protopyramid.figures.level_figure import level_title
from protopyramid.figures.scale import THIN, GalleryItem, draw_scale, draw_tag, magnification
from protopyramid.figures.text import decimal, shortened
from protopyramid.model.activation import Region

LEFT, TOP = 0.3, 1.3
PAIR_TILE, PAIR_GAP = 1.15, 0.05
PAIR = 2 * PAIR_TILE + PAIR_GAP + 0.25
NEAR_TILE, NEAR_GAP, NEAR_ROW, NEAR_LABEL = 1.2, 0.07, 1.32, 1.35
SCALE_NOTE = (
    "Left: the training image with the patch that is the prototype.\n"
    "Right: that patch with its neighbours, all enlarged alike."
)
REGION_NOTE = (
    "Left: the training image with the strongest 5% of the map outlined and boxed.\n"
    "Right: how well each part of that image matches the prototype."
)
OTHER_NOTE = " ✕: a training image of another class."


def gallery_figure(
    items: Sequence[GalleryItem],
    classes: Sequence[str],
    title: str,
    colour_map: str = COLOUR_MAP,
    regions: bool = False,
    looked_at: str = "",
) -> Sheet:
    """Prototypes by class (down) and level (across): the source image and the prototype's patch.

    With `regions`, the region of the activation map and its heat are shown instead; they are 5 % of the
    image on every level, so they do not tell the scale of a prototype. A single class is not named again
    below the title. looked_at: the images on which the pale prototypes never matter.
    """
    levels = sorted({item.level for item in items}) or [5]
    groups = {
        (name, level): [i for i in items if i.class_name == name and i.level == level]
        for name in classes
        for level in levels
    }
    heights = {name: max(len(groups[name, level]) for level in levels) for name in classes}
    shown = [name for name in classes if heights[name]]
    space = 0.5 if len(classes) > 1 else 0.0
    height = TOP + sum(heights[n] * (PAIR_TILE + PAIR_GAP) + space for n in shown) + 0.35
    sheet = Sheet(max(LEFT + len(levels) * PAIR + 0.2, 10.6), max(height, 2.2))
    drawn = [item for item in items if item.class_name in shown]
    _draw_gallery_head(sheet, title, levels, _gallery_note(drawn, regions, looked_at))
    enlarged = magnification(items, PAIR_TILE)
    y = TOP
    for name in shown:
        if space:
            style = {"fontsize": 13, "fontweight": "bold", "color": FOR}
            sheet.write(LEFT, y + 0.12, shortened(name, 40), **style)
        for column, level in enumerate(levels):
            for row, item in enumerate(groups[name, level]):
                top = y + 0.84 * space + row * (PAIR_TILE + PAIR_GAP)
                x = LEFT + column * PAIR
                if regions:
                    _draw_regions(sheet, x, top, item, colour_map)
                else:
                    draw_scale(sheet, x, top, PAIR_TILE, PAIR_GAP, item, enlarged)
        y += heights[name] * (PAIR_TILE + PAIR_GAP) + space
    return sheet


def _gallery_note(items: Sequence[GalleryItem], regions: bool, looked_at: str) -> str:
    note = REGION_NOTE if regions else SCALE_NOTE
    note += OTHER_NOTE if any(item.other_label for item in items) else ""
    idle = sum(item.idle for item in items)
    if not idle:
        return note
    on = f" on {looked_at}" if looked_at else ""
    return (
        f"{note} Pale: {idle} of {len(items)}, never among the five strongest, never decisive{on}."
    )


def _draw_gallery_head(sheet: Sheet, title: str, levels: Sequence[int], note: str) -> None:
    sheet.write(LEFT, 0.2, title, fontsize=15, fontweight="bold")
    sheet.write(LEFT, 0.5, note, fontsize=10, color=MUTED, linespacing=1.3)
    for column, level in enumerate(levels):
        text = level_title(level)
        sheet.write(LEFT + column * PAIR, 0.97, text, fontsize=12, fontweight="bold")


def _draw_regions(sheet: Sheet, x: float, y: float, item: GalleryItem, colour_map: str) -> None:
    source = sheet.tile(x, y, PAIR_TILE)
    source.show(item.image, item.idle)
    source.mark(item.region, THIN)
    draw_tag(source, item)
    if item.other_label is not None:
        source.tag_other(item.other_label)
    heat = sheet.tile(x + PAIR_TILE + PAIR_GAP, y, PAIR_TILE)
    heat.show_heat(item.image, item.region, colour_map)


@dataclass(frozen=True)
class NeighbourTile:
    """An image near a prototype: the prototype's region on it, and the class of the image."""

    image: Picture
    region: Region
    label: str
    similarity: float
    same_class: bool


@dataclass(frozen=True)
class NeighbourRow:
    """A prototype, and its nearest images by the name of their split."""

    item: GalleryItem
    nearest: Mapping[str, Sequence[NeighbourTile]]


def neighbours_figure(rows: Sequence[NeighbourRow], title: str, cosine: bool = True) -> Sheet:
    """One row per prototype: its source, then the nearest images of each split.

    A tile of another class has a dashed orange frame and a cross: told apart without colour. `cosine`:
    whether similarities are cosines; if not, they have no upper limit and are called scores.
    """
    starts, width = _split_starts(rows)
    sheet = Sheet(max(width + 0.1, 9.6), 1.2 + max(len(rows), 1) * NEAR_ROW + 0.15)
    sheet.write(LEFT, 0.2, title, fontsize=15, fontweight="bold")
    number = "similarity (1 = identical)" if cosine else "score (higher = more alike)"
    note = (
        "Outlined: the part of each image most like the prototype, with its "
        f"{number}. ✕ and dashed frame: an image of another class."
    )
    sheet.write(LEFT, 0.5, note, fontsize=10, color=MUTED)
    sheet.write(LEFT + NEAR_LABEL, 0.88, "Prototype", fontsize=12, fontweight="bold")
    for name, x in starts.items():
        sheet.write(x, 0.88, f"Nearest in {name}", fontsize=12, fontweight="bold")
    for place, row in enumerate(rows):
        y = 1.2 + place * NEAR_ROW
        _draw_prototype(sheet, y, row.item)
        for name, tiles in row.nearest.items():
            for column, near in enumerate(tiles):
                _draw_neighbour(sheet, starts[name] + column * (NEAR_TILE + NEAR_GAP), y, near)
    return sheet


def _split_starts(rows: Sequence[NeighbourRow]) -> tuple[dict[str, float], float]:
    """Where the tiles of each split begin, and where the last ones end."""
    starts, x = {}, LEFT + NEAR_LABEL + NEAR_TILE + 0.3
    for name in dict.fromkeys(name for row in rows for name in row.nearest):
        starts[name] = x
        count = max(len(row.nearest.get(name, ())) for row in rows)
        x += count * (NEAR_TILE + NEAR_GAP) + 0.25
    return starts, x


def _draw_prototype(sheet: Sheet, y: float, item: GalleryItem) -> None:
    middle = y + NEAR_TILE / 2
    name = shortened(item.class_name, 15)
    sheet.write(LEFT, middle - 0.3, f"prototype {item.index}", fontsize=10, color=MUTED)
    sheet.write(LEFT, middle - 0.1, name, fontsize=11, fontweight="bold")
    sheet.write(LEFT, middle + 0.12, f"level {item.level}", fontsize=10)
    tile = sheet.tile(LEFT + NEAR_LABEL, y, NEAR_TILE)
    tile.show(item.image)
    tile.mark(item.region, THIN)


def _draw_neighbour(sheet: Sheet, x: float, y: float, near: NeighbourTile) -> None:
    tile = sheet.tile(x, y, NEAR_TILE)
    tile.show(near.image)
    tile.mark(near.region, THIN)
    if not near.same_class:
        tile.frame(AGAINST)
    cross, colour = ("", INK) if near.same_class else ("✕ ", OTHER_CLASS)
    tile.tag(cross + shortened(near.label, 14), colour)
    tile.tag(decimal(near.similarity), INK, (0.97, 0.97))
