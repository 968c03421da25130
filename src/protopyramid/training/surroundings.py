"""Windows of images in the surroundings of other images of the batch, for the context loss (ours).

The exchange happens in the maps that a step starts from, be they images or cached maps of frozen blocks, so
that it costs a second pass of what learns and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from protopyramid.losses.objective import Surroundings
from protopyramid.model.necks import COARSEST
from protopyramid.model.network import Evidence, PrototypeNetwork

BORDER = 1  # coarsest cells along the edge of a window whose own surroundings are cut


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
) -> Surroundings:
    """What the model says of windows around the strongest own-class cells, in other images' surroundings.

    maps {block: (B, C, H, W)} at any cut, evidence of the same images, labels (B,); `share`: area of a
    window.
    """
    windows = strongest_windows(evidence, labels, model, share)
    mixed = {block: mix(each, windows.whole) for block, each in maps.items()}
    seen = model.evidence_from_pyramid(model.pyramid_from_maps(mixed))
    inner = {level: _resized(windows.inner, each.shape[-2:]) for level, each in seen.maps.items()}
    return Surroundings(seen.maps, inner)


def mix(maps: Tensor, windows: Tensor) -> Tensor:
    """Maps (B, C, H, W) inside windows bool (B, h, w), those of the next image of the batch outside."""
    kept = _resized(windows, maps.shape[-2:])[:, None]
    return torch.where(kept, maps, maps.roll(1, 0))


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
