"""Several looks at one image: as it is, mirrored, turned.

The eight looks are the symmetries of a square, the first four of them without a quarter turn. A look is
undone on the maps it leads to, so that all are in the frame of the image as it is. The mean of all eight
does not depend on which way up the image is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

UNTURNED = 4  # looks that leave height and width as they are

Transform = Callable[[Tensor], Tensor]


def looks(count: int) -> Iterator[tuple[Transform, Transform]]:
    """The first `count` looks, and what undoes each, both of (..., H, W).

    1: the image as it is; 4: also mirrored along either axis or both; 8: also turned by quarters.

    >>> import torch
    >>> image = torch.arange(6.0).view(2, 3)
    >>> [undo(look(image)).equal(image) for look, undo in looks(8)] == [True] * 8
    True
    >>> len({tuple(look(torch.arange(4.0).view(2, 2)).flatten().tolist()) for look, _ in looks(8)})
    8
    """
    for number in range(count):
        axes = [axis for bit, axis in ((1, -1), (2, -2)) if number & bit]
        turned = number >= UNTURNED
        yield _look(axes, turned), _undo(axes, turned)


def looks_text(count: int) -> str:
    """What several looks are, in words.

    >>> looks_text(4), looks_text(8)
    ('4 looks, as it is and mirrored', '8 looks, mirrored and turned')
    """
    return (
        f"{count} looks, {'mirrored and turned' if count > UNTURNED else 'as it is and mirrored'}"
    )


def _look(axes: list[int], turned: bool) -> Transform:
    def look(images: Tensor) -> Tensor:
        mirrored = images.flip(axes) if axes else images
        return mirrored.transpose(-2, -1) if turned else mirrored

    return look


def _undo(axes: list[int], turned: bool) -> Transform:
    def undo(maps: Tensor) -> Tensor:
        upright = maps.transpose(-2, -1) if turned else maps
        return upright.flip(axes) if axes else upright

    return undo
