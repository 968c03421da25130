"""Every figure is drawn from any input, however poor."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from protopyramid.errors import UserError
from protopyramid.figures.case_figure import CaseRow, CaseView, case_figure
from protopyramid.figures.drawing import (
    LEAST_PART,
    check_colour_map,
    figure_bytes,
    new_figure,
    overlay,
    peak_box,
    save_figure,
    unit_range,
)
from protopyramid.figures.layouts import (
    BlackBoxView,
    Curve,
    GalleryItem,
    NeighbourRow,
    NeighbourTile,
    Panel,
    Plot,
    black_box_figure,
    curves_figure,
    gallery_figure,
    grid_figure,
    neighbours_figure,
)

RNG = np.random.default_rng(0)
GREY = RNG.random((16, 16)).astype(np.float32)
COLOUR = RNG.random((16, 16, 3)).astype(np.float32)
MAP = RNG.random((16, 16)).astype(np.float32)
FLAT = np.full((16, 16), 0.5, np.float32)
BROKEN = np.full((16, 16), np.nan, np.float32)
BOX = (0.1, 0.2, 0.5, 0.6)
SPIKE = np.eye(16, dtype=np.float32) * (np.arange(16) == 3)  # its 95th percentile is its minimum


def drawn(figure) -> bool:
    return figure_bytes(figure, dpi=30).startswith(b"\x89PNG")


def row(activation=MAP, image=GREY, box=BOX, contribution=0.5) -> CaseRow:
    values = (0.4, 1.25, contribution)
    return CaseRow(3, "b$^{x", 2, activation, box, "case.png", image, activation, box, *values)


def view(rows=(), classes=("a", "b$^{x"), image=GREY, others=0) -> CaseView:
    shares = dict.fromkeys(classes, 1 / len(classes))
    sums = dict.fromkeys(classes, 0.0)
    return CaseView("x.png", image, classes[0], sums, shares, list(rows), others, sums, sums)


@pytest.mark.parametrize(
    "activation", [MAP, FLAT, BROKEN, SPIKE], ids=["map", "flat", "nan", "spike"]
)
@pytest.mark.parametrize("image", [GREY, COLOUR], ids=["grey", "colour"])
def test_case_figure_of_any_map_and_image(activation, image) -> None:
    assert drawn(case_figure(view([row(activation, image)], image=image)))


@pytest.mark.parametrize(
    "shown",
    [
        view(),
        view([row()], classes=("only",)),
        view([row(contribution=-0.5)], others=39),
        view([row(contribution=0.0)]),
        view([row(box=(0.5, 0.5, 0.5, 0.5))]),
        view([row(box=(0.0, 0.0, 1.0, 1.0))]),
        view([row()], classes=tuple(f"a class with a long name {n}" for n in range(30))),
        view([row()] * 8, classes=("乳房", "")),
    ],
    ids=[
        "no rows",
        "one class",
        "against",
        "nothing",
        "empty box",
        "whole box",
        "many",
        "odd names",
    ],
)
def test_case_figure_of_degenerate_views(shown: CaseView) -> None:
    assert drawn(case_figure(shown))


def test_case_figure_says_how_many_augmented_copies_it_averages() -> None:
    def words(tta: int) -> str:
        return " ".join(text.get_text() for text in case_figure(replace(view(), tta=tta)).texts)

    assert "mean over 8 copies of the image" in words(8)
    assert "copies" not in words(1)


def test_case_figure_says_the_class_the_sum_and_each_contribution() -> None:
    shown = replace(
        view([row(), row(contribution=-0.25)], others=3),
        logits={"a": 1.75, "b": 0.0},
        probabilities={"a": 0.85, "b": 0.15},
        shown_sums={"a": 0.25, "b": 0.0},
        other_sums={"a": 1.5, "b": 0.0},
    )
    texts = {text.get_text() for text in case_figure(shown).texts}
    assert {"a", "probability 85%", "+0.50", "−0.25", "+0.25", "+1.50", "+1.75"} <= texts
    assert {"2 prototypes above", "3 other prototypes", "speaks for a", "speaks against a"} <= texts


def test_case_figure_outlines_the_annotation_and_cautions_of_a_strange_image() -> None:
    plain = view([row()])
    mask = np.zeros(GREY.shape[:2])
    mask[2:5, 2:5] = 1
    marked = replace(plain, mask=mask, unlike=True)
    texts = {text.get_text() for text in case_figure(marked).texts}
    assert "dashed: annotation" in texts and any("unlike the training" in t for t in texts)
    texts = {text.get_text() for text in case_figure(plain, "jet").texts}
    assert "red: most alike" in texts and not any("unlike" in text for text in texts)


def test_the_box_is_around_the_place_of_the_peak_alone() -> None:
    activation = np.zeros((100, 100), dtype=np.float32)
    activation[10:30, 40:60] = 1
    activation[15, 45] = 2
    activation[80:90, 80:95] = 1  # as strong, but elsewhere
    assert peak_box(activation) == pytest.approx((0.4, 0.1, 0.6, 0.3))
    point = np.zeros((100, 100), dtype=np.float32)
    point[0, 99] = 1
    point[40:60, 40:70] = 0.5
    x0, y0, x1, y1 = peak_box(point)
    assert (x1, y0) == (1, 0) and x1 - x0 == pytest.approx(LEAST_PART) == pytest.approx(y1 - y0)
    assert peak_box(np.ones((8, 8), dtype=np.float32)) == (0, 0, 1, 1)


@pytest.mark.parametrize("saliency", [MAP, FLAT, FLAT * 0])
def test_black_box_figure(saliency) -> None:
    shares = {"a": 0.5, "b": 0.5}
    assert drawn(black_box_figure(BlackBoxView("x", GREY, "a", shares, shares, saliency), "jet"))


def test_gallery_of_one_many_and_no_prototypes() -> None:
    items = [
        GalleryItem(n, "ab"[n % 2], 2 + n % 4, GREY, (MAP, FLAT)[n % 2], BOX) for n in range(9)
    ]
    assert drawn(gallery_figure(items, ["a", "b", "empty"], "all"))
    assert drawn(gallery_figure(items[:1], ["a"], "one"))
    assert drawn(gallery_figure([], ["a"], "none"))


def test_neighbours_of_prototypes_with_and_without_images() -> None:
    item = GalleryItem(0, "a", 5, GREY, MAP, BOX)
    near = NeighbourTile(COLOUR, BOX, "b", -0.3, False)
    rows = [NeighbourRow(item, {"train": [near, replace(near, same_class=True)], "test": []})]
    assert drawn(neighbours_figure(rows, "title"))
    assert drawn(neighbours_figure([NeighbourRow(item, {})], "title"))
    assert drawn(neighbours_figure([], "title"))


def test_grid_with_holes_masks_and_constant_maps() -> None:
    mask = np.zeros((16, 16), np.uint8)
    full = np.ones((16, 16), np.uint8)
    panels = [
        [Panel(GREY), Panel(GREY, FLAT, BOX, mask, "x"), None],
        [Panel(COLOUR, MAP, None, full), Panel(GREY, SPIKE), None],
    ]
    assert drawn(grid_figure(panels, ["one", "two words here", "three"], ["a", ""], "title"))
    assert drawn(grid_figure([], [], []))


def test_curves_of_one_epoch_no_epoch_and_gaps() -> None:
    lone = Plot("loss", [Curve("x", [1.0], [2.0])], None, [(0.5, "A")])
    gap = Plot("gap", [Curve("y", [1.0, 2.0], [float("nan"), 1.0])], (0.0, 1.0))
    assert drawn(curves_figure([lone, gap, Plot("none", [])]))
    assert drawn(curves_figure([]))


def test_heat_leaves_the_image_where_the_map_is_constant() -> None:
    np.testing.assert_allclose(overlay(GREY, FLAT), np.repeat(GREY[..., None], 3, 2))
    assert unit_range(FLAT) is None and unit_range(BROKEN) is None


def test_default_heat_grows_brighter_as_it_grows_hotter() -> None:
    ramp = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    grey = overlay(np.zeros((8, 8), np.float32), ramp) @ np.array([0.299, 0.587, 0.114])
    assert (np.diff(grey.ravel()) >= -1e-6).all()


def test_an_image_fills_its_panel_also_with_heat_over_it() -> None:
    from protopyramid.figures.drawing import add_axes, draw_mask, show_heat

    ax = add_axes(new_figure(2, 2), 0, 0, 1, 1)
    show_heat(ax, GREY, MAP)
    draw_mask(ax, np.ones((16, 16)))
    assert ax.get_xlim() == (0, 1) and ax.get_ylim() == (1, 0)


def test_no_global_figure_is_left() -> None:
    drawn(case_figure(view([row()])))
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_unknown_colour_maps_and_suffixes_are_refused(tmp_path) -> None:
    with pytest.raises(UserError, match="inferno"):
        check_colour_map("rainbowish")
    with pytest.raises(UserError, match="png"):
        save_figure(new_figure(1, 1), tmp_path / "x.bmp")
