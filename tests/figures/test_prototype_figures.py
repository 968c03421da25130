"""The gallery of prototypes and their nearest images."""

from __future__ import annotations

from dataclasses import replace

from protopyramid.figures.prototype_figures import (
    NeighbourRow,
    NeighbourTile,
    gallery_figure,
    neighbours_figure,
)
from protopyramid.figures.scale import GalleryItem
from protopyramid.figures.strokes import PictureStroke

from .examples import COLOUR, FLAT, GREY, MAP, drawn, region, tags, texts

CELL = (0.25, 0.5, 0.375, 0.625)


def test_gallery_of_one_many_and_no_prototypes() -> None:
    items = [
        GalleryItem(n, "ab"[n % 2], 2 + n % 4, GREY, region((MAP, FLAT)[n % 2]), CELL)
        for n in range(9)
    ]
    assert drawn(gallery_figure(items, ["a", "b", "empty"], "all"))
    assert drawn(gallery_figure(items, ["a", "b", "empty"], "all", regions=True))
    assert drawn(gallery_figure(items[:1], ["a"], "one"))
    assert drawn(gallery_figure([], ["a"], "none"))


def test_gallery_tells_the_label_of_a_case_of_another_class() -> None:
    item = GalleryItem(0, "a", 5, GREY, region(), CELL)
    for regions in (False, True):
        own = gallery_figure([item], ["a"], "x", regions=regions)
        other = gallery_figure([replace(item, other_label="b")], ["a"], "x", regions=regions)
        assert "✕ b" in tags(other) and not any("✕" in tag for tag in tags(own))
        assert any("✕" in text for text in texts(other)) and "✕" not in " ".join(texts(own))


def test_gallery_marks_prototypes_that_never_matter() -> None:
    item = GalleryItem(7, "a", 5, GREY, region(), CELL)
    idle = replace(item, index=8, idle=True)
    other = replace(item, index=9, class_name="b", idle=True)  # of a class that is not drawn
    for regions in (False, True):
        found = gallery_figure(
            [item, idle, other], ["a"], "x", regions=regions, looked_at="9 images"
        )
        assert tags(found)[:2] == ["7", "8 never matters"]
        note = "Pale: 1 of 2, never among the five strongest, never decisive on 9 images."
        assert any(note in text for text in texts(found))
        pale = [each.pale for each in found.strokes if isinstance(each, PictureStroke)]
        assert sum(pale) == (1 if regions else 2)
        assert drawn(found)
    assert not any("Pale" in text for text in texts(gallery_figure([item], ["a"], "x")))


def test_neighbours_of_prototypes_with_and_without_images() -> None:
    item = GalleryItem(0, "a", 5, GREY, region(), CELL)
    near = NeighbourTile(COLOUR, region(), "b", -0.3, False)
    rows = [NeighbourRow(item, {"train": [near, replace(near, same_class=True)], "test": []})]
    assert drawn(neighbours_figure(rows, "title"))
    assert drawn(neighbours_figure([NeighbourRow(item, {})], "title"))
    assert drawn(neighbours_figure([], "title"))


def test_only_cosines_are_called_similarities() -> None:
    cosine, other = (" ".join(texts(neighbours_figure([], "x", flag))) for flag in (True, False))
    assert "similarity" in cosine and "similarity" not in other and "score" in other
