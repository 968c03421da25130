"""File pixels, regions and the model's input: where things are, there and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.data.geometry import (
    Box,
    Mapping,
    NoCrop,
    Region,
    Spacing,
    clip_box,
    clipped,
    cut,
    ellipse_mask,
    extent,
    fit_transform,
    paste,
    square_around,
    squared,
)
from protopyramid.model import tta

edges = st.tuples(*[st.floats(0, 60)] * 4).filter(lambda b: b[0] < b[2] and b[1] < b[3])
regions = st.builds(
    lambda x, y, w, h: Region(x, y, x + w, y + h),
    st.integers(-50, 80),
    st.integers(-50, 80),
    st.integers(1, 99),
    st.integers(1, 99),
)
mappings = st.builds(
    Mapping,
    regions,
    st.integers(1, 64),
    st.sampled_from(["stretch", "pad"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


# --- regions --------------------------------------------------------------------------------------


def test_a_square_has_the_margin_on_each_side_of_the_longer_side() -> None:
    assert square_around((40, 50, 60, 60), 0.5, 200, 200) == Region.square(30, 35, 40)
    assert square_around((40, 50, 60, 60), 0.0, 200, 200) == Region.square(40, 45, 20)


def test_a_square_is_shifted_to_stay_inside_and_holds_all_of_a_smaller_image() -> None:
    assert square_around((0, 0, 20, 20), 0.5, 200, 100) == Region.square(0, 0, 40)
    assert square_around((80, 180, 100, 200), 0.5, 200, 100) == Region.square(60, 160, 40)
    wide = square_around((10, 90, 90, 110), 0.5, 200, 100)
    assert wide.width == wide.height == 160
    assert wide.x0 <= 0 and wide.x1 >= 100
    assert wide.y0 >= 0 and wide.y1 <= 200


@given(edges, st.floats(0, 2), st.integers(60, 90), st.integers(60, 90))
def test_a_square_always_holds_its_box(box: Box, margin: float, height: int, width: int) -> None:
    square = square_around(box, margin, height, width)
    assert square.x0 <= box[0] and box[2] <= square.x1
    assert square.y0 <= box[1] and box[3] <= square.y1
    if square.width <= min(height, width):
        assert square.within(height, width)


@given(edges)
def test_a_marked_region_is_made_square_around_its_centre(box: Box) -> None:
    found = squared(box)
    longer = max(math.ceil(box[2]) - math.floor(box[0]), math.ceil(box[3]) - math.floor(box[1]))
    assert found.width == found.height == longer
    assert found.x0 <= box[0] and box[2] <= found.x1 and found.y0 <= box[1] and box[3] <= found.y1
    assert abs((found.x0 + found.x1) - (box[0] + box[2])) <= 3
    assert abs((found.y0 + found.y1) - (box[1] + box[3])) <= 3


def test_a_square_of_whole_pixels_stays_as_it_is_marked_also_beyond_the_film() -> None:
    assert squared((-7, 12, 33, 52)) == Region(-7, 12, 33, 52)


@given(st.integers(-8, 12), st.integers(-8, 12), st.integers(1, 15))
def test_a_cut_is_the_image_inside_and_zero_outside(left: int, top: int, side: int) -> None:
    image = np.arange(1, 71).reshape(10, 7)
    found = cut(image, Region.square(left, top, side))
    coloured = cut(np.stack([image, image + 1], 2), Region.square(left, top, side))
    for y in range(side):
        for x in range(side):
            inside = 0 <= y + top < 10 and 0 <= x + left < 7
            assert found[y, x] == (image[y + top, x + left] if inside else 0)
    np.testing.assert_array_equal(coloured[..., 0], found)


@given(regions)
def test_what_was_cut_is_pasted_back_where_it_was(region: Region) -> None:
    image = np.arange(1, 61 * 47 + 1).reshape(61, 47)
    there = paste(cut(image, region), region, 61, 47)
    inside = np.zeros((61, 47), bool)
    inside[max(region.y0, 0) : max(region.y1, 0), max(region.x0, 0) : max(region.x1, 0)] = True
    np.testing.assert_array_equal(there, np.where(inside, image, 0))
    assert region.overlaps(61, 47) == inside.any()


# --- boxes and masks ------------------------------------------------------------------------------


def test_an_ellipse_fills_pi_quarters_of_its_box_and_stays_in_it() -> None:
    mask = ellipse_mask((10, 20, 90, 60), 100, 120)
    assert mask.shape == (100, 120)
    assert mask.sum() == pytest.approx(np.pi * 40 * 20, rel=0.01)
    assert extent(mask) == (10, 20, 90, 60)


def test_a_tiny_box_still_has_a_pixel() -> None:
    mask = ellipse_mask((3.1, 5.1, 3.2, 5.2), 8, 8)
    assert np.argwhere(mask).tolist() == [[5, 3]]


def test_boxes_are_cut_at_the_image() -> None:
    assert clip_box((-5, 2, 30, 9), 8, 20) == clipped((-5, 2, 30, 9), 8, 20) == (0, 2, 20, 8)
    assert clip_box((20, 2, 30, 9), 8, 20) is None
    with pytest.raises(NoCrop, match="outside the image"):
        clipped((20, 2, 30, 9), 8, 20)
    for wrong in ((3, 2, 3, 9), (3, 9, 5, 2), (math.nan, 0, 1, 1), (0, 0, math.inf, 1)):
        with pytest.raises(NoCrop, match="empty or inverted"):
            clipped(wrong, 8, 20)


def test_spacing_takes_millimetres_to_pixels_and_back() -> None:
    spacing = Spacing(x=0.1, y=0.05)
    assert spacing.to_pixels((1, 1, 2, 3)) == pytest.approx((10, 20, 20, 60))
    assert spacing.to_millimetres((10, 20, 20, 60)) == pytest.approx((1, 1, 2, 3))


# --- the mapping ----------------------------------------------------------------------------------


@given(st.integers(1, 500), st.integers(1, 500), st.sampled_from(["stretch", "pad"]))
def test_the_geometry_maps_the_image_into_the_input(height: int, width: int, fit: str) -> None:
    scale_x, scale_y, offset_x, offset_y = fit_transform(height, width, 64, fit)
    right, bottom = width * scale_x + offset_x, height * scale_y + offset_y
    assert 0 <= offset_x < right <= 64 + 1e-9
    assert 0 <= offset_y < bottom <= 64 + 1e-9
    assert max(right - offset_x, bottom - offset_y) == pytest.approx(64)
    assert abs((64 - right) - offset_x) <= 1 + 1e-9
    assert abs((64 - bottom) - offset_y) <= 1 + 1e-9


@given(mappings, st.floats(-200, 200), st.floats(-200, 200))
def test_points_come_back_to_where_they_were(mapping: Mapping, x: float, y: float) -> None:
    assert mapping.point_to_file(mapping.point_to_input((x, y))) == pytest.approx((x, y), abs=1e-9)
    assert mapping.point_to_input(mapping.point_to_file((x, y))) == pytest.approx((x, y), abs=1e-9)


@given(mappings, edges)
def test_boxes_come_back_to_where_they_were(mapping: Mapping, box: Box) -> None:
    assert mapping.box_to_file(mapping.box_to_input(box)) == pytest.approx(box, abs=1e-9)
    there = mapping.box_to_input(box)
    assert there[0] <= there[2] and there[1] <= there[3]


@given(mappings, edges)
def test_fractions_are_of_what_the_model_sees(mapping: Mapping, box: Box) -> None:
    assert mapping.fractions_to_file((0, 0, 1, 1)) == pytest.approx(mapping.seen)
    x0, y0, x1, y1 = (edge / 64 for edge in box)
    upright = Mapping(mapping.region, mapping.size, mapping.fit)
    left, top, right, bottom = upright.seen
    expected = (
        left + x0 * (right - left),
        top + y0 * (bottom - top),
        left + x1 * (right - left),
        top + y1 * (bottom - top),
    )
    assert upright.fractions_to_file((x0, y0, x1, y1)) == pytest.approx(expected, abs=1e-9)


@given(regions, st.integers(1, 64))
def test_the_model_sees_the_region_itself_when_it_is_stretched(region: Region, size: int) -> None:
    assert Mapping(region, size).seen == pytest.approx(region.box, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(mappings, st.integers(1, 4), st.randoms(use_true_random=False))
def test_masks_come_back_pixel_by_pixel(mapping: Mapping, factor: int, random) -> None:  # type: ignore[no-untyped-def]
    """At the region's own size and at whole multiples of it nothing is lost, crops beyond the film
    and any orientation included."""
    side = mapping.region.width % 23 + 1
    region = Region.square(mapping.region.x0 % 40 - 20, mapping.region.y0 % 40 - 20, side)
    mapping = Mapping(
        region,
        side * factor,
        mapping.fit,
        mapping.mirrored,
        mapping.flip_x,
        mapping.flip_y,
        mapping.transposed,
    )
    film = np.random.default_rng(random.randrange(2**32)).random((19, 16)) > 0.5
    back = mapping.mask_to_file(mapping.mask_to_input(film).numpy(), 19, 16)
    np.testing.assert_array_equal(back, paste(cut(film, region), region, 19, 16))


@settings(max_examples=60, deadline=None)
@given(mappings)
def test_a_bright_pixel_is_where_its_centre_is_mapped_to(mapping: Mapping) -> None:
    """At the region's own size, by pixels as well as by coordinates."""
    region = Region.square(mapping.region.x0, mapping.region.y0, max(mapping.size, 2))
    orientation = (mapping.mirrored, mapping.flip_x, mapping.flip_y, mapping.transposed)
    mapping = Mapping(region, region.width, mapping.fit, *orientation)
    film = np.zeros((90, 95), np.float32)
    row, column = (min(max(at, 0), 89) for at in (region.y0 + 1, region.x0))
    film[row, column] = 1
    planes = mapping.image_to_input(film)[0]
    x, y = mapping.point_to_input((column + 0.5, row + 0.5))
    if 0 <= x < region.width and 0 <= y < region.width:
        assert planes.sum() == 1
        assert planes[int(y), int(x)] == 1
    else:
        assert planes.sum() == 0


