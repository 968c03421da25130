"""Random changes of training images and their masks, each a function of (seed, epoch, index) alone.

A row comes out the same, bit for bit, whatever batch it is in: random numbers are drawn from its own
key, and every step works row by row. Flips, quarter turns and shifts move pixels exactly; rotation and
zoom are one warp of image and mask together, which reflects at the edges, as shifts do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from protopyramid.config.schema import AugmentationConfig

Key = tuple[int, int, int]
Draws = NDArray[np.float64]

# The random numbers of a key, always all drawn, so that one setting does not change the others.
DRAWS = 9
FLIP_X, FLIP_Y, TURN, ROTATION, ZOOM, BRIGHTNESS, CONTRAST, SHIFT_X, SHIFT_Y = range(DRAWS)


def augment(
    images: torch.Tensor, masks: torch.Tensor, keys: Sequence[Key], settings: AugmentationConfig
) -> tuple[torch.Tensor, torch.Tensor]:
    """Augment images (B, C, S, S) in [0, 1] and their masks (B, S, S) uint8.

    keys: one (seed, epoch, index) of non-negative integers for each row. The masks stay 0/1.
    """
    if len(keys) != len(images) or masks.shape != (len(images), *images.shape[2:]):
        raise ValueError(
            f"expected as many keys and masks as images {tuple(images.shape)}, "
            f"got {len(keys)} keys and masks {tuple(masks.shape)}"
        )
    if not keys:
        return images, masks
    draws = np.stack([np.random.default_rng(key).random(DRAWS) for key in keys])
    planes = torch.cat([images, masks.to(images.dtype)[:, None]], 1)
    planes = _shift(_flip_and_turn(planes, draws, settings), draws, settings)
    planes = _warp(planes, draws, settings)
    # The mask is interpolated as the image is, and cut at half: 0/1, and never shifted against it.
    masks = (planes[:, -1] >= 0.5).to(masks.dtype)
    return _brighten(planes[:, :-1], draws, settings).contiguous(), masks


def _flip_and_turn(
    planes: torch.Tensor, draws: Draws, settings: AugmentationConfig
) -> torch.Tensor:
    """Mirror and turn rows (B, C, S, S) by moving pixels, one step for all rows with the same move."""
    flips_x = (draws[:, FLIP_X] < 0.5) & settings.flip
    flips_y = (draws[:, FLIP_Y] < 0.5) & settings.flip
    turns = (draws[:, TURN] * 4).astype(int) * settings.quarter_turns
    # Up-down is left-right and a half turn: eight moves are all there are.
    mirrored = flips_x ^ flips_y
    turns = (turns + 2 * flips_y) % 4
    if not (mirrored.any() or turns.any()):
        return planes
    moved = torch.empty_like(planes)
    for mirror in (False, True):
        for turn in range(4):
            chosen = np.flatnonzero((mirrored == mirror) & (turns == turn))
            if not len(chosen):
                continue
            rows = torch.from_numpy(chosen).to(planes.device)
            part = planes[rows]
            part = part.flip(3) if mirror else part
            moved[rows] = torch.rot90(part, turn, (2, 3))
    return moved


def _shift(planes: torch.Tensor, draws: Draws, settings: AugmentationConfig) -> torch.Tensor:
    """Move rows (B, C, S, S) by whole pixels, reflecting at the edges."""
    size = planes.shape[-1]
    most = int(settings.shift * size)
    if most == 0:
        return planes
    padded = F.pad(planes, (most, most, most, most), mode="reflect")
    # Corner of the window in the padded row: 0 to 2 * most, each as likely.
    corners = (draws[:, [SHIFT_X, SHIFT_Y]] * (2 * most + 1)).astype(int)
    windows = [
        row[:, y : y + size, x : x + size] for row, (x, y) in zip(padded, corners, strict=True)
    ]
    return torch.stack(windows)


def _warp(planes: torch.Tensor, draws: Draws, settings: AugmentationConfig) -> torch.Tensor:
    """Rotate and magnify rows (B, C, S, S) about their centre, reflecting at the edges."""
    smallest, largest = settings.zoom
    if settings.rotation == 0 and smallest == largest == 1:
        return planes

    def tensor(values: Draws) -> torch.Tensor:
        return torch.from_numpy(values).to(planes)

    angle = tensor((2 * draws[:, ROTATION] - 1) * settings.rotation)
    # Magnification by 2 is as likely as by 1/2.
    ratio = np.log(largest) - np.log(smallest)
    zoom = tensor(np.exp(np.log(smallest) + draws[:, ZOOM] * ratio))
    size = planes.shape[-1]
    source = _source_matrices(angle, zoom, size)[:, :, :, None, None]
    ticks = torch.linspace(-1, 1, size).to(planes)
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    # Element by element, not by affine_grid: no row may depend on the batch that it is in.
    grid = [source[:, axis, 0] * x + source[:, axis, 1] * y + source[:, axis, 2] for axis in (0, 1)]
    return F.grid_sample(
        planes, torch.stack(grid, -1), padding_mode="reflection", align_corners=True
    )


def _source_matrices(angle: torch.Tensor, zoom: torch.Tensor, size: int) -> torch.Tensor:
    """Where each output pixel comes from, as matrices (B, 3, 3) on coordinates from -1 to 1.

    angle (B,): degrees, counter-clockwise. zoom (B,): magnification.
    """
    centre = (size - 1) / 2
    identity = torch.eye(3).to(angle).repeat(len(angle), 1, 1)
    turn, magnify, to_centre, back = (identity.clone() for _ in range(4))
    radians = angle * (math.pi / 180)
    turn[:, 0, 0] = turn[:, 1, 1] = torch.cos(radians)
    turn[:, 0, 1] = torch.sin(radians)
    turn[:, 1, 0] = -turn[:, 0, 1]
    magnify[:, 0, 0] = magnify[:, 1, 1] = zoom
    to_centre[:, :2, 2] = -centre
    back[:, :2, 2] = centre
    # From pixels to coordinates from -1 to 1, as grid_sample takes them.
    scale = 1 / centre
    normal = torch.tensor([[[scale, 0, -1], [0, scale, -1], [0, 0, 1]]]).to(angle)
    pixels = back @ turn @ magnify @ to_centre
    return _inverse(normal @ (pixels @ _inverse(normal)))


def _inverse(matrices: torch.Tensor) -> torch.Tensor:
    """Inverses of matrices (B, 3, 3) in closed form: each row alone, so that batches do not matter."""
    a, b, c = matrices.unbind(-1)
    rows = [torch.linalg.cross(*pair, dim=-1) for pair in ((b, c), (c, a), (a, b))]
    determinants = (a * rows[0]).sum(-1)
    inverses: torch.Tensor = torch.stack(rows, -2) / determinants[:, None, None]
    return inverses


def _brighten(images: torch.Tensor, draws: Draws, settings: AugmentationConfig) -> torch.Tensor:
    """Change the contrast of rows (B, C, S, S) about their mean, then their brightness."""
    if settings.brightness == settings.contrast == 0:
        return images.clamp(0, 1)
    added = (2 * draws[:, BRIGHTNESS] - 1) * settings.brightness
    factor = 1 + (2 * draws[:, CONTRAST] - 1) * settings.contrast
    # Means row by row in numpy: torch sums in another order for another batch or thread count.
    means = np.array([row.mean(dtype=np.float64) for row in images.cpu().numpy()])

    def column(values: Draws) -> torch.Tensor:
        return torch.from_numpy(values).to(images).view(-1, 1, 1, 1)

    changed = images * column(factor) + column(means * (1 - factor) + added)
    return changed.clamp_(0, 1)
