"""What faithful explanations should reach, and which prototypes ever matter.

Targets: on levels 2 and 3 the best-ranked 8 % of the image keep at least 90 % of the rise, and at most 20 %
are left without them; on levels 4 and 5 the best-ranked 25 % keep as much, and at most 30 % are left. Levels
differ in scale: the area above half maximum on level 2 is at most a third of that on level 5. Three quarters
of the prototypes matter, 30 of 40.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.evaluation.faithfulness_results import (
    GroupFaithfulness,
    Target,
    UsedPrototypes,
)
from protopyramid.evaluation.split import EvaluatedSplit, evaluated_split
from protopyramid.explanations.evidence import KEPT
from protopyramid.inference.batches import evidence_batches
from protopyramid.metrics.prototype_health import times_decisive, times_leading

if TYPE_CHECKING:
    from protopyramid.runs.run import Run


class LevelTarget(NamedTuple):
    """The share of the image that should suffice on a level, and how much may be left without it."""

    area: float
    removed: float


FINE, COARSE = LevelTarget(area=0.08, removed=0.20), LevelTarget(area=0.25, removed=0.30)
LEVEL_TARGETS = {"2": FINE, "3": FINE, "4": COARSE, "5": COARSE}
SCALE = 1 / 3  # area above half maximum on level 2, of that on level 5
MATTER = 0.75  # of the prototypes


def judge(
    per_level: Mapping[str, GroupFaithfulness], used: UsedPrototypes | None
) -> tuple[Target, ...]:
    """Each target, and whether it was met; levels that were not measured have none."""
    found = []
    for level, limits in LEVEL_TARGETS.items():
        curves = per_level[level].curves if level in per_level else None
        if curves is not None:
            kept, removed = curves.at(limits.area)
            best = f"level {level}, best {limits.area:.0%} of the image"
            found += [
                _target(f"{best}: kept", kept, KEPT, at_most=False),
                _target(f"{best}: left without it", removed, limits.removed),
            ]
    if "2" in per_level and "5" in per_level:
        areas = [per_level[level].half_maximum_area for level in ("2", "5")]
        fine, coarse = (None if each is None else each.mean for each in areas)
        ratio = fine / coarse if fine is not None and coarse else None
        found.append(_target("half-maximum area, level 2 / level 5", ratio, SCALE))
    if used is not None and used.prototypes:
        share = len(used.matter) / used.prototypes
        found.append(_target("prototypes that matter, share", share, MATTER, at_most=False))
    return tuple(found)


def _target(name: str, value: float | None, limit: float, at_most: bool = True) -> Target:
    met = None if value is None else (value <= limit if at_most else value >= limit)
    return Target(name, value, limit, at_most, met)


def used_prototypes(run: Run, chosen: EvaluatedSplit) -> UsedPrototypes | None:
    """Which prototypes matter on the validation images of the manifest, or on `chosen` without any.

    None for a model without prototypes.
    """
    if run.model.prototypes is None:
        return None
    try:
        judged = evaluated_split(run, chosen.manifest.path, "validation", force=True)
    except UserError:  # no validation rows: the images tested are what there is
        judged = chosen
    store = ImageStore(judged.samples, run.config.data.model_copy(update={"memory_budget": 0.0}))
    batches = evidence_batches(run.model, store, batch_size=run.config.train.eval_batch_size)
    found = [(batch.evidence.logits.cpu(), batch.evidence.scores.cpu()) for batch in batches]
    logits, scores = (torch.cat(parts) for parts in zip(*found, strict=True))
    weight = run.model.head.weight.detach().cpu()
    return UsedPrototypes(
        split=judged.name,
        images=len(scores),
        prototypes=scores.shape[1],
        shown=_ever(times_leading(weight, logits, scores)),
        decisive=_ever(times_decisive(weight, scores)),
    )


def _ever(images: Tensor) -> tuple[int, ...]:
    """The prototypes whose number of images (m,) is not 0."""
    return tuple(images.nonzero().flatten().tolist())