@pytest.mark.parametrize("number", range(8))
def test_orientations_are_those_of_test_time_augmentation(number: int) -> None:
    image = np.random.default_rng(0).random((9, 9)).astype(np.float32)
    upright = Mapping(Region(-2, 1, 6, 9), 8)
    copies = [transform for transform, _ in tta.tta_transforms(8)]
    expected = copies[number](upright.image_to_input(image))
    assert torch.equal(upright.augmented(number).image_to_input(image), expected)


def test_there_are_eight_orientations() -> None:
    with pytest.raises(ValueError, match="from 0 to 7, got 8"):
        Mapping(Region(0, 0, 4, 4), 4).augmented(8)


def test_a_mirrored_film_is_cut_where_the_file_says() -> None:
    """data.dicom.flip mirrors the picture; regions stay pixels of the file."""
    film = np.random.default_rng(0).random((20, 30)).astype(np.float32)
    region = Region(18, 4, 26, 12)
    seen = Mapping(region, 8, mirrored=True).image_to_input(film)[0].numpy()
    np.testing.assert_array_equal(seen, film[4:12, 18:26][:, ::-1])


@given(st.integers(2, 40), st.integers(2, 40), st.integers(4, 33), st.booleans())
def test_a_ramp_is_resized_as_the_coordinates_say(
    height: int, width: int, size: int, mirrored: bool
) -> None:
    """The value of a linear image at a pixel is its coordinate: resizing must keep the two together."""
    mapping = Mapping(Region.whole(height, width), size, "pad", mirrored)
    film = np.broadcast_to(np.arange(width, dtype=np.float32) + 0.5, (height, width)).copy()
    planes = mapping.image_to_input(film)[0].numpy()
    x0, y0, x1, y1 = mapping.box_to_input((0, 0, width, height))
    row = planes[int((y0 + y1) / 2)]
    step = max(1.0, width / max(x1 - x0, 1))  # an antialiased edge is flatter by as much
    for column in range(math.ceil(x0 + 1), math.floor(x1 - 1)):
        x, _ = mapping.point_to_file((column + 0.5, 0))
        if step < x < width - step:
            assert row[column] == pytest.approx(x, abs=0.02 * width)
