"""Lesions in other surroundings."""

import numpy as np
import pytest

from protopyramid.data.transplant import EDGE, transplanted

SIZE = 32


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((1, SIZE, SIZE), dtype=np.float32) * 0.5 + 0.2


def square() -> np.ndarray:
    mask = np.zeros((SIZE, SIZE), np.uint8)
    mask[12:20, 12:20] = 1
    return mask


def distance_to_square(y: int, x: int) -> float:
    return float(np.hypot(max(12 - y, 0, y - 19), max(12 - x, 0, x - 19)))


def naive(image: np.ndarray, background: np.ndarray, margin: float) -> np.ndarray:
    """Pixel by pixel, by the definition."""
    kept = np.array(
        [
            [
                np.clip(0.5 + (margin * SIZE - distance_to_square(y, x)) / EDGE, 0, 1)
                for x in range(SIZE)
            ]
            for y in range(SIZE)
        ]
    )
    kept[square() > 0] = 1
    away = kept < 0.5
    ours, theirs = image[0][away], background[0][away]
    matched = (background[0] - theirs.mean()) * (ours.std() / theirs.std()) + ours.mean()
    return np.clip(kept * image[0] + (1 - kept) * matched, 0, 1)


@pytest.mark.parametrize("margin", [0.0, 0.05, 0.2])
def test_inside_stays_and_outside_is_the_matched_background(margin):
    image, background = drawn(0), drawn(1)
    found = transplanted(image, square(), background, margin)
    assert np.array_equal(found[0][square() > 0], image[0][square() > 0])
    assert np.allclose(found[0], naive(image, background, margin), atol=1e-6)


def test_surroundings_keep_their_mean_and_spread():
    image, background = drawn(0), drawn(1) * 0.2
    found = transplanted(image, square(), background, 0.0)
    far = np.array([[distance_to_square(y, x) > EDGE for x in range(SIZE)] for y in range(SIZE)])
    assert found[0][far].mean() == pytest.approx(image[0][far].mean(), abs=0.01)
    assert found[0][far].std() == pytest.approx(image[0][far].std(), abs=0.02)


def test_a_constant_background_is_taken_as_it_is_up_to_its_mean():
    found = transplanted(drawn(0), square(), np.full((1, SIZE, SIZE), 0.9, np.float32), 0.0)
    assert np.ptp(found[0, 0]) == 0


def test_a_lesion_that_fills_the_image_has_no_surroundings():
    image = drawn(0)
    assert transplanted(image, np.ones((SIZE, SIZE), np.uint8), drawn(1)) is image


def test_an_image_without_annotation_is_refused():
    with pytest.raises(ValueError, match="expected an annotated image"):
        transplanted(drawn(0), np.zeros((SIZE, SIZE), np.uint8), drawn(1))
