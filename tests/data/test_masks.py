"""Masks are read as 0/1, and one rule says which sizes fit an image."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from protopyramid.data.images import ellipse_mask
from protopyramid.data.masks import MaskSizeError, margin_band, read_mask, resized_mask
from protopyramid.errors import UserError


def save(path: Path, values: NDArray[np.generic]) -> Path:
    Image.fromarray(values.astype(np.uint8)).save(path)
    return path


@pytest.mark.parametrize("value", [1, 128, 255])
def test_every_value_but_zero_is_inside_a_mask(tmp_path: Path, value: int) -> None:
    inside = np.eye(6, 8, dtype=bool)
    path = save(tmp_path / "mask.png", inside * value)
    np.testing.assert_array_equal(read_mask(path, (6, 8)), inside)


def test_traces_of_compression_are_not_inside_a_jpeg_mask(tmp_path: Path) -> None:
    inside = ellipse_mask((8, 8, 40, 50), 64, 64)
    path = tmp_path / "mask.jpg"
    Image.fromarray(inside.astype(np.uint8) * 255).save(path, quality=80)
    assert (read_mask(path, (64, 64)) != inside).mean() < 0.005


def test_a_mask_of_the_same_aspect_ratio_is_resized_with_a_warning(tmp_path: Path) -> None:
    inside = np.random.default_rng(0).random((5, 7)) > 0.5
    path = save(tmp_path / "mask.png", inside * 255)
    words = r"mask \(7 x 5 pixels\) was resized to the size of its image \(21 x 15 pixels\)"
    with pytest.warns(UserWarning, match=words):
        resized = read_mask(path, (15, 21))
    np.testing.assert_array_equal(resized, np.kron(inside, np.ones((3, 3))).astype(bool))


def test_a_mask_of_the_same_size_is_read_without_a_warning(tmp_path: Path) -> None:
    path = save(tmp_path / "mask.png", np.eye(5) * 255)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_mask(path, (5, 5))


def test_a_mask_of_another_aspect_ratio_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "mask.png", np.zeros((50, 70)))
    with pytest.raises(UserError, match=r"mask\.png: .* 70 x 50 pixels and 100 x 100 pixels; draw"):
        read_mask(path, (100, 100))


# Drawn examples of the rule: mask (rows, columns), image (rows, columns), and whether they fit.
@pytest.mark.parametrize(
    ("mask", "image", "fits"),
    [
        ((100, 80), (100, 80), True),
        ((50, 40), (100, 80), True),
        ((200, 160), (100, 80), True),
        ((50, 40), (101, 81), True),  # the image's odd row and column were rounded away
        ((51, 41), (101, 81), True),  # or rounded up
        ((101, 81), (100, 80), True),  # a pixel of the image more
        ((100, 80), (100, 84), False),  # five per cent wider: cut or stretched, who knows
        ((4000, 3001), (4000, 3000), True),
        ((4000, 3000), (4000, 3002), False),
        ((102, 80), (100, 80), False),
        ((100, 80), (80, 100), False),  # turned
    ],
)
def test_masks_fit_up_to_one_pixel_of_the_coarser(
    mask: tuple[int, int], image: tuple[int, int], fits: bool
) -> None:
    drawn = ellipse_mask((mask[1] * 0.2, mask[0] * 0.3, mask[1] * 0.7, mask[0] * 0.6), *mask)
    if not fits:
        with pytest.raises(MaskSizeError, match="another aspect ratio"):
            resized_mask(drawn, image)
        return
    found = resized_mask(drawn, image)
    height, width = image
    expected = ellipse_mask((width * 0.2, height * 0.3, width * 0.7, height * 0.6), height, width)
    assert found.shape == image and found.dtype == np.bool_
    assert (found != expected).mean() < 0.02  # its rim alone


@given(st.integers(9, 60), st.integers(9, 60), st.integers(2, 9))
def test_a_mask_of_a_downscaled_image_always_fits(height: int, width: int, factor: int) -> None:
    small = (max(1, round(height / factor)), max(1, round(width / factor)))
    mask = np.random.default_rng(0).random(small) > 0.5
    found = resized_mask(mask, (height, width))
    for y in range(height):
        for x in range(width):
            row = int((y + 0.5) / height * small[0])
            column = int((x + 0.5) / width * small[1])
            assert found[y, x] == mask[row, column]


# --- the band of the margin -----------------------------------------------------------------------


def naive_band(mask: NDArray[np.bool_], inner: float, outer: float) -> NDArray[np.bool_]:
    """Each pixel's distance to the nearest pixel on the other side, less half, one pixel at a time."""
    diameter = 2 * float(np.sqrt(mask.sum() / np.pi))
    places = [tuple(place) for place in np.argwhere(np.ones_like(mask))]
    band = np.zeros_like(mask)
    for place in places:
        others = [other for other in places if mask[other] != mask[place]]
        if others:
            distance = min(float(np.hypot(place[0] - y, place[1] - x)) for y, x in others) - 0.5
            share = inner if mask[place] else outer
            band[place] = share > 0 and distance <= max(share * diameter, 0.5)
    return band


