"""Patches of the pyramid: a batch of images that they come from, and which of them are eligible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from protopyramid.model.cells import touching_cells

Columns = TypeVar("Columns")


class PyramidBatch(NamedTuple):
    """A batch of B images without gradients.

    z {level: (B, d, H, W)}; images, labels (B,) dataset indices and class numbers; masks (B, S, S),
    1 = inside; annotated (B,) bool.
    """

    z: dict[int, Tensor]
    images: Tensor
    labels: Tensor
    masks: Tensor
    annotated: Tensor


def eligible_cells(masks: Tensor, annotated: Tensor, size: Sequence[int]) -> Tensor:
    """Cells that touch the annotation, or all cells of an image without one.

    masks (B, S, S), 1 = inside; annotated (B,) bool -> (B, H, W) bool. An empty mask counts as none: an
    annotation too small for the input size must not exclude its image.
    """
    touched = touching_cells(masks, size[0], size[1])
    free = ~annotated | ~touched.flatten(1).any(dim=1)
    return touched | free[:, None, None]


def join_columns(parts: Sequence[Columns], dim: int) -> Columns:
    """Dataclasses of tensors as one, each field concatenated along `dim`."""
    kind: Any = type(parts[0])
    return kind(  # type: ignore[no-any-return]
        **{
            field.name: torch.cat([getattr(part, field.name) for part in parts], dim=dim)
            for field in fields(kind)
        }
    )
