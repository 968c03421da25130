"""What an average training image scores, and which prototypes never matter: the reference of explanations.

A score of 1.05 says nothing by itself. Explanations compare it with the score that an average training
image gets: the mean over training images, every class counting alike, so that a large class is not the
measure of the others. A finished run keeps the scores of its training images (scores.safetensors). For runs
of earlier versions, the mean over the validation images is taken, which their out-of-distribution limits
hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from protopyramid.inference.ood import MAX_FEATURES, file_stamp, limits_for
from protopyramid.inference.score_table import SplitScores, read_scores
from protopyramid.metrics.prototype_health import unused
from protopyramid.runs import layout
from protopyramid.runs.run import Run

KEY = "reference"  # of a run's cache


@dataclass(frozen=True)
class Reference:
    """The mean score of every prototype over `images` images of a split.

    balanced: whether every class counts alike; unused: the prototypes that matter on none of these images
    (`metrics.prototype_health.unused`), None where that is not known.
    """

    split: str
    images: int
    scores: tuple[float, ...]
    balanced: bool = False
    unused: tuple[int, ...] | None = None

    @property
    def images_text(self) -> str:
        """The images that the mean is taken over.

        >>> Reference("train", 240, ()).images_text
        '240 training images'
        """
        return f"{self.images} {'training' if self.split == 'train' else self.split} images"

    @property
    def words(self) -> str:
        """What the mean is.

        >>> Reference("train", 240, (), balanced=True).words
        'mean of 240 training images, every class counting alike'
        """
        alike = ", every class counting alike" if self.balanced else ""
        return f"mean of {self.images_text}{alike}"

    def logits(self, weights: Tensor) -> list[float]:
        """What an average image gets for each class. weights (C, m) -> C numbers."""
        scores = torch.tensor(self.scores, dtype=torch.float64)
        found: list[float] = (weights.double() @ scores).tolist()
        return found


def balanced_mean(scores: Tensor, labels: Sequence[int]) -> Tensor:
    """The mean of the classes' means. scores (N, m), N labels -> (m,).

    >>> balanced_mean(torch.tensor([[0.0], [0.0], [3.0]]), [0, 0, 1]).tolist()
    [1.5]
    """
    scores = scores.double()
    means = [
        scores[[row for row, label in enumerate(labels) if label == name]].mean(0)
        for name in dict.fromkeys(labels)
    ]
    return torch.stack(means).mean(0)


def reference_for(run: Run) -> Reference | None:
    """The reference of a run, read once: from its training images, or else from its validation images.

    None for a model without prototypes, and where the run folder holds the scores of neither.
    """
    if run.model.prototypes is None:
        return None
    files = (layout.SCORES, layout.THRESHOLDS, layout.MODEL)
    stamp = tuple(file_stamp(run, name) for name in files)
    known = run.cache.get(KEY)
    if known is None or known[0] != stamp:
        known = (stamp, _from_scores(run) or _from_limits(run))
        run.cache[KEY] = known
    found: Reference | None = known[1]
    return found


def _from_scores(run: Run) -> Reference | None:
    table = read_scores(run)
    return None if table is None or not len(table.train) else _reference(run, table.train)


def _reference(run: Run, train: SplitScores) -> Reference:
    weight = run.model.head.weight.detach().cpu()
    mean = balanced_mean(train.scores, train.labels.tolist())
    never = unused(weight, train.scores @ weight.T, train.scores)
    return Reference("train", len(train), tuple(mean.tolist()), balanced=True, unused=tuple(never))


def _from_limits(run: Run) -> Reference | None:
    """The mean over validation images that the out-of-distribution limits hold, if they hold all scores."""
    limits, count = limits_for(run), run.model.score_count
    if limits is None or 2 * count > MAX_FEATURES:
        return None
    return Reference("validation", limits.images, tuple(limits.model.mean[:count].tolist()))
