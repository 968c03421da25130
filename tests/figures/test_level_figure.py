"""Figure 5: prototypes at different levels, enlarged alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protopyramid.figures.drawing import Sheet
from protopyramid.figures.level_figure import level_figure, level_title, scale_text
from protopyramid.figures.scale import GalleryItem, magnification, part_around

from .examples import GREY, drawn, region, tags, texts

FINE = GalleryItem(
    0, "a", 2, GREY, region(), (0.5, 0.5, 0.5625, 0.5625), (0.4375, 0.4375, 0.625, 0.625)
)
COARSE = replace(FINE, index=1, level=5, cell=(0.25, 0.25, 0.5, 0.5), reach=(0.0, 0.0, 0.75, 0.75))


def image_sides(sheet: Sheet) -> list[float]:
    """The inches that one image side takes in each picture; pictures are drawn whole and clipped."""
    extents = [image.get_extent() for image in sheet.figure.axes[0].images]
    return [right - left for left, right, _, _ in extents]


def test_all_levels_are_enlarged_by_the_same_factor() -> None:
    sides = image_sides(level_figure([FINE, COARSE], "x"))
    assert len(sides) == 4
    wholes, enlarged = sorted(sides)[:2], sorted(sides)[2:]
    assert wholes[0] == pytest.approx(wholes[1]) and enlarged[0] == pytest.approx(enlarged[1])
    assert enlarged[0] / wholes[0] == pytest.approx(1 / 0.75)  # the coarse one fills its slot


def test_the_scale_is_said_in_pixels() -> None:
    assert scale_text([FINE]) == "patch 1 px wide, mostly depends on 3 px"
    assert scale_text([COARSE, COARSE]) == "patch 4 px wide, mostly depends on 12 px"
    assert scale_text([replace(FINE, reach=None)]) == "patch 1 px wide"
    found = texts(level_figure([FINE, COARSE], "x"))
    assert {scale_text([FINE]), scale_text([COARSE]), "Level 2 (finest)"} <= found


def test_a_field_that_is_the_whole_image_is_not_outlined() -> None:
    whole = level_figure([replace(FINE, field=(0.0, 0.0, 1.0, 1.0))], "x")
    part = level_figure([replace(FINE, field=(0.0, 0.0, 0.5, 1.0))], "x")
    assert len(part.strokes) > len(whole.strokes)
    assert any("Dotted" in text for text in texts(part))
    assert not any("Dotted" in text for text in texts(whole))


def test_a_part_at_the_border_is_moved_into_the_image() -> None:
    assert part_around((0.0, 0.875, 0.125, 1.0)) == (0.0, 0.625, 0.375, 1.0)
    assert part_around((0.0, 0.0, 0.5, 0.5)) == (0.0, 0.0, 1.0, 1.0)


def test_magnification_without_prototypes_is_that_of_the_slot() -> None:
    assert magnification([], 2.0) == 2.0
    assert magnification([FINE, COARSE], 1.5) == pytest.approx(1.5 / 0.75)


def test_it_is_drawn_of_many_and_of_no_prototypes_and_tells_labels() -> None:
    many = [replace(FINE, index=n, level=2 + n % 4, image=np.zeros((16, 16, 3))) for n in range(20)]
    assert drawn(level_figure(many, "x")) and drawn(level_figure([], "x"))
    other = level_figure([replace(FINE, other_label="b")], "x")
    assert "✕ b" in tags(other) and any("another class" in text for text in texts(other))
    assert level_title(7) == "Level 7"
