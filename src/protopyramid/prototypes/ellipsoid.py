"""The set of near-optimal heads, approximated by an ellipsoid as in Proto-RSet (Donnelly et al. 2025).

Of what it is the ellipsoid: the head's loss has an L1 term, so it is not smooth where a weight is zero. At
the optimum, some weights are held at zero by that term (or at their bound by a requirement). The others, the
*free* weights, can move a little in any direction, and as long as none of them changes its sign the L1 term
is linear in them. On the free weights the loss is then, to second order,

    loss(w) = loss* + 1/2 (w - w*)' H (w - w*)

with H the Hessian of cross entropy and ridge, since all first derivatives vanish. The ellipsoid of a bound e
is {w : 1/2 (w - w*)' H (w - w*) <= e}, with all other weights held where they are. It leaves out heads that
use a weight which the L1 term holds at zero, and it is wrong where weights change sign or where cross entropy
is far from its second-order form. How wrong is told by exact fits (`prototypes.editing.near_optimal_heads`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protopyramid.training.head_fit import HeadProblem


@dataclass(frozen=True)
class Ellipsoid:
    """The optimum (C, m), which of its weights are free (C, m), and the inverse Hessian of those (f, f)."""

    weight: Tensor
    free: Tensor
    inverse: Tensor

    def half_width(self, row: int, column: int, bound: float) -> float:
        """How far one weight can move either way inside the ellipsoid of a bound; 0 where it is held."""
        place = self._places()[row, column]
        if place < 0:
            return 0.0
        return math.sqrt(2 * bound * float(self.inverse[place, place]))

    def without(self, columns: Sequence[int]) -> tuple[float, Tensor]:
        """The least rise of the loss when prototypes' weights become zero, and the head (C, m) there.

        With w the weights of the columns and S the block of the inverse that belongs to them: the rise is
        1/2 w' S^-1 w, and the other weights follow along the columns of the inverse.
        """
        index = list(columns)
        places = self._places()[:, index]
        mine = places[places >= 0]
        gone = self.weight[:, index][places >= 0]
        pull = torch.linalg.solve(self.inverse[mine][:, mine], gone)
        head = self.weight.clone()
        head[self.free] -= self.inverse[:, mine] @ pull
        head[:, index] = 0.0
        return 0.5 * float(gone @ pull), head

    def with_weight(self, row: int, column: int, value: float) -> Tensor:
        """The best head (C, m) with one free weight at a value."""
        place = self._places()[row, column]
        head = self.weight.clone()
        along = self.inverse[:, place] / self.inverse[place, place]
        head[self.free] += (value - float(self.weight[row, column])) * along
        return head

    def _places(self) -> Tensor:
        """The place (C, m) of each weight among the free ones; -1 where it is held."""
        places = torch.full(self.free.shape, -1, dtype=torch.long)
        places[self.free] = torch.arange(int(self.free.sum()))
        return places


def ellipsoid_at(problem: HeadProblem, weight: Tensor) -> Ellipsoid | None:
    """The ellipsoid at an optimum (C, m); None without a ridge, where the set has no such bound."""
    if not problem.ridge:
        return None
    weight = weight.double()
    free = (problem.l1 == 0) | (weight != 0)
    if problem.bounds is not None:
        free &= (weight > problem.bounds.lower) & (weight < problem.bounds.upper)
    hessian = problem.hessian((problem.x @ weight.T).softmax(dim=1))
    flat = free.flatten()
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(hessian[flat][:, flat]))
    return Ellipsoid(weight, free, inverse)
