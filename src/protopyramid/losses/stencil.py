"""Weighted norms of bilinearly upsampled maps, without upsampling.

An activation map (PAM) is linear in its similarity map s: PAM = Uy s Ux^T with two sparse matrices of
bilinear interpolation. So the squared norm of a weighted PAM is a quadratic form of s,

    |sqrt(w) * PAM|^2 = s^T A s,   A = (Uy (x) Ux)^T diag(w) (Uy (x) Ux).

A row of Uy has at most two non-zeros and they are adjacent, so A couples a cell with its eight
neighbours alone: a stencil. With K_d[Y, y] = U[Y, y] U[Y, y + d] for d = 0, 1,

    A_(dy, dx)[y, x] = (Ky_dy^T w Kx_dx)[y, x]

couples (y, x) with (y + dy, x + dx), and the anti-diagonal pair (y + 1, x), (y, x + 1) has the same
coefficient as the diagonal one. Four small matrix products give the stencil of an image; the form is
then five products per cell. It is exact, whatever the sizes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def interpolation_matrix(outputs: int, inputs: int) -> Tensor:
    """Bilinear interpolation along one axis (align_corners=False) as a matrix (outputs, inputs).

    >>> interpolation_matrix(4, 2)
    tensor([[1.0000, 0.0000],
            [0.7500, 0.2500],
            [0.2500, 0.7500],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    centre = (torch.arange(outputs, dtype=torch.float64) + 0.5) * inputs / outputs - 0.5
    centre = centre.clamp(min=0.0)
    low = centre.floor().long().clamp(max=inputs - 1)
    high = (low + 1).clamp(max=inputs - 1)
    share = centre - low
    matrix = torch.zeros(outputs, inputs, dtype=torch.float64)
    rows = torch.arange(outputs)
    matrix[rows, low] += 1.0 - share
    matrix[rows, high] += share
    return matrix


def stencils(weights: Tensor, height: int, width: int) -> Tensor:
    """The stencils of pixel weights for similarity maps of height x width.

    weights (..., H, W) -> (..., 4, height, width), for the offsets (0, 0), (0, 1), (1, 0), (1, 1).
    No gradient flows through them.
    """
    with torch.no_grad():
        rows = _pair_matrices(weights.shape[-2], height).to(weights)
        columns = _pair_matrices(weights.shape[-1], width).to(weights)
        # The two offsets of an axis lie side by side, so that two matrix products do all four stencils.
        right = weights @ columns.transpose(0, 1).flatten(1)
        both = rows.transpose(0, 1).flatten(1).T @ right
        split = both.reshape(*both.shape[:-2], 2, height, 2, width)
        return split.transpose(-3, -2).flatten(-4, -3)


class QuadraticForms(torch.autograd.Function):
    """Quadratic forms of maps under several stencils, with a hand-written gradient.

    maps (B, m, h, w), stencils (B, S, 4, h, w) -> (B, m, S). Only maps and stencils are kept for the
    gradient, not the products.
    """

    @staticmethod
    def forward(ctx: Any, maps: Tensor, stencil: Tensor) -> Tensor:
        ctx.save_for_backward(maps, stencil)
        same, east, south, diagonal = stencil.unbind(2)
        # One product at a time: each is as large as the maps.
        forms = _pair(maps[..., :-1] * maps[..., 1:], east[..., :-1])
        forms += _pair(maps[..., :-1, :] * maps[..., 1:, :], south[..., :-1, :])
        crossed = maps[..., :-1, :-1] * maps[..., 1:, 1:]
        crossed.addcmul_(maps[..., :-1, 1:], maps[..., 1:, :-1])
        forms += _pair(crossed, diagonal[..., :-1, :-1])
        del crossed
        return forms.mul_(2.0).add_(_pair(maps.square(), same))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        maps, stencil = ctx.saved_tensors
        # The gradient of s^T A s is 2 A s; the stencils are first summed with the incoming gradient,
        # one offset at a time: each sum is as large as the maps.
        twice = 2.0 * gradients[0]
        result = _combined(twice, stencil, 0).mul_(maps)
        east = _combined(twice, stencil, 1)[..., :-1]
        result[..., :-1].addcmul_(east, maps[..., 1:])
        result[..., 1:].addcmul_(east, maps[..., :-1])
        del east
        south = _combined(twice, stencil, 2)[..., :-1, :]
        result[..., :-1, :].addcmul_(south, maps[..., 1:, :])
        result[..., 1:, :].addcmul_(south, maps[..., :-1, :])
        del south
        diagonal = _combined(twice, stencil, 3)[..., :-1, :-1]
        result[..., :-1, :-1].addcmul_(diagonal, maps[..., 1:, 1:])
        result[..., 1:, 1:].addcmul_(diagonal, maps[..., :-1, :-1])
        result[..., :-1, 1:].addcmul_(diagonal, maps[..., 1:, :-1])
        result[..., 1:, :-1].addcmul_(diagonal, maps[..., :-1, 1:])
        return result, None


def quadratic_forms(maps: Tensor, stencil: Tensor) -> Tensor:
    """Squared weighted norms of upsampled maps, one per stencil, not below zero.

    maps (B, m, h, w), stencil (B, S, 4, h, w) -> (B, m, S).
    """
    forms: Tensor = QuadraticForms.apply(maps, stencil)  # type: ignore[no-untyped-call]
    return forms.clamp(min=0.0)


def safe_sqrt(squares: Tensor) -> Tensor:
    """Square root whose gradient at 0 is 0, not infinite: the norm of a zero map pulls nowhere."""
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1.0).sqrt(), 0.0)


def _pair(products: Tensor, stencil: Tensor) -> Tensor:
    """(B, m, h, w) with (B, S, h, w) -> (B, m, S), summed over cells."""
    return products.flatten(2) @ stencil.flatten(2).transpose(1, 2)


def _combined(gradient: Tensor, stencil: Tensor, offset: int) -> Tensor:
    """Stencils of one offset, summed with the gradient of each form.

    gradient (B, m, S), stencil (B, S, 4, h, w) -> (B, m, h, w).
    """
    of_offset = stencil[:, :, offset]
    summed: Tensor = gradient @ of_offset.flatten(2)
    return summed.view(*summed.shape[:2], *of_offset.shape[-2:])


@lru_cache(maxsize=64)
def _pair_matrices(outputs: int, inputs: int) -> Tensor:
    """K_0 and K_1 of one axis, (2, outputs, inputs); the last column of K_1 is zero."""
    matrix = interpolation_matrix(outputs, inputs)
    neighbour = torch.zeros_like(matrix)
    neighbour[:, :-1] = matrix[:, 1:]
    return torch.stack([matrix * matrix, matrix * neighbour])
