"""Test-time augmentation (TTA): a prediction as the mean over mirrored and rotated copies of the image.

The eight transforms are the symmetries of a square; the first four of them keep height and width. Each
transform is undone on the maps it leads to, so that all maps are in the frame of the original image. The
mean over all eight does not depend on the image's orientation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

FLIPS = 4  # transforms that keep height and width: the identity and the flips

Transform = Callable[[Tensor], Tensor]


def tta_transforms(count: int) -> Iterator[tuple[Transform, Transform]]:
    """The first `count` transforms, each with its inverse, both of (..., H, W).

    1: the identity; 4: also flipped along either axis or both; 8: also with quarter turns.

    >>> import torch
    >>> image = torch.arange(6.0).view(2, 3)
    >>> [undo(transform(image)).equal(image) for transform, undo in tta_transforms(8)] == [True] * 8
    True
    >>> square = torch.arange(4.0).view(2, 2)
    >>> len({tuple(transform(square).flatten().tolist()) for transform, _ in tta_transforms(8)})
    8
    """
    for number in range(count):
        axes = [axis for bit, axis in ((1, -1), (2, -2)) if number & bit]
        transposed = number >= FLIPS
        yield _transform(axes, transposed), _inverse(axes, transposed)


def tta_text(count: int) -> str:
    """Test-time augmentation in words.

    >>> tta_text(4), tta_text(8)
    ('4 copies of the image (flips)', '8 copies of the image (flips and quarter turns)')
    """
    kinds = "flips and quarter turns" if count > FLIPS else "flips"
    return f"{count} copies of the image ({kinds})"


def _transform(axes: list[int], transposed: bool) -> Transform:
    def transform(images: Tensor) -> Tensor:
        flipped = images.flip(axes) if axes else images
        return flipped.transpose(-2, -1) if transposed else flipped

    return transform


def _inverse(axes: list[int], transposed: bool) -> Transform:
    def undo(maps: Tensor) -> Tensor:
        upright = maps.transpose(-2, -1) if transposed else maps
        return upright.flip(axes) if axes else upright

    return undo
