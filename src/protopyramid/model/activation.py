"""Activation maps (PAM): similarity maps at the size of the image, and the region they single out.

The region is what JSON, figures and metrics mean by "where a prototype activates": the pixels from the
95th percentile of the activation map up. It is computed here and nowhere else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

SAMPLED = 7  # every seventh value is looked at, to guess a threshold
PERCENTILE = 0.95  # IAIA-BL: a prototype activates on the top 5 % of its activation map

Box = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Region:
    """Where one prototype activates on one image.

    activation (H, W) float32; mask (H, W) bool, the region; box, the fractions x0, y0, x1, y1 of the
    image that enclose all of it, however many parts it has.
    """

    activation: NDArray[np.float32]
    mask: NDArray[np.bool_]
    box: Box

    @cached_property
    def contour(self) -> list[NDArray[np.float64]]:
        """The closed lines around the mask, each (n, 2): x and y as fractions of the image.

        Lines run between pixel centres, so that by the even-odd rule they hold exactly the pixels of the
        mask. A region that is the whole image, or empty, has none.
        """
        if self.mask.all() or not self.mask.any():
            return []
        inside, outside = self.activation[self.mask], self.activation[~self.mask]
        return contour_lines(self.activation, (float(inside.min()) + float(outside.max())) / 2)


class MaskedRegion(Region):
    """A region that is not what its activation map exceeds, such as an evidence region over a heat map."""

    @cached_property
    def contour(self) -> list[NDArray[np.float64]]:
        """The closed lines around the mask, each (n, 2), as in `Region`."""
        return [] if self.mask.all() else mask_lines(self.mask)


def activation_maps(maps: Tensor, height: int, width: int) -> Tensor:
    """Similarity maps upsampled bilinearly to the image. (B, m, h, w) -> (B, m, height, width)."""
    return F.interpolate(maps, size=(height, width), mode="bilinear", align_corners=False)


def activation_regions(maps: Tensor, height: int, width: int) -> list[Region]:
    """The region of each similarity map on an image of that size. (m, h, w) -> m regions."""
    activation = activation_maps(maps[None].float(), height, width)[0]
    return [region_of(each) for each in activation]


def activation_boxes(maps: Tensor, height: int, width: int) -> list[Box]:
    """The boxes of `activation_regions`, all at once. (m, h, w) -> m boxes in fractions.

    Rows and columns that hold a pixel of the region are found by their maxima: no mask is made.
    """
    activation = activation_maps(maps[None].float(), height, width)[0]
    threshold = _threshold(activation.flatten(1))
    x0, x1 = _spans((activation.amax(1) >= threshold).cpu().numpy())
    y0, y1 = _spans((activation.amax(2) >= threshold).cpu().numpy())
    edges = np.stack([x0 / width, y0 / height, x1 / width, y1 / height], axis=1)
    return [(a, b, c, d) for a, b, c, d in edges.tolist()]


def _spans(occupied: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First place and the one after the last of each row (m, n); all of it where nothing is occupied."""
    length = occupied.shape[1]
    some = occupied.any(1)
    first = np.where(some, occupied.argmax(1), 0)
    return first, np.where(some, length - occupied[:, ::-1].argmax(1), length)


def activation_region(similarity: Tensor, height: int, width: int) -> Region:
    """The region of one similarity map (h, w) on an image of that size."""
    return activation_regions(similarity[None], height, width)[0]


def region_of(activation: Tensor) -> Region:
    """The region of an activation map (H, W).

    >>> activation = torch.zeros(10, 10)
    >>> activation[2, 3:8] = 1
    >>> region_of(activation).box
    (0.3, 0.2, 0.8, 0.3)
    """
    mask = strongest_region(activation)
    values = activation.detach().float().cpu().numpy()
    return Region(values, mask.cpu().numpy(), region_box(mask))


