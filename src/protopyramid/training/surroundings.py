"""Windows of images in other surroundings, for the context loss (ours).

What is exchanged are pixels, by the same fillings and with the same soft edge as in the measure of
faithfulness (`metrics.faithfulness`). An exchange in cached maps would be cheaper, but cells near the cut
have seen what lies beyond it, and a filling makes edges that only pixels show.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from protopyramid.losses.objective import Surroundings
from protopyramid.metrics.faithfulness import blurred, local_mean, soft_edge
from protopyramid.model.backbones import IMAGE
from protopyramid.model.necks import COARSEST
from protopyramid.model.network import Evidence, PrototypeNetwork

BORDER = 1  # coarsest cells along the edge of a window whose own surroundings are cut
FILLINGS = 3  # the next image of the batch, blur, local mean; one at a time


class Windows(NamedTuple):
    """Square windows as cells of the coarsest map, bool (B, h, w), and the cells well inside them."""

    whole: Tensor
    inner: Tensor


def in_other_surroundings(
    model: PrototypeNetwork,
    maps: Mapping[int, Tensor],
    evidence: Evidence,
    labels: Tensor,
    share: float,
    filling: int = 0,
) -> Surroundings:
    """What the model says of windows around the strongest own-class cells, in other surroundings.

    maps {block: (B, C, H, W)} at any cut, with the images under block 0; evidence of the same images; labels
    (B,); share: area of a window; filling: which of FILLINGS surrounds the windows.
    """
    windows = strongest_windows(evidence, labels, model, share)
    changed = {IMAGE: replaced(maps[IMAGE], windows.whole, filling)}
    cut = [block for block in maps if block != IMAGE]
    mixed = model.backbone.advance(changed, cut) if cut else changed
    seen = model.evidence_from_pyramid(model.pyramid_from_maps(mixed))
    inner = {level: _resized(windows.inner, each.shape[-2:]) for level, each in seen.maps.items()}
    return Surroundings(seen.maps, inner)


def replaced(images: Tensor, windows: Tensor, filling: int) -> Tensor:
    """Images (B, C, S, S) inside windows bool (B, h, w), a filling outside, with a soft edge."""
    with torch.autocast(images.device.type, enabled=False):  # pixels keep their precision
        inside = soft_edge(_resized(windows, images.shape[-2:]))[:, None]
        return torch.lerp(_filling(images, filling), images, inside.to(images.dtype))


def _filling(images: Tensor, filling: int) -> Tensor:
    """What surrounds windows of images (B, C, S, S): 0 the next image of the batch, 1 blur, 2 local mean."""
    if filling == 0:
        return images.roll(1, 0)
    make = blurred if filling == 1 else local_mean
    return make(images.flatten(0, 1)).view_as(images)


def strongest_windows(
    evidence: Evidence, labels: Tensor, model: PrototypeNetwork, share: float
) -> Windows:
    """Windows around the highest cell of the coarsest level's prototypes of each image's class."""
    assert model.prototypes is not None
    layer = model.prototypes
    level = COARSEST if COARSEST in evidence.maps else max(evidence.maps)
    maps, rows = evidence.maps[level].detach(), layer.slices[level]
    other = labels[:, None] != layer.classes[rows][None, :]
    highest = maps.masked_fill(other[:, :, None, None], -torch.inf).amax(1)  # (B, h, w)
    height, width = highest.shape[-2:]
    cell = highest.flatten(1).argmax(1)
    return windows_around(cell // width, cell % width, height, width, share)


def windows_around(rows: Tensor, columns: Tensor, height: int, width: int, share: float) -> Windows:
    """Windows of a share of the map around cells, moved inside it. rows, columns (B,)."""
    sides = [max(1, round(share**0.5 * size)) for size in (height, width)]
    whole, inner = [], []
    for centre, size, side in zip((rows, columns), (height, width), sides, strict=True):
        first = (centre - side // 2).clamp(0, size - side)[:, None]
        place = torch.arange(size, device=centre.device)[None, :]
        last = first + side - 1
        whole.append((place >= first) & (place <= last))
        # Beyond the image nothing is exchanged: cells along its edge keep their surroundings there.
        low, high = first + BORDER * (first > 0), last - BORDER * (last < size - 1)
        inner.append((place >= low) & (place <= high))
    return Windows(*(r[:, :, None] & c[:, None, :] for r, c in (whole, inner)))


def _resized(windows: Tensor, size: torch.Size) -> Tensor:
    """Windows bool (B, h, w) at another size, (B, H, W)."""
    return F.interpolate(windows[:, None].float(), size=tuple(size), mode="nearest")[:, 0] > 0
