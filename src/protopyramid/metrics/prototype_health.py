"""The health of prototypes: duplicates, dead ones, and weights of the wrong sign, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

HEALTHY_SIMILARITY = 0.8  # cosine to the nearest patch; below it projection changes the model
DUPLICATE_COSINE = 0.999
DUPLICATE_DISTANCE = 1e-3
DEAD_SPREAD = 1e-6  # standard deviation of a score over the images
DEAD_WEIGHT = 1e-6  # largest head weight of a prototype

Kind = Literal["duplicate", "dead", "sign", "far"]


@dataclass(frozen=True)
class Finding:
    """Something wrong with some prototypes, and a line that says so."""

    kind: Kind
    indices: tuple[int, ...]
    message: str


def prototype_health(
    vectors: Tensor,
    classes: Tensor,
    levels: Tensor,
    similarity: Literal["cosine", "log-l2"],
    head_weight: Tensor,
    scores: Tensor | None = None,
    nearest: Tensor | None = None,
    class_names: Sequence[str] | None = None,
) -> list[Finding]:
    """What is wrong with the prototypes, worst kind first; [] when nothing is.

    vectors (m, d); classes, levels (m,); head_weight (C, m); scores (N, m) of the training images;
    nearest (m,) similarity to the nearest patch before projection.
    """
    names = _names(classes, levels, class_names)
    findings = _duplicates(vectors.detach(), classes, levels, similarity, names)
    findings += _dead(head_weight.detach(), scores, names)
    findings += _wrong_signs(head_weight.detach(), classes, names)
    if similarity == "cosine" and nearest is not None:
        findings += _far(nearest, names)
    return findings


def _names(classes: Tensor, levels: Tensor, class_names: Sequence[str] | None) -> list[str]:
    pairs = zip(classes.tolist(), levels.tolist(), strict=True)
    return [
        f"prototype {index} ({class_names[number] if class_names else f'class {number}'}, level {level})"
        for index, (number, level) in enumerate(pairs)
    ]


def _duplicates(
    vectors: Tensor,
    classes: Tensor,
    levels: Tensor,
    similarity: Literal["cosine", "log-l2"],
    names: Sequence[str],
) -> list[Finding]:
    if similarity == "cosine":
        unit = F.normalize(vectors.double(), dim=1)
        alike = unit @ unit.T > DUPLICATE_COSINE
    else:
        exact = "donot_use_mm_for_euclid_dist"
        distances = torch.cdist(vectors.double(), vectors.double(), compute_mode=exact)
        alike = distances < DUPLICATE_DISTANCE
    alike &= (classes[:, None] == classes) & (levels[:, None] == levels)
    return [
        Finding("duplicate", (i, j), f"{names[j]} is the same as prototype {i}")
        for i, j in alike.triu(diagonal=1).nonzero().tolist()
    ]


def _dead(head_weight: Tensor, scores: Tensor | None, names: Sequence[str]) -> list[Finding]:
    findings = [
        Finding("dead", (j,), f"{names[j]} has no weight for any class: it decides nothing")
        for j in _where(head_weight.abs().amax(dim=0) < DEAD_WEIGHT)
    ]
    if scores is not None and len(scores) > 1:
        spread = scores.detach().double().std(dim=0)
        findings += [
            Finding("dead", (j,), f"{names[j]} has the same score on every image: it tells nothing")
            for j in _where(spread < DEAD_SPREAD)
        ]
    return findings


def _wrong_signs(head_weight: Tensor, classes: Tensor, names: Sequence[str]) -> list[Finding]:
    own = head_weight.gather(0, classes[None].to(head_weight.device))[0]
    return [
        Finding(
            "sign", (j,), f"{names[j]} speaks against its own class: weight {float(own[j]):.3g}"
        )
        for j in _where(own < 0)
    ]


def _far(nearest: Tensor, names: Sequence[str]) -> list[Finding]:
    return [
        Finding(
            "far",
            (j,),
            f"{names[j]} was far from every training patch before projection: "
            f"similarity {float(nearest[j]):.2f}, below {HEALTHY_SIMILARITY}",
        )
        for j in _where(nearest < HEALTHY_SIMILARITY)
    ]


def _where(condition: Tensor) -> list[int]:
    found: list[int] = condition.nonzero()[:, 0].tolist()
    return found
