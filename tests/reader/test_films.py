"""Films: every level of the pyramid holds means of blocks, made when it is asked for."""

from __future__ import annotations

import numpy as np
import pytest

from protopyramid.reader.films import COARSEST, Pyramid


def blocks(image: np.ndarray, factor: int) -> np.ndarray:
    """Means of blocks, one by one; those at the edge are smaller."""
    height, width = image.shape[:2]
    rows = [
        [image[y : y + factor, x : x + factor].mean((0, 1)) for x in range(0, width, factor)]
        for y in range(0, height, factor)
    ]
    return np.array(rows)


@pytest.mark.parametrize("shape", [(1030, 700), (2049, 40), (1300, 601, 3), (512, 512), (3, 3)])
def test_levels_are_means_of_blocks(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).random(shape, np.float32)
    pyramid = Pyramid(image)
    assert max(pyramid[-1].shape[:2]) <= COARSEST
    if len(pyramid) > 1:
        assert max(pyramid[-2].shape[:2]) > COARSEST
    for level in range(len(pyramid)):
        assert np.allclose(pyramid[level], blocks(image, 2**level), atol=1e-5)


def test_only_the_levels_that_are_shown_are_made() -> None:
    pyramid = Pyramid(np.zeros((3000, 2000), np.float32))
    assert pyramid[-1].shape == (375, 250)
    assert sorted(pyramid._made) == [0, 3]
    assert pyramid.nbytes == pytest.approx(3000 * 2000 * 4 * (1 + 1 / 4 + 1 / 16 + 1 / 64))
