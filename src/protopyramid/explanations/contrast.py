"""Why one class and not another: what each prototype adds to the difference of their logits.

Probabilities depend only on differences of logits, so +79 against +78 is explained by the one point between
them. Of that difference d = logit(a) - logit(b), prototype j gives (w_aj - w_bj) s_j. Much of this every
image gets; with the mean score r_j of an average training image (`inference.reference`),

    d = sum_j (w_aj - w_bj) r_j  +  sum_j (w_aj - w_bj) (s_j - r_j):

what an average image gets, and what sets this one apart from it. Nothing is approximated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from protopyramid.errors import UserError

if TYPE_CHECKING:
    from protopyramid.explanations.result import PrototypePart

OTHER_SIDE = 0.4  # share of the rows that each side gets at least, as far as it has prototypes


@dataclass(frozen=True)
class ContrastPart:
    """What one prototype adds to the difference of two classes.

    difference: all of it; beyond: what of it lies beyond that of an average training image, None where that
    is not known. weight: the difference of its weights; average: the mean score, None as above.
    """

    index: int
    score: float
    weight: float
    difference: float
    average: float | None = None

    @property
    def beyond(self) -> float | None:
        """weight x (score - average)."""
        return None if self.average is None else self.weight * (self.score - self.average)

    @property
    def points(self) -> float:
        """What figures show: `beyond`, or the difference where there is no reference."""
        return self.difference if self.beyond is None else self.beyond


@dataclass(frozen=True)
class Contrast:
    """Why `predicted` and not `against` (None: the model has one class only).

    total: the difference of their logits; reference: that of an average training image, None where it is not
    known. total = (reference or 0) + the points of all parts.
    """

    predicted: str
    against: str | None
    total: float
    reference: float | None
    parts: tuple[ContrastPart, ...]

    @property
    def sides(self) -> tuple[list[ContrastPart], list[ContrastPart]]:
        """The prototypes that speak for `predicted`, and those for `against`, strongest first."""
        parts = sorted(self.parts, key=lambda part: -abs(part.points))
        return [p for p in parts if p.points >= 0], [p for p in parts if p.points < 0]

    def strongest(self, top: int) -> list[int]:
        """The prototypes that set the two classes apart most: those for `predicted`, then the others.

        Each part starts with its strongest. Of five, at least two are of either side, if it has them.
        """
        sides = self.sides
        least = int(OTHER_SIDE * top)
        chosen = [part for side in sides for part in side[:least]]
        rest = [part for side in sides for part in side[least:]]
        chosen += sorted(rest, key=lambda part: -abs(part.points))[: top - len(chosen)]
        indices = {part.index for part in chosen}
        return [part.index for side in sides for part in side if part.index in indices]


def contrast(
    parts: Sequence[PrototypePart],
    predicted: str,
    against: str | None,
    averages: Sequence[float] | None = None,
) -> Contrast:
    """The contrast of two classes over all prototypes, given their average scores if they are known."""
    found = tuple(
        ContrastPart(
            index=part.index,
            score=part.score,
            weight=_between(part.weights, predicted, against),
            difference=_between(part.contributions, predicted, against),
            average=None if averages is None else averages[part.index],
        )
        for part in parts
    )
    total = math.fsum(part.difference for part in found)
    reference = None
    if averages is not None:
        reference = math.fsum(part.weight * averages[part.index] for part in found)
    return Contrast(predicted, against, total, reference, found)


def runner_up(logits: Mapping[str, float], predicted: str) -> str | None:
    """The class with the largest logit besides the predicted one; None of a single class.

    >>> runner_up({"a": 3.0, "b": 1.0, "c": 2.0}, "a")
    'c'
    """
    rivals = {name: logit for name, logit in logits.items() if name != predicted}
    return max(rivals, key=lambda name: rivals[name]) if rivals else None


def check_class(name: str | None, classes: Sequence[str], what: str = "against") -> str | None:
    """A class of the run, or None; else a UserError."""
    if name is not None and name not in classes:
        raise UserError(
            f'{what}: the run has no class "{name}"; choose one of {", ".join(classes)}'
        )
    return name


def contrast_json(content: dict[str, Any], found: Contrast) -> dict[str, Any]:
    """An explanation's JSON with what each prototype adds to the difference of two classes."""
    by_index = {part.index: part for part in found.parts}
    parts = [
        {
            **part,
            "reference": by_index[part["index"]].average,
            "difference": by_index[part["index"]].difference,
            "difference_beyond_reference": by_index[part["index"]].beyond,
        }
        for part in content["prototypes"]
    ]
    return {**content, "prototypes": parts}


def _between(values: Mapping[str, float], one: str, other: str | None) -> float:
    return values[one] - (0.0 if other is None else values[other])