def strongest_region(activation: Tensor, percentile: float = PERCENTILE) -> Tensor:
    """Where activation maps reach their own percentile. (..., H, W) -> bool (..., H, W).

    A constant map is kept whole: no part of it is stronger than another.
    """
    flat = activation.flatten(-2).float()
    return (flat >= _threshold(flat, percentile)).view(activation.shape)


def _threshold(flat: Tensor, percentile: float = PERCENTILE) -> Tensor:
    """The least value of the region of each map. (..., n) -> (..., 1).

    Pixels >= the (interpolated) percentile are those >= the next value above it: one selection instead of
    the sort of torch.quantile, and no limit on the number of elements.
    """
    rank = math.ceil(round(percentile * (flat.shape[-1] - 1), 6)) + 1
    return _ranked(flat.detach(), rank)


def region_box(region: Tensor) -> Box:
    """The box around a region as fractions x0, y0, x1, y1 of the image. (H, W) bool.

    That of an empty region is the whole image.

    >>> mask = torch.zeros(4, 8, dtype=torch.bool)
    >>> mask[1:3, 2:6] = True
    >>> region_box(mask)
    (0.25, 0.25, 0.75, 0.75)
    """
    height, width = region.shape
    rows = region.any(1).nonzero().flatten().tolist() or [0, height - 1]
    columns = region.any(0).nonzero().flatten().tolist() or [0, width - 1]
    return (
        columns[0] / width,
        rows[0] / height,
        (columns[-1] + 1) / width,
        (rows[-1] + 1) / height,
    )


def contour_lines(values: NDArray[np.float32], level: float) -> list[NDArray[np.float64]]:
    """The closed lines around the pixels above a level, each (n, 2): x and y as fractions of the image.

    values (H, W). Lines pass between pixel centres and end at the border of the image.
    """
    from contourpy import LineType, contour_generator

    low = min(float(values.min()), level - 1)  # a rim of low values closes lines at the border
    rimmed = np.pad(values.astype(np.float64), 1, constant_values=low)
    height, width = values.shape
    x, y = (np.arange(width + 2) - 0.5) / width, (np.arange(height + 2) - 0.5) / height
    lines = contour_generator(x, y, rimmed, line_type=LineType.Separate).lines(level)
    return [np.clip(np.asarray(line, dtype=np.float64), 0, 1) for line in lines]


def mask_lines(mask: NDArray[np.bool_]) -> list[NDArray[np.float64]]:
    """The closed lines around a mask (H, W), each (n, 2), as fractions; around the image if it is all of it.

    By the even-odd rule they hold the centres of exactly the pixels of the mask.
    """
    return contour_lines(mask.astype(np.float32), 0.5)


def _ranked(flat: Tensor, rank: int) -> Tensor:
    """The value of that rank, 1 the smallest, in each row. (..., n) -> (..., 1).

    On a CPU, selection by NumPy is several times as fast as kthvalue.
    """
    if flat.device.type != "cpu":
        return flat.kthvalue(rank, dim=-1, keepdim=True).values
    values = flat.numpy()
    found = _ranked_rows(values.reshape(-1, values.shape[-1]), rank)
    return torch.from_numpy(found.reshape(*values.shape[:-1], 1))


def _ranked_rows(values: NDArray[np.float32], rank: int) -> NDArray[np.float32]:
    """The value of that rank in each row. (m, n) -> (m,).

    For a high rank not all values need be looked at: those above a guess from every seventh are enough,
    if they are enough.
    """
    above = values.shape[1] - rank  # how many values are larger
    sample = values[:, ::SAMPLED]
    place = sample.shape[1] - 1 - 2 * above // SAMPLED
    if place <= 0 or not np.isfinite(values.sum()):
        return np.partition(values, rank - 1, axis=1)[:, rank - 1]
    guesses = np.partition(sample, place, axis=1)[:, place]
    found = np.empty(len(values), np.float32)
    for row, (each, guess) in enumerate(zip(values, guesses, strict=True)):
        some = each[each >= guess]
        kept = some if len(some) > above else each
        found[row] = np.partition(kept, len(kept) - 1 - above)[len(kept) - 1 - above]
    return found
