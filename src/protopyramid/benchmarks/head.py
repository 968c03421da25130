"""The row on the head: solved once, against epochs of forward passes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from protopyramid.benchmarks.row import Row, at_least
from protopyramid.benchmarks.settings import (
    Settings,
    fresh_model,
    labels_of,
    prototypes_of,
    random_images,
)
from protopyramid.benchmarks.timing import Pair, in_turns
from protopyramid.model.build import initial_head_weights
from protopyramid.training.head_fit import fit_head

HEAD_TARGET = 100.0  # ours: times faster than the epochs
PUBLISHED_HEAD_EPOCHS = 10  # IAIA-BL and ProtoPNet train the last layer for tens of epochs


def head_row(settings: Settings) -> Iterator[Row]:
    """The solve, scores given, against epochs of forward passes, extrapolated from one batch."""
    config = settings.config()
    model = fresh_model(config)
    prototypes, count = prototypes_of(model), settings.head_images
    images = random_images(settings.batch, config.data.image_size)
    classes, labels = prototypes.classes, labels_of(count, config)
    scores = random_scores(labels, classes)
    first = initial_head_weights(classes, len(config.data.classes), config.model.head)
    with torch.inference_mode():
        pair = in_turns(
            lambda: fit_head(scores, labels, classes, first, config.head_fit),
            lambda: model(images),
            settings.repetitions,
        )
    passes = PUBLISHED_HEAD_EPOCHS * count / settings.batch
    pair = Pair(pair.ours, tuple(passes * one for one in pair.reference))
    limit = f"{PUBLISHED_HEAD_EPOCHS} epochs of forward passes, {count:,} images"
    note = f"reference extrapolated from batches of {settings.batch}"
    yield at_least("head fit: the solve, scores given", limit, pair, HEAD_TARGET, note=note)


def random_scores(labels: Tensor, classes: Tensor) -> Tensor:
    """Scores (N, m) as a trained model gives them: higher, and uncertain, for the own class."""
    torch.manual_seed(0)
    noise, lift = torch.rand(2, len(labels), len(classes)).unbind()
    own: Tensor = labels[:, None] == classes
    return noise * 0.2 + torch.where(own, lift * 0.15, 0.0)
