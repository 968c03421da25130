"""Which images a model explains best and worst: right for the right reason, or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protopyramid.data.manifest import Sample
from protopyramid.data.store import ImageStore
from protopyramid.inference.batches import EvidenceBatch, evidence_batches
from protopyramid.model.activation import activation_maps, strongest_region
from protopyramid.prototypes.cases import prototype_map
from protopyramid.runs.run import Run

LOOKED_AT = 3  # prototypes whose regions are compared with the annotation
MOST_IMAGES = 200


@dataclass(frozen=True)
class Ranked:
    """An image, the probability of its true class, and how much of what was looked at is annotated.

    `inside` is the share of the strongest prototypes' regions inside the annotation; None without one.
    """

    sample: Sample
    predicted: str
    probability: float
    inside: float | None

    @property
    def key(self) -> tuple[bool, float]:
        """Great where the model is right, and right for the right reason."""
        reason = 1.0 if self.inside is None else self.inside
        return self.predicted == self.sample.label, self.probability * reason


def rank(run: Run, samples: Sequence[Sample], most: int = MOST_IMAGES) -> list[Ranked]:
    """Images from best to worst explained; annotated ones alone where there are any.

    Of more than `most` images, as many are taken, spaced evenly.
    """
    step = max(1, -(-len(samples) // most))
    chosen = [s for s in samples[::step] if s.label in run.config.data.classes]
    store = ImageStore(chosen, run.config.data.model_copy(update={"memory_budget": 0.0}))
    found: list[Ranked] = []
    for seen in evidence_batches(run.model, store, batch_size=run.config.train.eval_batch_size):
        found += _rank_batch(run, store.samples, seen)
    annotated = [each for each in found if each.inside is not None]
    return sorted(annotated or found, key=lambda each: each.key, reverse=True)


def best_and_worst(ranked: Sequence[Ranked], count: int) -> tuple[list[Ranked], list[Ranked]]:
    """The first and the last of a ranking, without overlap; the worst first."""
    best = list(ranked[: min(count, (len(ranked) + 1) // 2)])
    worst = list(ranked[len(best) :][-count:])
    return best, worst[::-1]


def _rank_batch(run: Run, samples: Sequence[Sample], seen: EvidenceBatch) -> list[Ranked]:
    classes = run.config.data.classes
    logits = seen.evidence.logits.double().cpu()
    found = []
    for row, index in enumerate(seen.images):
        sample = samples[index]
        number = int(logits[row].argmax())
        share = float(logits[row].softmax(0)[classes.index(sample.label)])
        inside = None
        if run.model.prototypes is not None and bool(seen.loaded.masks[row].any()):
            inside = _inside(run, seen, row, number, seen.loaded.masks[row].bool())
        found.append(Ranked(sample, classes[number], share, inside))
    return found


def _inside(run: Run, seen: EvidenceBatch, row: int, number: int, mask: Tensor) -> float:
    """Share of the strongest prototypes' regions inside the annotation."""
    weights = run.model.head.weight.detach()[number]
    contributions = weights * seen.evidence.scores[row]
    top = contributions.topk(min(LOOKED_AT, len(contributions))).indices.tolist()
    shares = []
    for index in top:
        similarity = prototype_map(run.model, seen.evidence.maps, index)[row].cpu()
        region = strongest_region(
            activation_maps(similarity[None, None].float(), *mask.shape)[0, 0]
        )
        shares.append(float((region & mask).sum() / region.sum()))
    return float(torch.tensor(shares).mean())
