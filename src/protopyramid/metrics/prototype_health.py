"""The health of prototypes: duplicates, dead ones, weights of the wrong sign, far from every patch.

One definition and one set of limits, for training, evaluation and the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

HEALTHY_SIMILARITY = 0.8  # cosine to the nearest patch; below it projection changes the model
DUPLICATE_COSINE = 0.99  # from which two prototypes of a class and level count as one
DUPLICATE_DISTANCE = 0.1  # the same for log-l2, as a share of the median distance of all pairs
DEAD_SPREAD = 1e-6  # standard deviation of a score over the images
DEAD_WEIGHT = 1e-6  # largest head weight of a prototype
SHOWN_ROWS = 5  # of a figure: the largest contributions
MOST_NUMBERS = 10_000_000  # held at once

Kind = Literal["duplicate", "dead", "sign", "far"]
SimilarityKind = Literal["cosine", "log-l2"]


@dataclass(frozen=True)
class Finding:
    """Something wrong with some prototypes, and a line that says so."""

    kind: Kind
    indices: tuple[int, ...]
    message: str


# -- which prototypes ----------------------------------------------------------------------------
def duplicate_pairs(
    vectors: Tensor, classes: Tensor, levels: Tensor, similarity: SimilarityKind
) -> list[tuple[int, int]]:
    """Pairs of prototypes of one class and level that are as good as one.

    vectors (m, d); classes, levels (m,). Cosine: at least .99. log-l2: at most a tenth of the median
    distance; the angle says nothing there, since all vectors after a sigmoid point the same way.
    """
    vectors = vectors.detach().double()
    if similarity == "cosine":
        unit = F.normalize(vectors, dim=1)
        alike = unit @ unit.T >= DUPLICATE_COSINE
    else:
        exact = "donot_use_mm_for_euclid_dist"
        distances = torch.cdist(vectors, vectors, compute_mode=exact)
        others = distances[~torch.eye(len(vectors), dtype=torch.bool)]
        alike = distances <= (DUPLICATE_DISTANCE * others.median() if len(others) else 0.0)
    alike &= (classes[:, None] == classes) & (levels[:, None] == levels)
    return [(i, j) for i, j in alike.triu(diagonal=1).nonzero().tolist()]


def without_weight(head_weight: Tensor) -> list[int]:
    """Prototypes with no weight for any class. head_weight (C, m)."""
    return _where(head_weight.abs().amax(dim=0) < DEAD_WEIGHT)


def with_constant_score(scores: Tensor) -> list[int]:
    """Prototypes with the same score on every image. scores (N, m); none can be told of one image."""
    if len(scores) < 2:
        return []
    return _where(scores.detach().double().std(dim=0) < DEAD_SPREAD)


def own_weights(head_weight: Tensor, classes: Tensor) -> Tensor:
    """The weight of each prototype for its own class. head_weight (C, m), classes (m,) -> (m,)."""
    return head_weight.gather(0, classes[None].to(head_weight.device))[0]


def own_weight_not_positive(head_weight: Tensor, classes: Tensor) -> list[int]:
    """Prototypes that do not support their own class."""
    return _where(own_weights(head_weight, classes) <= 0)


def stronger_for_another_class(head_weight: Tensor, classes: Tensor) -> list[int]:
    """Prototypes whose greatest weight is for a class that is not theirs."""
    return _where(head_weight.argmax(0) != classes.to(head_weight.device))


def unused(head_weight: Tensor, logits: Tensor, scores: Tensor) -> list[int]:
    """Prototypes that never matter: on no image shown in a figure's rows, on none decisive.

    head_weight (C, m), logits (N, C), scores (N, m).
    """
    hidden = _where(times_leading(head_weight, logits, scores) == 0)
    decisive = times_decisive(head_weight, scores, hidden).tolist()
    return [index for index, images in zip(hidden, decisive, strict=True) if not images]


def times_leading(head_weight: Tensor, logits: Tensor, scores: Tensor) -> Tensor:
    """On how many images a prototype is in the rows of a figure.

    These are the largest contributions, by size, to the predicted class. head_weight (C, m), logits (N, C),
    scores (N, m) -> (m,).

    >>> times_leading(torch.ones(2, 7), torch.eye(2), torch.arange(7.0).repeat(2, 1)).tolist()
    [0, 0, 2, 2, 2, 2, 2]
    """
    contributions = (head_weight[logits.argmax(1)] * scores).abs()
    m = contributions.shape[1]
    leading = contributions.topk(min(SHOWN_ROWS, m), dim=1).indices
    return torch.bincount(leading.flatten(), minlength=m)


def times_decisive(
    head_weight: Tensor, scores: Tensor, columns: Sequence[int] | None = None
) -> Tensor:
    """On how many images the prediction is another without a prototype's contribution.

    head_weight (C, m), scores (N, m) -> (m,), or one number for each of `columns`.

    >>> times_decisive(torch.eye(2), torch.tensor([[2.0, 3.0]])).tolist()
    [0, 1]
    """
    weight, values = head_weight.double(), scores.double()
    chosen = torch.arange(values.shape[1]) if columns is None else torch.tensor(columns).long()
    found = torch.zeros(len(chosen), dtype=torch.long)
    at_once = max(1, MOST_NUMBERS // max(1, len(chosen) * len(weight)))
    for some in torch.split(values, at_once):
        logits = some @ weight.T
        without = logits[:, None, :] - some[:, chosen, None] * weight.T[chosen]  # (N, columns, C)
        found += (without.argmax(2) != logits.argmax(1, keepdim=True)).sum(0)
    return found


def far_from_patches(nearest: Tensor, similarity: SimilarityKind) -> list[int]:
    """Prototypes whose nearest patch before projection was less similar than .8; cosine only.

    nearest (m,): similarity to the nearest patch just before projection.
    """
    return _where(nearest < HEALTHY_SIMILARITY) if similarity == "cosine" else []


# -- in words ------------------------------------------------------------------------------------
def prototype_health(
    vectors: Tensor,
    classes: Tensor,
    levels: Tensor,
    similarity: SimilarityKind,
    head_weight: Tensor,
    scores: Tensor | None = None,
    nearest: Tensor | None = None,
    class_names: Sequence[str] | None = None,
) -> list[Finding]:
    """What is wrong with the prototypes, worst kind first; [] when nothing is.

    vectors (m, d); classes, levels (m,); head_weight (C, m); scores (N, m) of images; nearest (m,)
    similarity to the nearest patch before projection.
    """
    names, weight = _names(classes, levels, class_names), head_weight.detach()
    findings = [
        Finding("duplicate", (i, j), f"{names[j]} duplicates prototype {i}")
        for i, j in duplicate_pairs(vectors, classes, levels, similarity)
    ]
    findings += _dead(weight, scores, names)
    findings += _wrong_signs(weight, classes, names)
    if nearest is not None:
        findings += [
            _far(j, float(nearest[j]), names) for j in far_from_patches(nearest, similarity)
        ]
    return findings


def health_lines(findings: Sequence[Finding]) -> list[str]:
    """One line for each kind of finding.

    >>> health_lines([Finding("dead", (0,), "a"), Finding("far", (1,), "b"), Finding("dead", (2,), "c")])
    ['a; c', 'b']
    """
    kinds = dict.fromkeys(finding.kind for finding in findings)
    return ["; ".join(each.message for each in findings if each.kind == kind) for kind in kinds]


def _names(classes: Tensor, levels: Tensor, class_names: Sequence[str] | None) -> list[str]:
    pairs = zip(classes.tolist(), levels.tolist(), strict=True)
    return [
        f"prototype {index} ({class_names[number] if class_names else f'class {number}'}, level {level})"
        for index, (number, level) in enumerate(pairs)
    ]


def _dead(weight: Tensor, scores: Tensor | None, names: Sequence[str]) -> list[Finding]:
    findings = [
        Finding("dead", (j,), f"{names[j]} has no weight for any class: it has no effect")
        for j in without_weight(weight)
    ]
    findings += [
        Finding("dead", (j,), f"{names[j]} has the same score on every image: it tells nothing")
        for j in ([] if scores is None else with_constant_score(scores))
    ]
    return findings


def _wrong_signs(weight: Tensor, classes: Tensor, names: Sequence[str]) -> list[Finding]:
    own, dead = own_weights(weight, classes), set(without_weight(weight))
    return [
        Finding(
            "sign",
            (j,),
            f"{names[j]} does not support its own class: its weight is {float(own[j]):.3g}",
        )
        for j in own_weight_not_positive(weight, classes)
        if j not in dead
    ]


def _far(index: int, nearest: float, names: Sequence[str]) -> Finding:
    return Finding(
        "far",
        (index,),
        f"{names[index]} was far from every training patch before projection: "
        f"similarity {nearest:.2f}, below {HEALTHY_SIMILARITY}",
    )


def _where(condition: Tensor) -> list[int]:
    found: list[int] = condition.nonzero()[:, 0].tolist()
    return found
