"""Sampling of square tissue patches on a full mammogram, away from every lesion.

A patch is placed uniformly at random among all valid places: inside the film, with enough tissue, clear
of the lesions and of most of the earlier patches. Sums over patches come from integral images, so that
all places are tried at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.manifest import Box
from protopyramid.data.negatives.tissue import tissue_mask

Mask = NDArray[np.bool_]
Sums = NDArray[np.int32]
Patch = tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels of the film

STEPS = 16  # places are tried in steps of this part of the side, then one by one


@dataclass(frozen=True)
class Limits:
    """What makes a place valid.

    tissue: minimum share of tissue in the patch. gap: margin by which lesions are grown on each side, as
    a share of their longer side. overlap: maximum overlap of two patches, as a share of the smaller one.
    """

    tissue: float = 0.9
    gap: float = 0.25
    overlap: float = 0.25


@dataclass(frozen=True)
class UnplacedPatch:
    """A patch for which there is no place: its position among the requested sides, and why."""

    number: int
    side: int
    reason: str


class PatchSample(list[Patch]):
    """Patches in the order in which they were requested.

    `numbers` are their positions among the requested sides; `unplaced` are the others.
    """

    def __init__(self, patches: dict[int, Patch], unplaced: Sequence[UnplacedPatch] = ()) -> None:
        super().__init__(patches.values())
        self.numbers = list(patches)
        self.unplaced = list(unplaced)


def sample_patches(
    image: NDArray[np.floating | np.integer],
    sides: Sequence[int],
    count: int,
    avoid: Sequence[Box | Mask],
    rng: np.random.Generator,
    limits: Limits | None = None,
    taken: Sequence[Patch] = (),
) -> PatchSample:
    """Up to `count` patches of tissue on a film (H, W) or (H, W, 3); the sides are used in turn.

    avoid: lesion boxes in pixels of the film, and masks (H, W) of lesions. taken: patches that the film
    has already given. Where there is no room, there are fewer, and `unplaced` says why.

    >>> film = np.zeros((100, 100))
    >>> film[5:95, 5:95] = 1
    >>> sample = sample_patches(film, [20, 105], 2, [(0, 0, 40, 100)], np.random.default_rng(0))
    >>> sample[0][0] >= 50, sample.unplaced[0].reason
    (True, 'the film is smaller than the patch')
    """
    limits = limits or Limits()
    tissue = tissue_mask(image)
    film = _FilmSums(integral(tissue), integral(lesion_zone(tissue.shape, avoid, limits.gap)))
    wanted = [sides[number % len(sides)] for number in range(count)]
    patches: dict[int, Patch] = {}
    unplaced: dict[int, UnplacedPatch] = {}
    failed: dict[int, str] = {}
    # Large ones first, while there is room for them: small ones would crowd them out.
    for number in sorted(range(count), key=lambda number: -wanted[number]):
        side = wanted[number]
        place = failed.get(side) or film.place(side, [*taken, *patches.values()], rng, limits)
        if isinstance(place, str):
            failed[side] = place
            unplaced[number] = UnplacedPatch(number, side, place)
        else:
            patches[number] = place
    in_order = [unplaced[number] for number in sorted(unplaced)]
    return PatchSample(dict(sorted(patches.items())), in_order)


def integral(mask: Mask) -> Sums:
    """Sums (H + 1, W + 1) over all rectangles from the upper left corner."""
    sums = np.zeros((mask.shape[0] + 1, mask.shape[1] + 1), np.int32)
    np.cumsum(mask, 0, np.int32, out=sums[1:, 1:])
    np.cumsum(sums[1:, 1:], 1, out=sums[1:, 1:])
    return sums


def lesion_zone(shape: tuple[int, ...], avoid: Sequence[Box | Mask], gap: float) -> Mask:
    """The lesions (H, W), each grown on all sides by `gap` times its longer side."""
    zone = np.zeros(shape, bool)
    for lesion in avoid:
        if isinstance(lesion, tuple):
            _draw(zone, lesion, gap)
        elif lesion.any():
            zone |= _grown(lesion, gap)
    return zone


def _draw(zone: Mask, box: Box, gap: float) -> None:
    x0, y0, x1, y1 = box
    grown = gap * max(x1 - x0, y1 - y0)
    rows = slice(max(0, math.floor(y0 - grown)), max(0, math.ceil(y1 + grown)))
    zone[rows, max(0, math.floor(x0 - grown)) : max(0, math.ceil(x1 + grown))] = True


def _grown(lesion: Mask, gap: float) -> Mask:
    """Pixels with a pixel of the lesion within reach, in a square around them."""
    rows, columns = np.flatnonzero(lesion.any(1)), np.flatnonzero(lesion.any(0))
    reach = math.ceil(gap * (1 + max(np.ptp(rows), np.ptp(columns))))
    sums = integral(lesion)
    height, width = lesion.shape
    y, x = np.arange(height), np.arange(width)
    low, high = np.maximum(y - reach, 0), np.minimum(y + reach + 1, height)
    left, right = np.maximum(x - reach, 0), np.minimum(x + reach + 1, width)
    near: Mask = _between(sums, low, high, left, right) > 0
    return near


def _between(
    sums: Sums,
    y0: NDArray[np.integer],
    y1: NDArray[np.integer],
    x0: NDArray[np.integer],
    x1: NDArray[np.integer],
) -> Sums:
    """Sums over the rectangles of every pair of rows [y0, y1) and columns [x0, x1)."""
    upper, lower = sums[y0], sums[y1]
    within: Sums = lower[:, x1] - lower[:, x0] - upper[:, x1] + upper[:, x0]
    return within


@dataclass(frozen=True)
class _FilmSums:
    """The integral images of a film's tissue and of its lesions, grown by the gap."""

    tissue: Sums
    lesions: Sums

    def place(
        self, side: int, others: Sequence[Patch], rng: np.random.Generator, limits: Limits
    ) -> Patch | str:
        """A random place for a patch, or why there is none."""
        height, width = (length - 1 for length in self.tissue.shape)
        if side > min(height, width):
            return "the film is smaller than the patch"
        valid = np.zeros((0, 0), bool)
        for step in dict.fromkeys((max(1, side // STEPS), 1)):
            # A random start makes every pixel a possible corner.
            y, x = (
                range(int(rng.integers(min(step, room))), room, step)
                for room in (height - side + 1, width - side + 1)
            )
            valid = self._valid(y, x, side, limits.tissue)
            free = valid & _clear_of(others, np.array(y), np.array(x), side, limits.overlap)
            if free.any():
                row, column = divmod(int(rng.choice(np.flatnonzero(free))), len(x))
                return x[column], y[row], x[column] + side, y[row] + side
        if valid.any():
            return "no place left beside the other patches of the film"
        return f"no place with {limits.tissue:.0%} tissue away from the lesions"

    def _valid(self, y: range, x: range, side: int, least: float) -> Mask:
        """Corners (rows, columns) where a patch has enough tissue and no lesion."""
        tissue, lesion = (_patch_sums(sums, y, x, side) for sums in (self.tissue, self.lesions))
        valid: Mask = (tissue >= least * side * side) & (lesion == 0)
        return valid


def _patch_sums(sums: Sums, y: range, x: range, side: int) -> Sums:
    """Sums over the patches with these corners (rows, columns); slices, since copies take long."""
    upper, lower = (slice(y.start + at, y.stop + at, y.step) for at in (0, side))
    left, right = (slice(x.start + at, x.stop + at, x.step) for at in (0, side))
    within: Sums = sums[lower, right] - sums[lower, left] - sums[upper, right] + sums[upper, left]
    return within


def _clear_of(
    others: Sequence[Patch],
    y: NDArray[np.integer],
    x: NDArray[np.integer],
    side: int,
    overlap: float,
) -> Mask:
    """Corners (rows, columns) where a patch overlaps each of the others little enough."""
    clear = np.ones((len(y), len(x)), bool)
    for x0, y0, x1, y1 in others:
        high = np.clip(np.minimum(y + side, y1) - np.maximum(y, y0), 0, None)
        wide = np.clip(np.minimum(x + side, x1) - np.maximum(x, x0), 0, None)
        clear &= high[:, None] * wide <= overlap * min(side, x1 - x0) ** 2
    return clear
