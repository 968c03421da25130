"""The gallery of prototypes and their nearest images."""

from __future__ import annotations

from dataclasses import replace

from protopyramid.figures.prototype_figures import (
    GalleryItem,
    NeighbourRow,
    NeighbourTile,
    gallery_figure,
    neighbours_figure,
)

from .examples import COLOUR, FLAT, GREY, MAP, drawn, region, texts


def test_gallery_of_one_many_and_no_prototypes() -> None:
    items = [
        GalleryItem(n, "ab"[n % 2], 2 + n % 4, GREY, region((MAP, FLAT)[n % 2])) for n in range(9)
    ]
    assert drawn(gallery_figure(items, ["a", "b", "empty"], "all"))
    assert drawn(gallery_figure(items[:1], ["a"], "one"))
    assert drawn(gallery_figure([], ["a"], "none"))


def test_neighbours_of_prototypes_with_and_without_images() -> None:
    item = GalleryItem(0, "a", 5, GREY, region())
    near = NeighbourTile(COLOUR, region(), "b", -0.3, False)
    rows = [NeighbourRow(item, {"train": [near, replace(near, same_class=True)], "test": []})]
    assert drawn(neighbours_figure(rows, "title"))
    assert drawn(neighbours_figure([NeighbourRow(item, {})], "title"))
    assert drawn(neighbours_figure([], "title"))


def test_only_cosines_are_called_similarities() -> None:
    cosine, other = (" ".join(texts(neighbours_figure([], "x", flag))) for flag in (True, False))
    assert "similarity" in cosine and "similarity" not in other and "score" in other
