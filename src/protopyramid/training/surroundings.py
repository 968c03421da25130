"""Windows of images in other surroundings, for the context loss (ours).

What is exchanged are pixels, by the same fillings and with the same soft edge as in the measure of
faithfulness (`metrics.faithfulness`). An exchange in cached maps would be cheaper, but cells near the cut
have seen what lies beyond it, and a filling makes edges that only pixels show. Those edges can look like a
margin: with windows of one shape, a model learns to see past edges of that shape alone. So every window has
another: a square, disc or diamond, turned by any angle, with a more or less uneven outline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from protopyramid.losses.objective import Surroundings
from protopyramid.metrics.faithfulness import blurred, largest_share, local_mean, soft_edge
from protopyramid.model.backbones import IMAGE
from protopyramid.model.network import Evidence, PrototypeNetwork

FILLINGS = 3  # the next image of the batch, blur, local mean; one at a time
NORMS = (1.0, 2.0, math.inf)  # of the distance from a window's centre: diamond, disc, square
UNEVEN = 0.15  # deviation of the outline at most, as a share of the side
BUMPS = (3, 12)  # of an uneven outline, along a side
SURROUNDED = 0.5  # share of the 3 x 3 cells around a cell that a window must hold for it to count
COARSE_LEVELS = 2  # windows lie around what prototypes of these find: finer cells do not see far


class Exchange(NamedTuple):
    """What surrounds the windows of a batch, of FILLINGS, and the seed of their shapes."""

    filling: int = 0
    seed: int = 0


class Windows(NamedTuple):
    """What is left of each image, bool (B, S, S), and the coarsest cells well inside it, bool (B, h, w)."""

    whole: Tensor
    inner: Tensor


def in_other_surroundings(
    model: PrototypeNetwork,
    maps: Mapping[int, Tensor],
    evidence: Evidence,
    labels: Tensor,
    share: float,
    exchange: Exchange = Exchange(),  # noqa: B008 (immutable)
) -> Surroundings:
    """What the model says of windows around the strongest own-class cells, in other surroundings.

    maps {block: (B, C, H, W)} at any cut, with the images under block 0; evidence of the same images; labels
    (B,); share: area of a window.
    """
    images = maps[IMAGE]
    windows = strongest_windows(evidence, labels, model, images.shape[-1], share, exchange.seed)
    changed = {IMAGE: replaced(images, windows.whole, exchange.filling)}
    cut = [block for block in maps if block != IMAGE]
    mixed = model.backbone.advance(changed, cut) if cut else changed
    seen = model.evidence_from_pyramid(model.pyramid_from_maps(mixed))
    inner = {level: _resized(windows.inner, each.shape[-2:]) for level, each in seen.maps.items()}
    return Surroundings(seen.maps, inner)


def replaced(images: Tensor, windows: Tensor, filling: int) -> Tensor:
    """Images (B, C, S, S) inside windows bool (B, S, S), a filling outside, with a soft edge."""
    with torch.autocast(images.device.type, enabled=False):  # pixels keep their precision
        inside = soft_edge(windows)[:, None]
        return torch.lerp(_filling(images, filling), images, inside.to(images.dtype))


def _filling(images: Tensor, filling: int) -> Tensor:
    """What surrounds windows of images (B, C, S, S): 0 the next image of the batch, 1 blur, 2 local mean."""
    if filling == 0:
        return images.roll(1, 0)
    make = blurred if filling == 1 else local_mean
    return make(images.flatten(0, 1)).view_as(images)


def strongest_windows(
    evidence: Evidence,
    labels: Tensor,
    model: PrototypeNetwork,
    size: int,
    share: float,
    seed: int = 0,
) -> Windows:
    """Windows around the k highest cells of the prototype of each image's class with the largest rise.

    The prototype is of one of the coarse levels, by the seed. size: the side of the images in pixels.
    """
    assert model.prototypes is not None
    layer = model.prototypes
    levels = sorted(evidence.maps)[-COARSE_LEVELS:]
    level = levels[seed % len(levels)]
    maps, rows = evidence.maps[level].detach(), layer.slices[level]
    height, width = maps.shape[-2:]
    highest = maps.flatten(2).topk(layer.pooled_patches(level, maps), dim=-1, sorted=False)
    rises = highest.values.mean(-1) - maps.mean((-2, -1))
    other = labels[:, None] != layer.classes[rows][None, :]
    strongest = rises.masked_fill(other, -torch.inf).argmax(1)
    cells = highest.indices[torch.arange(len(maps)), strongest]  # (B, k)
    whole = windows_around(
        (cells // width + 0.5) / height, (cells % width + 0.5) / width, size, share, seed
    )
    coarsest = evidence.maps[max(evidence.maps)].shape[-2:]
    return Windows(whole, well_inside(whole, *coarsest))


def windows_around(rows: Tensor, columns: Tensor, size: int, share: float, seed: int = 0) -> Tensor:
    """Windows of that share of the image around places, each of another shape. -> bool (B, S, S).

    rows, columns (B, n) in [0, 1] of the image's side: n places of each image. The pixels nearest to any of
    them are taken, by a norm of the seed's choice, in turned axes, with a smooth random field added to the
    distance.
    """
    draw = torch.Generator().manual_seed(seed)
    count, device = len(rows), rows.device
    angles = (torch.rand(count, generator=draw) * math.pi).to(device)[:, None, None]
    norms = [NORMS[each] for each in torch.randint(len(NORMS), (count,), generator=draw).tolist()]
    pixels = (torch.arange(size, device=device) + 0.5) / size
    nearest = torch.full((count, size, size), torch.inf, device=device)
    for row, column in zip(rows.unbind(1), columns.unbind(1), strict=True):
        y = pixels[None, :, None] - row[:, None, None]
        x = pixels[None, None] - column[:, None, None]
        turned = angles.cos() * x + angles.sin() * y, angles.cos() * y - angles.sin() * x
        axes = torch.stack(turned, -1)  # (B, S, S, 2)
        away = [torch.linalg.vector_norm(*each, dim=-1) for each in zip(axes, norms, strict=True)]
        nearest = torch.minimum(nearest, torch.stack(away))
    return largest_share(-nearest - _bumps(count, size, draw).to(device), share)


def _bumps(count: int, size: int, draw: torch.Generator) -> Tensor:
    """A smooth random field for each window, some of them flat, others rough. -> (B, S, S)."""
    fields = []
    for _ in range(count):
        grid = int(torch.randint(BUMPS[0], BUMPS[1] + 1, (1,), generator=draw))
        noise = torch.randn(1, 1, grid, grid, generator=draw)
        height = UNEVEN * torch.rand(1, generator=draw)
        smooth = F.interpolate(noise, (size, size), mode="bicubic", align_corners=True)
        fields.append(height * smooth[0, 0])
    return torch.stack(fields)


def well_inside(windows: Tensor, height: int, width: int) -> Tensor:
    """The cells of a map that a window holds, and most of what is around them.

    windows bool (B, S, S) -> bool (B, h, w). What lies beyond the image was not exchanged and does not count.
    """
    held = F.adaptive_avg_pool2d(windows[:, None].float(), (height, width))
    around = F.avg_pool2d(held, 3, 1, padding=1, count_include_pad=False)
    return ((held == 1) & (around >= SURROUNDED))[:, 0]


def _resized(windows: Tensor, size: torch.Size) -> Tensor:
    """Cells bool (B, h, w) at another size, (B, H, W)."""
    return F.interpolate(windows[:, None].float(), size=tuple(size), mode="nearest")[:, 0] > 0