@pytest.mark.parametrize("widths", [(0.1, 0.2), (0.3, 0.05), (0.0, 0.2), (0.2, 0.0), (1.0, 1.0)])
@pytest.mark.parametrize("shape", ["disc", "star", "corner", "two", "dot"])
def test_the_band_is_that_of_a_naive_computation(shape: str, widths: tuple[float, float]) -> None:
    y, x = np.mgrid[:22, :26] + 0.5
    angle, radius = np.arctan2(y - 11, x - 12), np.hypot(y - 11, x - 12)
    mask = {
        "disc": radius <= 7,
        "star": radius <= 6 + 3 * np.cos(5 * angle),
        "corner": (y < 8) & (x < 9),
        "two": (radius <= 4) | ((y > 18) & (x > 21)),
        "dot": (y == 4.5) & (x == 5.5),
    }[shape]
    assert (margin_band(mask, *widths) == naive_band(mask, *widths)).all()


def test_the_band_of_a_disc_lies_around_its_circle() -> None:
    """Polarity: the centre and the far background are outside the band, the circle is inside it."""
    y, x = np.mgrid[:200, :200] + 0.5
    radius = np.hypot(y - 100, x - 100)
    band = margin_band(radius <= 50, inner=0.1, outer=0.2)
    assert not band[100, 100] and not band[0, 0]
    assert band[radius < 60].sum() == band[(radius > 38) & (radius < 60)].sum()
    assert band[(radius > 41) & (radius < 69)].all()
    assert not band[(radius < 39) | (radius > 71)].any()


def test_an_empty_mask_has_no_band_and_the_images_border_is_no_outline() -> None:
    empty = np.zeros((9, 9), np.bool_)
    assert not margin_band(empty, 0.1, 0.1).any()
    assert not margin_band(~empty, 0.1, 0.1).any()
    half = empty.copy()
    half[:, :5] = True
    assert np.flatnonzero(margin_band(half, 0.1, 0.1).any(0)).tolist() == [4, 5]


@pytest.mark.parametrize("name", ["tompei-margins", "cesm-margins"])
def test_bands_of_real_lesions_agree_with_those_that_come_with_them(name: str) -> None:
    folder = Path(__file__).resolve().parents[3] / "shared/data" / name
    if not (folder / "manifest.csv").is_file():
        pytest.skip(f"no {name} beside the project")
    with (folder / "manifest.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["mask"] and row["band"]][::7]
    overlaps, covered = [], []
    for row in rows:
        with Image.open(folder / row["mask"]) as mask, Image.open(folder / row["band"]) as band:
            lesion, given = (np.asarray(each.convert("L")) > 127 for each in (mask, band))
        found = margin_band(lesion, 0.07, 0.07)
        overlaps.append((found & given).sum() / (found | given).sum())
        covered.append((found & given).sum() / given.sum())
    # Those bands are grown by steps along rows and columns: they are narrower across diagonals.
    assert np.median(overlaps) > 0.8 and min(overlaps) > 0.65
    assert np.median(covered) > 0.98 and min(covered) > 0.9
