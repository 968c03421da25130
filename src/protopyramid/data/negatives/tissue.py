"""Where the breast is on a full mammogram, without background, labels and the frame of the film.

Found on a coarse grid, so that noise and fine texture do not matter: what is brighter than the
background, opened (which takes away letters and the thin bright strips at the edge of a scanned
film), and of that the largest piece. Tissue may be missed at the skin line and beside a frame;
background is hardly ever taken for tissue.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]

GRID = 320  # cells along the longer side of the film
LEVELS = 256  # steps of the histogram
# The limit lies at this share of the way from the background's level to Otsu's threshold, which alone
# would take thin tissue near the skin for background.
TOWARDS_TISSUE = 0.7
# Strips and letters up to twice this share of the longer side go; the breast is far thicker.
OPENING = 0.02
EDGE = 0.01  # always left out along the edges of the film: what is there is rarely clean
# Within this share of the film from an edge, a line with so much of it opened away is a frame.
FRAME_DEPTH, FRAME_SHARE = 0.1, 0.2


def tissue_mask(image: NDArray[np.floating | np.integer]) -> Mask:
    """The breast on a film (H, W) or (H, W, 3) of any range of values, as a mask (H, W).

    >>> film = np.zeros((100, 80))
    >>> film[20:80, :50] = 0.6
    >>> mask = tissue_mask(film)
    >>> bool(mask[50, 25]), bool(mask[50, 70])
    (True, False)
    """
    grey = image.mean(2) if image.ndim == 3 else image
    height, width = grey.shape
    cell = max(1, math.ceil(max(height, width) / GRID))
    grid = _cell_means(grey, cell)
    bright = grid > _background_limit(grid)
    radius = max(1, round(OPENING * max(grid.shape)))
    opened = _opened(bright, radius)
    body = _filled(_largest(_without_edges(opened, _frame_lines(bright & ~opened))))
    return body.repeat(cell, 0).repeat(cell, 1)[:height, :width]


def _cell_means(grey: NDArray[np.floating | np.integer], cell: int) -> Array:
    """Means of squares of `cell` pixels; those at the lower right may be cut by the film's edge."""
    rows, columns = (np.arange(0, length, cell) for length in grey.shape)
    sums = np.add.reduceat(np.add.reduceat(grey, rows, 0, np.float64), columns, 1)
    high, wide = (
        np.diff(np.append(starts, length))
        for starts, length in zip((rows, columns), grey.shape, strict=True)
    )
    means: Array = (sums / (high[:, None] * wide)).astype(np.float32)
    return means


def _background_limit(grid: Array) -> float:
    """A value between the background and the faintest tissue."""
    dark, bright = float(grid.min()), float(grid.max())
    if dark == bright:
        return bright  # one value: nothing is tissue
    # Square roots spread the dark values, where background and thin tissue are to be told apart.
    values = np.sqrt((grid - dark) / (bright - dark))
    threshold = _otsu(values)
    background = float(np.median(values[values <= threshold]))
    limit = background + TOWARDS_TISSUE * (threshold - background)
    return dark + limit**2 * (bright - dark)


def _otsu(values: Array) -> float:
    """Otsu's threshold: the cut that leaves the least variance within the two sides."""
    counts, edges = np.histogram(values, LEVELS, (0, 1))
    centres = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)[:-1]
    above = values.size - below
    sums = np.cumsum(counts * centres)
    with np.errstate(invalid="ignore", divide="ignore"):
        apart = sums[:-1] / below - (sums[-1] - sums[:-1]) / above
    between = np.where((below > 0) & (above > 0), below * above * apart**2, -1)
    return float(edges[1 + int(np.argmax(between))])


def _frame_lines(removed: Mask) -> tuple[Mask, Mask]:
    """Rows and columns near the edges that held a long thin strip, which the opening took away."""
    lines = []
    for axis in (0, 1):
        depth = math.ceil(FRAME_DEPTH * removed.shape[axis])
        long_strip = removed.mean(1 - axis) > FRAME_SHARE
        long_strip[depth : max(depth, removed.shape[axis] - depth)] = False
        lines.append(long_strip)
    return lines[0], lines[1]


def _without_edges(body: Mask, frame: tuple[Mask, Mask]) -> Mask:
    """Without the outermost cells, and without the lines of a frame where they cross the breast."""
    kept = np.zeros_like(body)
    edge = max(1, round(EDGE * max(body.shape)))
    kept[edge:-edge, edge:-edge] = body[edge:-edge, edge:-edge]
    kept[frame[0]] = False
    kept[:, frame[1]] = False
    return kept


def _opened(mask: Mask, radius: int) -> Mask:
    """Without what a square of 2 radius + 1 cells does not fit into; outside the grid is background."""
    side = 2 * radius + 1
    eroded = ndimage.minimum_filter(mask.astype(np.uint8), side, mode="constant", cval=0)
    return np.asarray(ndimage.maximum_filter(eroded, side, mode="constant", cval=0) > 0)


def _largest(mask: Mask) -> Mask:
    """The connected piece with the most cells, if there is any; of equal ones, the one that ends first."""
    pieces, count = ndimage.label(mask)
    if not count:
        return np.zeros_like(mask)
    sizes = np.bincount(pieces.ravel())[1:]
    numbers = 1 + np.flatnonzero(sizes == sizes.max())
    ends = ndimage.maximum(np.arange(mask.size).reshape(mask.shape), pieces, numbers)
    largest: Mask = pieces == numbers[int(np.argmin(ends))]
    return largest


def _filled(mask: Mask) -> Mask:
    """With its holes: dark fat inside the breast is tissue."""
    filled: Mask = ndimage.binary_fill_holes(mask)
    return filled
