"""Sheets, tiles and overlays."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from protopyramid.errors import UserError
from protopyramid.figures.drawing import (
    Sheet,
    check_colour_map,
    figure_bytes,
    figure_pixels,
    overlay,
    roomy,
    save_figure,
    unit_range,
)

from .examples import BROKEN, FLAT, GREY, MAP, region

WHITE = 255


def test_an_image_fills_its_tile_and_no_more_whatever_is_drawn_on_it() -> None:
    sheet = Sheet(3, 2)
    tile = sheet.tile(1, 0.5, 1)
    tile.show_heat(GREY * 0, region(MAP))
    tile.draw_mask(np.ones((16, 16)))
    tile.draw_box((0, 0, 1, 1))
    pixels = figure_pixels(sheet, 100)
    assert pixels.shape == (200, 300, 3)
    outside = np.ones(pixels.shape[:2], bool)
    outside[49:151, 99:201] = False
    assert (pixels[outside] == WHITE).all()
    assert (pixels[52:148, 102:198] != WHITE).any(-1).mean() > 0.95


def test_a_crop_shows_the_part_in_its_box() -> None:
    picture = np.zeros((100, 100), np.float32)
    picture[20:40, 50:90] = 1
    sheet = Sheet(1, 1)
    sheet.crop(0, 0, 1, (0.5, 0.2, 0.9, 0.4)).show(picture)
    pixels = figure_pixels(sheet, 100)
    assert (pixels[28:72, 3:97] > 250).all()  # the part, twice as wide as high
    assert (pixels[:22] < 250).all()  # paper above it


def test_png_holds_the_pixels_of_the_figure() -> None:
    sheet = Sheet(2, 1)
    sheet.bar(0, 0, 1, 1, "#000000")
    picture = Image.open(io.BytesIO(figure_bytes(sheet, dpi=50)))
    assert picture.size == (100, 50) and picture.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(picture), figure_pixels(sheet, 50))
    assert np.asarray(picture)[25, 20].tolist() == [0, 0, 0]
    assert np.asarray(picture)[25, 80].tolist() == [WHITE] * 3


def test_pixels_are_those_of_the_vectors() -> None:
    """Pillow and Matplotlib draw the same strokes at the same places."""
    sheet = Sheet(4, 3)
    sheet.write(0.2, 0.2, "Over the top\nand below", fontsize=14, fontweight="bold")
    sheet.write(3.8, 2.8, "in the corner", ha="right", va="bottom", color="#0072b2")
    sheet.bar(0.2, 2.4, 1.1, 0.25, "#d55e00")
    picture = np.kron(np.eye(4, dtype=np.float32), np.ones((8, 8), np.float32))
    tile = sheet.tile(2.2, 0.3, 1.5)
    tile.show(picture)
    tile.draw_box((0.1, 0.2, 0.6, 0.7), width=1.5)
    tile.tag("tag")
    mask = np.zeros((32, 32))
    mask[5:20, 8:30] = 1
    tile.draw_mask(mask)
    sheet.crop(0.5, 0.9, 1.2, (0.25, 0.25, 0.75, 0.5)).show(picture, pale=True)
    ours, theirs = (figure_pixels(each, 100).astype(int) for each in (sheet, sheet.figure))
    assert np.abs(ours - theirs).mean() < 4
    # Letters and smooth edges differ by a pixel at most: means over blocks of 10 do not.
    blocks = [each.reshape(30, 10, 40, 10, 3).mean((1, 3)) for each in (ours, theirs)]
    assert np.abs(blocks[0] - blocks[1]).max() < 60


def test_a_hatched_bar_is_told_apart_in_grey() -> None:
    sheet = Sheet(2, 1)
    sheet.bar(0.1, 0.1, 0.8, 0.8, "#000000")
    sheet.bar(1.1, 0.1, 0.8, 0.8, "#000000", hatched=True)
    sheet.bar(0.1, 0.95, 0.0, 0.04, "#ff0000")  # a bar of no length is not seen
    pixels = figure_pixels(sheet, 100)
    assert pixels[10:90, 10:90].max() == 0
    assert 0.1 < (pixels[10:90, 110:190, 0] == WHITE).mean() < 0.6
    assert not (pixels[..., 0] > pixels[..., 1]).any()


def test_what_is_cropped_to_is_roomy_and_inside_the_image() -> None:
    assert roomy((0.4, 0.4, 0.6, 0.6), 0.1, 0.05) == pytest.approx((0.35, 0.35, 0.65, 0.65))
    x0, y0, x1, y1 = roomy((0.99, 0.0, 1.0, 0.01), 0.2)
    assert (x0, y0, x1, y1) == pytest.approx((0.8, 0.0, 1.0, 0.2))
    assert roomy((0, 0, 1, 1)) == (0, 0, 1, 1)


def test_heat_leaves_the_image_where_the_map_is_constant() -> None:
    np.testing.assert_allclose(overlay(GREY, FLAT), np.repeat(GREY[..., None], 3, 2))
    assert unit_range(FLAT) is None and unit_range(BROKEN) is None


def test_default_heat_grows_brighter_as_it_grows_hotter() -> None:
    ramp = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    grey = overlay(np.zeros((8, 8), np.float32), ramp) @ np.array([0.299, 0.587, 0.114])
    assert (np.diff(grey.ravel()) >= -1e-6).all()


def test_unknown_colour_maps_and_suffixes_are_refused(tmp_path) -> None:
    with pytest.raises(UserError, match="inferno"):
        check_colour_map("rainbowish")
    with pytest.raises(UserError, match="png"):
        save_figure(Sheet(1, 1), tmp_path / "x.bmp")
