"""Augmentation: a function of the key alone, of image and mask together, masks 0/1."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.config.schema import AugmentationConfig
from protopyramid.data import augmentation
from protopyramid.data.augmentation import augment

OFF = {
    "flip": False,
    "quarter_turns": False,
    "rotation": 0,
    "zoom": (1, 1),
    "brightness": 0,
    "contrast": 0,
}


def only(**settings: object) -> AugmentationConfig:
    return AugmentationConfig.model_validate({**OFF, **settings})


def random_batch(rows: int, size: int = 24, channels: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    images = torch.rand(rows, channels, size, size, generator=generator)
    return images, (torch.rand(rows, size, size, generator=generator) > 0.5).to(torch.uint8)


def disc(size: int = 64) -> torch.Tensor:
    x = torch.arange(size) - size * 0.6
    y = torch.arange(size) - size * 0.4
    return ((x**2 + y[:, None] ** 2) < (size / 5) ** 2).to(torch.uint8)


def keys(rows: int, epoch: int = 0) -> list[tuple[int, int, int]]:
    return [(7, epoch, index) for index in range(rows)]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [24, 112])
def test_a_row_comes_out_bit_identical_in_any_batch(size: int, channels: int) -> None:
    images, masks = random_batch(13, size, channels)
    together = augment(images, masks, keys(13), AugmentationConfig())
    order = [5, 12, 0, 7]
    some = augment(images[order], masks[order], [keys(13)[i] for i in order], AugmentationConfig())
    for number, row in enumerate(order):
        alone = augment(
            images[row : row + 1], masks[row : row + 1], [keys(13)[row]], AugmentationConfig()
        )
        for whole, part, single in zip(together, some, alone, strict=True):
            assert torch.equal(whole[row], part[number])
            assert torch.equal(whole[row], single[0])


def test_the_number_of_threads_changes_nothing() -> None:
    images, masks = random_batch(5, 112)
    threads = torch.get_num_threads()
    outcomes = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            outcomes.append(augment(images, masks, keys(5), AugmentationConfig())[0])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*outcomes)


def test_a_shift_moves_image_and_mask_by_the_same_whole_pixels() -> None:
    images, masks = random_batch(64, 20)
    shifted, shifted_masks = augment(images, masks, keys(64), only(shift=0.15))
    found = set()
    for row in range(64):
        matches = [
            (x, y)
            for x in range(-3, 4)
            for y in range(-3, 4)
            if torch.equal(
                shifted[row, 0, 3:-3, 3:-3], images[row, 0, 3 + y : 17 + y, 3 + x : 17 + x]
            )
        ]
        ((x, y),) = matches
        found.add((x, y))
        rows, columns = (mirrored_places(20, offset) for offset in (y, x))
        assert torch.equal(shifted[row, 0], images[row, 0][rows][:, columns])
        assert torch.equal(shifted_masks[row], masks[row][rows][:, columns])
    assert {x for x, _ in found} == {y for _, y in found} == set(range(-3, 4))


def mirrored_places(size: int, offset: int) -> list[int]:
    """Where the pixels of a shifted line come from; the edge pixel itself is not repeated."""
    places = []
    for place in range(size):
        source = abs(place + offset)
        places.append(source if source < size else 2 * size - 2 - source)
    return places


def test_seed_epoch_and_index_each_change_the_draw() -> None:
    image, mask = random_batch(1)
    batch = image.repeat(4, 1, 1, 1), mask.repeat(4, 1, 1)
    images, _ = augment(*batch, [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], AugmentationConfig())
    for one, other in itertools.combinations(images, 2):
        assert not torch.equal(one, other)


def test_with_everything_off_nothing_changes_and_nothing_is_overwritten() -> None:
    images, masks = random_batch(6)
    before = images.clone(), masks.clone()
    out = augment(images, masks, keys(6), only())
    assert torch.equal(out[0], before[0]) and torch.equal(out[1], before[1])
    augment(images, masks, keys(6), AugmentationConfig())
    assert torch.equal(images, before[0]) and torch.equal(masks, before[1])


def symmetries(image: torch.Tensor) -> list[torch.Tensor]:
    turned = [torch.rot90(image, turn, (-2, -1)) for turn in range(4)]
    return turned + [view.flip(-1) for view in turned]


@pytest.mark.parametrize(
    ("settings", "count"),
    [({"flip": True}, 4), ({"quarter_turns": True}, 4), ({"flip": True, "quarter_turns": True}, 8)],
)
def test_flips_and_quarter_turns_move_pixels_exactly_and_all_are_drawn(
    settings: dict[str, bool], count: int
) -> None:
    image, mask = random_batch(1)
    rows = 240
    images, masks = augment(
        image.repeat(rows, 1, 1, 1), mask.repeat(rows, 1, 1), keys(rows), only(**settings)
    )
    drawn = np.zeros(8, int)
    for row in range(rows):
        (which,) = [n for n, s in enumerate(symmetries(image[0])) if torch.equal(images[row], s)]
        assert torch.equal(masks[row], symmetries(mask[0])[which])
        drawn[which] += 1
    assert (drawn > 0).sum() == count
    assert drawn[drawn > 0].min() > rows / count / 2


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0, 180),
    st.tuples(st.floats(0.3, 1), st.floats(1, 3)),
    st.floats(0, 2),
    st.floats(0, 0.99),
    st.integers(0, 2**31 - 1),
)
def test_masks_stay_binary_and_images_in_range(
    rotation: float, zoom: tuple[float, float], brightness: float, contrast: float, seed: int
) -> None:
    chosen = AugmentationConfig(
        rotation=rotation, zoom=zoom, brightness=brightness, contrast=contrast
    )
    images, masks = random_batch(3)
    out, moved = augment(images, masks, [(seed, 0, index) for index in range(3)], chosen)
    assert out.shape == images.shape and moved.shape == masks.shape
    assert moved.dtype == torch.uint8
    assert set(moved.unique().tolist()) <= {0, 1}
    assert out.isfinite().all() and out.min() >= 0 and out.max() <= 1


def test_the_mask_follows_the_image_through_every_move() -> None:
    mask = disc().repeat(40, 1, 1)
    chosen = only(flip=True, quarter_turns=True, rotation=40, zoom=(0.6, 1.5))
    images, masks = augment(mask.float()[:, None], mask, keys(40), chosen)
    assert torch.equal((images[:, 0] >= 0.5).to(torch.uint8), masks)


def test_zoom_magnifies_and_draws_both_ways() -> None:
    mask = disc().repeat(200, 1, 1)
    _, larger = augment(mask.float()[:, None], mask, keys(200), only(zoom=(1.2, 1.2)))
    assert larger[0].sum() / mask[0].sum() == pytest.approx(1.44, rel=0.03)
    _, either = augment(mask.float()[:, None], mask, keys(200), only(zoom=(0.8, 1.25)))
    ratio = either.sum((1, 2)) / mask[0].sum()
    assert 0.6 < ratio.min() < 0.75 and 1.4 < ratio.max() < 1.6
    assert (ratio > 1).float().mean() == pytest.approx(0.5, abs=0.1)


def test_rotation_turns_about_the_centre_by_at_most_its_limit() -> None:
    size = 65
    mask = disc(size).repeat(200, 1, 1)
    _, turned = augment(mask.float()[:, None], mask, keys(200), only(rotation=20))

    def angles(masks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        place = torch.arange(size) - (size - 1) / 2
        area = masks.sum((1, 2))
        x, y = (masks.sum(1) * place).sum(1) / area, (masks.sum(2) * place).sum(1) / area
        return torch.rad2deg(torch.atan2(y, x)), torch.hypot(x, y)

    (angle, radius), (angle_before, radius_before) = angles(turned), angles(mask[:1])
    torch.testing.assert_close(radius, radius_before.expand(200), atol=0.3, rtol=0)
    change = angle - angle_before
    assert change.abs().max() < 21
    assert change.min() < -17 and change.max() > 17


def test_the_edges_are_reflected_not_black() -> None:
    images = torch.full((20, 1, 32, 32), 0.5)
    masks = torch.ones(20, 32, 32, dtype=torch.uint8)
    out, moved = augment(images, masks, keys(20), only(rotation=45, zoom=(0.5, 0.5)))
    torch.testing.assert_close(out, images)
    assert moved.all()


def test_brightness_adds_and_contrast_scales_about_the_mean() -> None:
    images = torch.rand(100, 1, 16, 16) * 0.2 + 0.4
    masks = torch.zeros(100, 16, 16, dtype=torch.uint8)
    brighter, _ = augment(images, masks, keys(100), only(brightness=0.1))
    added = brighter - images
    assert (added.amax((1, 2, 3)) - added.amin((1, 2, 3))).max() < 1e-6
    assert -0.1 <= added.min() < -0.08 and 0.08 < added.max() <= 0.1
    sharper, _ = augment(images, masks, keys(100), only(contrast=0.5))
    torch.testing.assert_close(sharper.mean((1, 2, 3)), images.mean((1, 2, 3)))
    ratio = sharper.std((1, 2, 3)) / images.std((1, 2, 3))
    assert 0.5 <= ratio.min() < 0.55 and 1.45 < ratio.max() <= 1.5


def test_turning_one_setting_off_leaves_the_draws_of_the_others() -> None:
    images, masks = random_batch(10)
    both = augment(images, masks, keys(10), only(flip=True, quarter_turns=True, brightness=0.3))
    one = augment(images, masks, keys(10), only(flip=True, quarter_turns=True))
    assert torch.equal(both[1], one[1])


def test_wrong_shapes_are_told() -> None:
    images, masks = random_batch(3)
    with pytest.raises(ValueError, match="2 keys"):
        augment(images, masks, keys(2), AugmentationConfig())
    with pytest.raises(ValueError, match="masks"):
        augment(images, masks[:, :-1], keys(3), AugmentationConfig())
    empty, none = augment(images[:0], masks[:0], [], AugmentationConfig())
    assert len(empty) == len(none) == 0


def test_the_warp_agrees_with_a_naive_bilinear_one() -> None:
    size = 11
    wanted = AugmentationConfig(rotation=40, zoom=(0.6, 1.7))
    draws = np.random.default_rng(3).random((4, augmentation.DRAWS))
    planes = torch.rand(4, 2, size, size, generator=torch.Generator().manual_seed(0))
    warped = augmentation._warp(planes, draws, wanted)
    for row in range(4):
        angle = math.radians((2 * draws[row, augmentation.ROTATION] - 1) * 40)
        zoom = 0.6 * (1.7 / 0.6) ** draws[row, augmentation.ZOOM]
        for y in range(size):
            for x in range(size):
                # Back from the output, about the centre; the y axis points down.
                right, down = (x - 5) / zoom, (y - 5) / zoom
                u = 5 + math.cos(angle) * right - math.sin(angle) * down
                v = 5 + math.sin(angle) * right + math.cos(angle) * down
                expected = naive_bilinear(planes[row].numpy(), reflected(v, 10), reflected(u, 10))
                np.testing.assert_allclose(warped[row, :, y, x], expected, atol=1e-4)


def reflected(place: float, last: int) -> float:
    """A coordinate mirrored at 0 and at the last pixel until it is between them."""
    while not 0 <= place <= last:
        place = -place if place < 0 else 2 * last - place
    return place


def naive_bilinear(image: np.ndarray, y: float, x: float) -> np.ndarray:
    top, left = min(int(y), image.shape[1] - 2), min(int(x), image.shape[2] - 2)
    down, right = y - top, x - left
    upper = (1 - right) * image[:, top, left] + right * image[:, top, left + 1]
    lower = (1 - right) * image[:, top + 1, left] + right * image[:, top + 1, left + 1]
    return (1 - down) * upper + down * lower
