"""Fine-annotation losses: prototypes should activate where the annotation says.

Masks are 1 *inside* the annotation, as in the files. The equations want the opposite, m = 1 outside;
`outside_of` is the one place that converts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.losses.stencil import quadratic_forms, safe_sqrt, stencils
from protopyramid.utils.arguments import (
    check_tensor,
    checked_arguments,
    checked_tensors,
    checked_type,
)

ClassTable = Mapping[
    str, Mapping[str, float]
]  # {class of the sample: {class of the prototype: penalty}}

# Ours: the root mean square of a map that is barely active. Below it, a share fades to zero instead of
# being divided by zero.
SMALL_ACTIVATION = 0.01
CHUNK = 8  # masks made into stencils at a time: bounds the memory of their float copies


def outside_of(masks: Tensor) -> Tensor:
    """The m of the equations, 1 outside the annotation, from masks that are 1 inside it.

    >>> outside_of(torch.tensor([1.0, 0.0]))
    tensor([0., 1.])
    """
    return 1.0 - masks


@checked_arguments
def fine_annotation(
    maps: Tensor,
    masks: Tensor | MaskStencils,
    inside: Tensor,
    outside: Tensor,
    combine: str = "paper",
    per_pixel: bool = False,
    share: bool = False,
) -> Tensor:
    """The paper's fine-annotation loss by class pair, for the prototypes of one level.

    maps (B, m, h, w): similarity maps; masks (B, H, W): 1 inside the annotation, values between 0 and 1
    allowed (or `MaskStencils` of them, which several levels share); inside, outside (B, m): the
    penalties of each image and prototype -> scalar, the mean over images of sum_j |W_ij * PAM_ij|_2, PAM
    being the map upsampled bilinearly to H x W (never formed).

    `combine` "paper": W = outside m + inside, m = 1 outside the annotation, so that outside pixels
    weigh outside + inside. "disjoint": outside pixels weigh `outside`, inside pixels `inside`.
    `per_pixel` divides each norm by sqrt(H W). `share` divides it by the norm of the whole map
    instead: what counts is where a prototype activates, not how strongly, so that being similar to
    nothing does not help.
    """
    if not isinstance(combine, str) or combine not in ("paper", "disjoint"):
        raise UserError(f'combine: expected "paper" or "disjoint", got {str(combine)[:40]!r}')
    check_tensor(maps, "maps", "(B, m, h, w)", 4)
    if not isinstance(masks, MaskStencils):
        check_tensor(masks, "masks", "(B, H, W)", 3)
        if len(masks) != len(maps):
            raise TypeError(f"masks: expected {len(maps)} as there are maps, got {len(masks)}")
    for name, weights in (("inside", inside), ("outside", outside)):
        check_tensor(weights, name, "(B, m)", 2)
        if weights.shape != maps.shape[:2]:
            raise TypeError(
                f"{name}: expected {tuple(maps.shape[:2])} as maps are, got {tuple(weights.shape)}"
            )
    forms = mask_forms(maps, masks)
    inner, cross, outer = _pixel_weights(inside, outside, combine)
    squares = inner * forms[..., 0] + cross * forms[..., 1] + outer * forms[..., 2]
    norms = safe_sqrt(squares.clamp(min=0.0))
    if share:
        whole = safe_sqrt(forms[..., 0] + 2.0 * forms[..., 1] + forms[..., 2])
        return (norms / (whole + SMALL_ACTIVATION * _scale(masks, True))).sum(1).mean()
    return norms.sum(1).mean() / _scale(masks, per_pixel)


@checked_tensors(masks="B H W", labels="B", classes="m")
def fine_grouped(
    maps: Mapping[int, Tensor],
    masks: Tensor,
    labels: Tensor,
    classes: Tensor,
    per_pixel: bool = False,
) -> Tensor:
    """IAIA-BL's fine-annotation loss, for the maps of all levels.

    Own-class prototypes are penalised outside the annotation, the others everywhere, with one joint
    norm for the prototypes of lower classes, of the own class and of higher classes.
    maps {level: (B, m_level, h, w)}, masks (B, H, W) 1 inside, labels (B,), classes (m,) in the order of
    the maps -> scalar, the mean over images.
    """
    _check_levels(maps, len(masks), len(classes))
    shared = MaskStencils(masks)
    forms = torch.cat([mask_forms(by_level, shared) for by_level in maps.values()], dim=1)
    order = classes[None, :] - labels[:, None]
    everywhere, beyond = forms[..., 0] + 2.0 * forms[..., 1] + forms[..., 2], forms[..., 2]
    groups = (
        torch.where(order < 0, everywhere, 0.0),
        torch.where(order == 0, beyond, 0.0),
        torch.where(order > 0, everywhere, 0.0),
    )
    total = sum((safe_sqrt(group.sum(1)) for group in groups), start=torch.zeros(()).to(forms))
    return total.mean() / _scale(masks, per_pixel)


class MaskStencils:
    """The stencils of a batch of masks, made once per size: levels of the same size share them."""

    def __init__(self, masks: Tensor) -> None:
        """masks (B, H, W), 1 inside the annotation."""
        self.masks = masks
        self._made: dict[tuple[int, int, torch.dtype], Tensor] = {}

    def like(self, maps: Tensor) -> Tensor:
        """Stencils of (1 - m)^2, m (1 - m) and m^2, m = 1 outside, for maps (B, m, h, w): (B, 3, 4, h, w).

        For 0/1 masks the second is zero and left out: (B, 2, 4, h, w).
        """
        key = (maps.shape[-2], maps.shape[-1], maps.dtype)
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    @cached_property
    def binary(self) -> bool:
        """Whether the masks are 0/1."""
        masks = self.masks
        return not masks.is_floating_point() or bool(((masks == 0) | (masks == 1)).all())

    def _make(self, height: int, width: int, dtype: torch.dtype) -> Tensor:
        """Stencils (B, 2 or 3, 4, height, width), a few images at a time.

        Masks of this type take more memory than the stencils.
        """
        ones = stencils(torch.ones_like(self.masks[:1], dtype=dtype), height, width)
        kinds = 2 if self.binary else 3
        made = ones.new_empty(len(self.masks), kinds, 4, height, width)
        for masks, part in zip(
            torch.split(self.masks, CHUNK), torch.split(made, CHUNK), strict=True
        ):
            self._fill(part, outside_of(masks.to(dtype)), ones)
        return made

    def _fill(self, made: Tensor, beyond: Tensor, ones: Tensor) -> None:
        """Write the stencils of b images into `made` (b, 2 or 3, 4, h, w).

        beyond (b, H, W): 1 outside the annotation; ones (1, 4, h, w): the stencil of weights of one.
        """
        # Differences are taken between stencils, cell by cell: between whole forms, a large activation on
        # one side of the outline would swamp a small one on the other in rounding errors.
        linear = stencils(beyond, *made.shape[-2:])
        if self.binary:
            torch.stack([ones.expand_as(linear) - linear, linear], dim=1, out=made)
            return
        square = stencils(beyond.square(), *made.shape[-2:])
        torch.stack([ones - 2.0 * linear + square, linear - square, square], dim=1, out=made)


def mask_forms(maps: Tensor, masks: Tensor | MaskStencils) -> Tensor:
    """Squared norms of the upsampled maps weighted by (1 - m)^2, m (1 - m) and m^2, m = 1 outside.

    maps (B, m, h, w), masks (B, H, W) -> (B, m, 3). For 0/1 masks m^2 = m and one stencil serves both.
    """
    if maps.dtype in (torch.float16, torch.bfloat16):
        maps = maps.float()
    with torch.autocast(maps.device.type, enabled=False):
        made = (MaskStencils(masks) if isinstance(masks, Tensor) else masks).like(maps)
        forms = quadratic_forms(maps, made)
        if made.shape[1] == 3:
            return forms
        inner, outer = forms.unbind(-1)
        return torch.stack([inner, torch.zeros_like(inner), outer], dim=-1)


def pair_weights(
    table: ClassTable,
    class_names: Sequence[str],
    negative: str,
    own: float,
    other: float,
) -> Tensor:
    """A class-pair table as a matrix (C, C), rows the sample's class, columns the prototype's.

    Pairs that the table does not name take `own` on the diagonal and `other` elsewhere; rows of the
    negative class that it does not name are zero.
    """
    matrix = torch.full((len(class_names), len(class_names)), other)
    matrix.fill_diagonal_(own)
    if negative:
        matrix[class_names.index(negative)] = 0.0
    for row, name in enumerate(class_names):
        for column, prototype_name in enumerate(class_names):
            value = table.get(name, {}).get(prototype_name)
            if value is not None:
                matrix[row, column] = value
    return matrix


def fine_tables(
    inside: ClassTable,
    outside: ClassTable,
    class_names: Sequence[str],
    negative: str,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """The inside and outside penalties as matrices (C, C).

    Classes that a table does not name: outside 1; inside 0 for the own class and 1 for the others.
    `transpose` transposes the inside table among the classes that are not negative: the paper's text
    and its table disagree on which of spiculated and circumscribed is worse on the other.
    """
    inner = pair_weights(inside, class_names, negative, own=0.0, other=1.0)
    outer = pair_weights(outside, class_names, negative, own=1.0, other=1.0)
    if transpose:
        margins = [row for row, name in enumerate(class_names) if name != negative]
        block = torch.tensor(margins)
        inner[block[:, None], block[None, :]] = inner[block[:, None], block[None, :]].T.clone()
    return inner, outer


def _pixel_weights(inside: Tensor, outside: Tensor, combine: str) -> tuple[Tensor, Tensor, Tensor]:
    """Coefficients of (1 - m)^2, m (1 - m) and m^2 in W^2, each (B, m)."""
    # W = outside m + inside = beyond m + inside (1 - m)
    beyond = outside + inside if combine == "paper" else outside
    return inside.square(), 2.0 * inside * beyond, beyond.square()


def _scale(masks: Tensor | MaskStencils, per_pixel: bool) -> float:
    """sqrt(H W) of masks (B, H, W), or 1."""
    height, width = (masks if isinstance(masks, Tensor) else masks.masks).shape[-2:]
    return float(height * width) ** 0.5 if per_pixel else 1.0


def _check_levels(maps: Mapping[int, Tensor], images: int, prototypes: int) -> None:
    """TypeError unless the maps of all levels match the number of images and of prototypes."""
    checked_type(maps, Mapping, "maps", "a table {level: tensor (B, m, h, w)}")
    if not maps:
        raise TypeError("maps: expected a table {level: tensor (B, m, h, w)}, got none")
    for level, each in maps.items():
        check_tensor(each, f"maps[{level}]", "(B, m, h, w)", 4)
        if len(each) != images:
            raise TypeError(
                f"maps[{level}]: expected {images} images as masks have, got {len(each)}"
            )
    found = sum(each.shape[1] for each in maps.values())
    if found != prototypes:
        raise TypeError(f"classes: expected one for each of {found} maps, got {prototypes}")
