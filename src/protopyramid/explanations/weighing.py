"""Asking back: prototypes that are switched off, or count more or less than the model has it.

A logit is a sum of contributions, so a prototype that counts f times as much adds f times its contribution:
what the model would say follows exactly, without another pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from protopyramid.errors import UserError
from protopyramid.utils.arguments import check_number

if TYPE_CHECKING:
    from protopyramid.explanations.result import PrototypePart

NAMED = 4  # changes that are listed one by one

Factors = Mapping[int, float]


def check_factors(factors: Factors, count: int) -> dict[int, float]:
    """The factors that change something, by prototype; UserError for what cannot be one."""
    if not isinstance(factors, Mapping):
        raise UserError(
            "factors: needs a number for each prototype to change, as in {3: 0, 7: 0.5}"
        )
    for index, factor in factors.items():
        if not isinstance(index, int) or not 0 <= index < count:
            raise UserError(f"factors: no prototype {index!r}; they are numbered 0 to {count - 1}")
        check_number(factor, "factors")
        if not math.isfinite(factor):
            raise UserError(f"factors: {factor} of prototype {index} is not a finite number")
    return {index: float(factors[index]) for index in sorted(factors) if factors[index] != 1}


def weighed_parts(parts: Sequence[PrototypePart], factors: Factors) -> list[PrototypePart]:
    """The same parts with their weights and contributions times their factors."""
    return [
        part
        if part.index not in factors
        else replace(
            part,
            weights=_times(part.weights, factors[part.index]),
            contributions=_times(part.contributions, factors[part.index]),
        )
        for part in parts
    ]


def factors_text(factors: Factors) -> str:
    """What was changed, in words.

    >>> factors_text({28: 0.0, 18: 0.4})
    'comparison 28 off, 18 x 0.40'
    """
    if len(factors) > NAMED:
        off = sum(factor == 0 for factor in factors.values())
        return f"{off} comparisons off, {len(factors) - off} weighed otherwise"
    each = [
        f"{index} off" if factor == 0 else f"{index} x {factor:.2f}"
        for index, factor in factors.items()
    ]
    return f"comparison {', '.join(each)}"


def _times(values: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: factor * value for name, value in values.items()}
