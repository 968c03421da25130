"""Faithfulness: does a map rise where it is shown to rise because of what is shown there?

For a similarity map s with its k highest cells K and its mean m, the *rise* is the mean of s over K minus
m. For a region R of the image,

    kept(R)    = rise over the same K, with the same m, when everything outside R is replaced,
    removed(R) = the same when R itself is replaced,

both divided by the rise before. A faithful region has kept near 1 and removed near 0. Every replacement
looks odd to a network in its own way, so there are three fillings (another image of the negative class, a
blurred copy, local means) and the median of the three counts.

The pointing game and the area above half maximum are in `metrics.localisation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
MapOf = Callable[[Tensor], Tensor]  # images (B, C, S, S) -> similarity maps (B, h, w)

SOFT_EDGE = 3  # pixels over which a region fades into its filling
BLUR = 1 / 20  # standard deviation of the blurred filling, as a share of the image's side
LOCAL = (
    1 / 2
)  # side of the square whose mean fills its centre, of the image's: wider than most masses
SMALLEST_RISE = 1e-6  # below it, a map is flat: there is no rise to keep or remove
STEPS = 11  # of deletion and insertion curves: 0, 10, ..., 100 % of the image


# -- the rise of a map ---------------------------------------------------------------------------
def top_cells(maps: Tensor, k: int) -> Tensor:
    """The k highest cells of each map. (..., h, w) -> bool (..., h, w), exactly k each."""
    flat = maps.flatten(-2)
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    chosen.scatter_(-1, flat.topk(k, dim=-1).indices, True)
    return chosen.view(maps.shape)


def rise(maps: Tensor, cells: Tensor, means: Tensor) -> Tensor:
    """Mean of maps (..., h, w) over cells, bool (..., h, w), minus `means` (...). -> (...) float64."""
    values, inside = maps.double().flatten(-2), cells.flatten(-2)
    return (values * inside).sum(-1) / inside.sum(-1) - means.double()


def rise_left(before: Tensor, after: Tensor, k: int) -> Tensor:
    """The share of each map's rise that is left in another map, over the same cells, with the same mean.

    before (..., h, w); after (..., h, w), of the changed image -> (...) float64, NaN where `before` is
    flat. This is kept(R) or removed(R), by what was changed.
    """
    cells, means = top_cells(before, k), before.double().mean((-2, -1))
    whole = rise(before, cells, means)
    left = rise(after, cells, means) / whole
    return torch.where(whole > SMALLEST_RISE, left, torch.nan)


# -- changed images ------------------------------------------------------------------------------
def soft_edge(regions: Tensor, width: int = SOFT_EDGE) -> Tensor:
    """Regions, bool (N, S, S), as weights in [0, 1] that fade over `width` (odd) pixels across the outline.

    The edge lies evenly on both sides: the weights of a region and of its complement add up to 1, so that
    keeping a region is exactly the same as replacing all others.
    """
    around = F.pad(regions[:, None].float(), [width // 2] * 4, mode="replicate")
    return F.avg_pool2d(around, width, 1)[:, 0].clamp(0, 1)


def replace_regions(image: Tensor, filling: Tensor, regions: Tensor) -> Tensor:
    """The image with each region replaced by a filling.

    image, filling (C, S, S), regions bool (N, S, S) -> (N, C, S, S).
    """
    weights = soft_edge(regions).to(image.dtype)[:, None]
    return torch.lerp(image.expand(len(weights), *image.shape), filling, weights)


def blurred(image: Tensor) -> Tensor:
    """The image (C, S, S) after a Gaussian whose standard deviation is a twentieth of its side."""
    return gaussian(image, BLUR * image.shape[-1])


def gaussian(image: Tensor, deviation: float) -> Tensor:
    """Images (C, S, S) after a Gaussian of that standard deviation in pixels, border pixels repeated."""
    reach = max(1, int(np.ceil(3 * deviation)))
    offsets = torch.arange(-reach, reach + 1, dtype=torch.float64)
    kernel = torch.exp(-(offsets**2) / (2 * deviation**2))
    kernel = (kernel / kernel.sum()).to(image)
    planes = F.pad(image[:, None], [reach] * 4, mode="replicate")
    planes = F.conv2d(planes, kernel.view(1, 1, 1, -1))
    return F.conv2d(planes, kernel.view(1, 1, -1, 1))[:, 0]


def local_mean(image: Tensor) -> Tensor:
    """The mean of the image (C, S, S) over a square around each pixel, half as wide as the image."""
    side = max(3, round(LOCAL * image.shape[-1])) | 1
    around = F.pad(image[:, None], [side // 2] * 4, mode="replicate")
    # By rows, then by columns: far fewer additions than over squares.
    return F.avg_pool2d(F.avg_pool2d(around, (1, side), 1), (side, 1), 1)[:, 0]


def fillings(image: Tensor, other: Tensor | None) -> Tensor:
    """What replaces parts of an image (C, S, S): another image, blur, local mean. -> (3, C, S, S).

    Without another image (no negative class), the two that come from the image itself: (2, C, S, S).
    """
    own = [blurred(image), local_mean(image)]
    if other is None:
        return torch.stack(own)
    if len(other) > len(image):  # a colour picture among grey ones
        other = other.mean(0, keepdim=True)
    return torch.stack([other.to(image.dtype).expand_as(image), *own])


def median_of_fillings(shares: Tensor) -> Tensor:
    """The median over fillings, the mean of the middle two where their number is even. (F, ...) -> (...)."""
    return shares.double().quantile(0.5, dim=0)


# -- kept and removed ----------------------------------------------------------------------------
def kept(map_of: MapOf, image: Tensor, filled: Tensor, regions: Tensor, k: int) -> Tensor:
    """kept(R) of regions: the share of the rise that is left when all outside R is replaced.

    map_of: images (B, C, S, S) -> maps (B, h, w). image (C, S, S); filled (F, C, S, S), the fillings;
    regions bool (N, S, S) -> (N,) float64, the median over the fillings.
    """
    return removed(map_of, image, filled, ~regions, k)


def removed(map_of: MapOf, image: Tensor, filled: Tensor, regions: Tensor, k: int) -> Tensor:
    """removed(R) of regions: the share of the rise that is left when R is replaced. As `kept`."""
    before = map_of(image[None])
    shares = []
    for filling in filled:
        after = map_of(replace_regions(image, filling, regions))
        shares.append(rise_left(before.expand_as(after), after, k))
    return median_of_fillings(torch.stack(shares))


# -- deletion and insertion ----------------------------------------------------------------------
def largest_share(values: Tensor, share: float) -> Tensor:
    """The highest share of the pixels, at least one unless the share is 0. (..., H, W) -> bool (..., H, W).

    Among equal values the earlier pixel is taken, so the number of pixels is exact.
    """
    flat = values.flatten(-2)
    count = min(flat.shape[-1], max(1 if share > 0 else 0, round(share * flat.shape[-1])))
    order = flat.argsort(dim=-1, descending=True, stable=True)[..., :count]
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    return chosen.scatter_(-1, order, True).view(values.shape)


class Curves(NamedTuple):
    """Deletion and insertion (Petsiuk 2018) of a ranking of pixels, of the rise of one map.

    shares (T,) of the image, from 0 to 1; deletion (T,): rise left when the best-ranked share is replaced;
    insertion (T,): when only it is kept. Areas under both; a good ranking has a small first and a large
    second.
    """

    shares: Array
    deletion: Array
    insertion: Array
    deletion_area: float
    insertion_area: float


def deletion_and_insertion(
    map_of: MapOf, image: Tensor, filled: Tensor, ranking: Tensor, k: int, steps: int = STEPS
) -> Curves:
    """The curves of a ranking (S, S), pixels with high values first. Other arguments as `kept`."""
    shares = np.linspace(0, 1, steps)
    regions = torch.stack([largest_share(ranking, float(share)) for share in shares])
    deletion = removed(map_of, image, filled, regions, k).numpy()
    insertion = kept(map_of, image, filled, regions, k).numpy()
    return Curves(shares, deletion, insertion, area(shares, deletion), area(shares, insertion))


def area(shares: Array, values: Array) -> float:
    """The area under a curve by trapezoids. (T,), (T,)."""
    return float(np.trapezoid(values, shares))


# -- against annotations -------------------------------------------------------------------------
def energy_pointing_game(activation: Tensor, annotation: Tensor) -> Array:
    """The share of a map's energy, its positive values, inside the annotation (Wang 2020, Score-CAM).

    activation (N, H, W), annotation bool (N, H, W) -> (N,), NaN without annotation or positive values.
    """
    energy = activation.double().clamp(min=0).flatten(1)
    inside = annotation.flatten(1)
    share = (energy * inside).sum(1) / energy.sum(1)
    return share.masked_fill(~inside.any(1), torch.nan).numpy()


def regions_elsewhere(regions: Sequence[NDArray[np.bool_]], rng: np.random.Generator) -> Tensor:
    """Each region (H, W) moved to a random place, wrapped around the border. -> bool (N, H, W).

    The baseline of kept and removed: a region of the same shape and area that nothing chose.
    """
    return torch.from_numpy(shifted_around(regions, rng))


def shifted_around(pictures: Sequence[NDArray[Any]], rng: np.random.Generator) -> NDArray[Any]:
    """Each picture (H, W) moved by a random distance, wrapped around the border. -> (N, H, W)."""
    moved = []
    for picture in pictures:
        height, width = picture.shape
        shift = int(rng.integers(height)), int(rng.integers(width))
        moved.append(np.roll(picture, shift, axis=(0, 1)))
    return np.stack(moved)
