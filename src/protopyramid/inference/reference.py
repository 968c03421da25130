"""What an average training image scores, and which prototypes never matter: the reference of explanations.

A score of 1.05 says nothing by itself. Explanations compare it with the score that an average training
image gets: the mean over training images, every class counting alike, so that a large class is not the
measure of the others. A finished run keeps it in reference.json. Runs of earlier versions do not have that
file; for them the mean over the validation images is taken, which their out-of-distribution limits hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from protopyramid.data.manifest import Sample, read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.inference.batches import evidence_batches
from protopyramid.inference.ood import MAX_FEATURES, file_stamp, limits_digest, limits_for
from protopyramid.metrics.prototype_health import unused
from protopyramid.runs import layout
from protopyramid.runs.provenance import split_samples, training_manifest
from protopyramid.runs.run import Run

Progress = Callable[[int, int], None]

FILE = layout.REFERENCE
MOST_IMAGES = 256  # the mean of so many is known to a sixteenth of a score's spread


@dataclass(frozen=True)
class Reference:
    """The mean score of every prototype over `images` images of a split.

    balanced: whether every class counts alike; unused: the prototypes that are on none of these images
    among the three greatest contributions, None where that is not known.
    """

    split: str
    images: int
    scores: tuple[float, ...]
    balanced: bool = False
    unused: tuple[int, ...] | None = None

    @property
    def words(self) -> str:
        """What the mean is taken over.

        >>> Reference("train", 240, (), balanced=True).words
        'mean of 240 training images, every class counting alike'
        """
        kind = {"train": "training"}.get(self.split, self.split)
        alike = ", every class counting alike" if self.balanced else ""
        return f"mean of {self.images} {kind} images{alike}"

    def logits(self, weights: Tensor) -> list[float]:
        """What an average image gets for each class. weights (C, m) -> C numbers."""
        scores = torch.tensor(self.scores, dtype=torch.float64)
        found: list[float] = (weights.double() @ scores).tolist()
        return found

    def to_json(self) -> dict[str, Any]:
        """The content of reference.json, without its digest."""
        return {
            "split": self.split,
            "images": self.images,
            "balanced": self.balanced,
            "scores": list(self.scores),
            "unused": None if self.unused is None else list(self.unused),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Reference:
        """The inverse of to_json; KeyError, TypeError or ValueError where the content is another."""
        never = content["unused"]
        return cls(
            split=str(content["split"]),
            images=int(content["images"]),
            scores=tuple(float(score) for score in content["scores"]),
            balanced=bool(content["balanced"]),
            unused=None if never is None else tuple(int(index) for index in never),
        )


# -- computing -----------------------------------------------------------------------------------
def balanced_mean(scores: Tensor, labels: Sequence[str]) -> Tensor:
    """The mean of the classes' means. scores (N, m), N labels -> (m,).

    >>> balanced_mean(torch.tensor([[0.0], [0.0], [3.0]]), ["a", "a", "b"]).tolist()
    [1.5]
    """
    scores = scores.double()
    means = [
        scores[[row for row, label in enumerate(labels) if label == name]].mean(0)
        for name in dict.fromkeys(labels)
    ]
    return torch.stack(means).mean(0)


def spread_samples(samples: Sequence[Sample], most: int = MOST_IMAGES) -> list[Sample]:
    """At most so many samples, as many of each class as it has or as its share allows, evenly spaced."""
    by_class: dict[str, list[Sample]] = {}
    for sample in samples:
        by_class.setdefault(sample.label, []).append(sample)
    each = max(1, most // max(len(by_class), 1))
    chosen = []
    for members in by_class.values():
        count = min(each, len(members))
        chosen += [members[number * len(members) // count] for number in range(count)]
    return chosen


def training_reference(
    run: Run, samples: Sequence[Sample], progress: Progress = lambda done, total: None
) -> Reference | None:
    """The reference of a run with prototypes from its training samples; None where there is none."""
    if run.model.prototypes is None or not samples:
        return None
    store = ImageStore(spread_samples(samples), run.config.data)
    logits, scores = [], []
    progress(0, len(store))
    for batch in evidence_batches(run.model, store, batch_size=run.config.train.eval_batch_size):
        logits.append(batch.evidence.logits.cpu())
        scores.append(batch.evidence.scores.cpu())
        progress(batch.images[-1] + 1, len(store))
    every = torch.cat(scores)
    weight = run.model.head.weight.detach().cpu()
    mean = balanced_mean(every, [sample.label for sample in store.samples])
    return Reference(
        split="train",
        images=len(every),
        scores=tuple(mean.tolist()),
        balanced=True,
        unused=tuple(unused(weight, torch.cat(logits), every)),
    )


# -- files ---------------------------------------------------------------------------------------
def write_reference(run: Run, progress: Progress = lambda done, total: None) -> None:
    """Write reference.json of a run from its training images, where they still exist."""
    manifest = training_manifest(run)
    if manifest is None or run.model.prototypes is None:
        return
    samples = split_samples(read_manifest(manifest), "train", run.provenance.splits)
    found = training_reference(run, samples, progress)
    if found is not None:
        run.folder.write_json(FILE, {**found.to_json(), "digest": limits_digest(run)})


def reference_is_current(run: Run) -> bool:
    """Whether a run needs no reference, or has one that was computed for its model and settings."""
    return run.model.prototypes is None or _stored(run) is not None


def reference_for(run: Run) -> Reference | None:
    """The reference of a run, read once: the stored one, or else the mean over its validation images.

    None for a model without prototypes, and where the run folder holds neither.
    """
    if run.model.prototypes is None:
        return None
    stamp = tuple(file_stamp(run, name) for name in (FILE, layout.THRESHOLDS, layout.MODEL))
    known = run.cache.get(FILE)
    if known is None or known[0] != stamp:
        known = (stamp, _stored(run) or _from_limits(run))
        run.cache[FILE] = known
    found: Reference | None = known[1]
    return found


def _stored(run: Run) -> Reference | None:
    """What reference.json says; None where it is missing, damaged, or of another model: it can be redone."""
    if not (run.folder / FILE).is_file():
        return None
    content = run.folder.read_json(FILE)
    try:
        found = Reference.from_json(content)
        current = content["digest"] == limits_digest(run)
    except (KeyError, TypeError, ValueError):
        return None
    return found if current and len(found.scores) == run.model.score_count else None


def _from_limits(run: Run) -> Reference | None:
    """The mean over validation images that the out-of-distribution limits hold, if they hold all scores."""
    limits, count = limits_for(run), run.model.score_count
    if limits is None or 2 * count > MAX_FEATURES:
        return None
    return Reference("validation", limits.images, tuple(limits.model.mean[:count].tolist()))
