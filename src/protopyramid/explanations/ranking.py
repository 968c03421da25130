"""Which images a model explains well: right, and for the right reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from protopyramid.data.manifest import Sample
from protopyramid.data.store import ImageStore
from protopyramid.inference.batches import EvidenceBatch, evidence_batches
from protopyramid.model.activation import activation_region
from protopyramid.prototypes.cases import prototype_map
from protopyramid.runs.run import Run

STRONGEST = 3  # prototypes whose regions are compared with the annotation
MOST_IMAGES = 200
RIGHT_REASON = 0.5  # share of the regions inside the annotation, corrected for chance


@dataclass(frozen=True)
class RankedImage:
    """An image, what the model says of it, and how much of what it relies on is annotated.

    `probability`: that of the true class; `inside`: share of the strongest prototypes' regions inside
    the annotation; `chance`: the annotation's share of the image. Both None without an annotation.
    """

    sample: Sample
    predicted: str
    probability: float
    inside: float | None = None
    chance: float | None = None

    @property
    def right(self) -> bool:
        """Whether the prediction is right."""
        return self.predicted == self.sample.label

    @property
    def right_reason(self) -> bool:
        """Whether the regions lie inside the annotation far more than by chance.

        From chance (0) to all inside (1), they reach at least half way; so at least half is inside.
        """
        if self.inside is None or self.chance is None or self.chance >= 1:
            return False
        return (self.inside - self.chance) / (1 - self.chance) >= RIGHT_REASON

    @property
    def key(self) -> tuple[bool, float]:
        """Great where the prediction is right, and right for the right reason."""
        return self.right, self.probability * (1.0 if self.inside is None else self.inside)


def rank(run: Run, samples: Sequence[Sample], most: int = MOST_IMAGES) -> list[RankedImage]:
    """Images from best to worst explained; only annotated ones if there are any.

    Of more than `most` images, as many are taken, evenly spaced.
    """
    step = max(1, -(-len(samples) // most))
    chosen = [s for s in samples[::step] if s.label in run.config.data.classes]
    store = ImageStore(chosen, run.config.data.model_copy(update={"memory_budget": 0.0}))
    found: list[RankedImage] = []
    for batch in evidence_batches(run.model, store, batch_size=run.config.train.eval_batch_size):
        found += _rank_batch(run, store.samples, batch)
    annotated = [each for each in found if each.inside is not None]
    return sorted(annotated or found, key=lambda each: each.key, reverse=True)


def best_and_worst(
    ranked: Sequence[RankedImage], count: int
) -> tuple[list[RankedImage], list[RankedImage]]:
    """The best explained images of a ranking, and the worst, worst first; either may be empty.

    The best are right for the right reason (without annotations: right). The worst are among the rest.
    """
    annotated = any(each.inside is not None for each in ranked)
    best: list[RankedImage] = []
    rest: list[RankedImage] = []
    for each in ranked:
        well = each.right and (each.right_reason or not annotated)
        (best if well else rest).append(each)
    return best[:count], rest[::-1][:count]


def _rank_batch(run: Run, samples: Sequence[Sample], batch: EvidenceBatch) -> list[RankedImage]:
    classes = run.config.data.classes
    logits = batch.evidence.logits.double().cpu()
    found = []
    for row, index in enumerate(batch.images):
        sample, mask = samples[index], batch.loaded.masks[row].bool()
        number = int(logits[row].argmax())
        share = float(logits[row].softmax(0)[classes.index(sample.label)])
        inside = chance = None
        if run.model.prototypes is not None and bool(mask.any()):
            inside = _share_inside(run, batch, row, number, mask)
            chance = float(mask.double().mean())
        found.append(RankedImage(sample, classes[number], share, inside, chance))
    return found


def _share_inside(run: Run, batch: EvidenceBatch, row: int, number: int, mask: Tensor) -> float:
    """Share of the strongest prototypes' regions inside the annotation (S, S)."""
    weights = run.model.head.weight.detach()[number]
    contributions = weights * batch.evidence.scores[row]
    strongest = contributions.topk(min(STRONGEST, len(contributions))).indices.tolist()
    annotation, shares = mask.numpy(), []
    for index in strongest:
        similarity = prototype_map(run.model, batch.evidence.maps, index)[row].cpu()
        region = activation_region(similarity, *annotation.shape).mask
        shares.append(float((region & annotation).sum() / region.sum()))
    return sum(shares) / len(shares)
