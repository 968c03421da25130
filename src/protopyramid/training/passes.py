"""Passes over images as they are, without gradients: what every phase of a training shares.

Batches are shared among the processes as wholes, and results are gathered in the order of the images, so
that one process and many compute the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.config.schema import Config
from protopyramid.metrics.validation import ValidationMetrics, validation_metrics
from protopyramid.model.network import PrototypeNetwork
from protopyramid.training.distributed import gather, rank_share
from protopyramid.training.patches import PyramidBatch
from protopyramid.training.sampling import fit_pool
from protopyramid.training.split import Split
from protopyramid.utils.faults import reached
from protopyramid.utils.progress import Reporter

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Passes:
    """Passes of one model over the training and validation images of a run."""

    config: Config
    fabric: Fabric
    model: PrototypeNetwork
    train: Split
    validation: Split
    reporter: Reporter

    def pool(self, most: int | None = None) -> Indices:
        """Training images that projection and head fit use: with negatives drawn once, only those.

        All of them or, evenly spread, at most `most`.
        """
        pool = fit_pool(self.train.labels, self.config.data, self.config.train.seed)
        return pool if most is None else pool[:: -(-len(pool) // most)]

    def batches(self, split: Split, images: Indices, what: str) -> Iterator[Indices]:
        """This process's share of the batches of some images; `what` is shown while it takes long."""
        own = rank_share(self.fabric, self._parts(images))
        with self.reporter.activity(what, len(images)) as activity:
            for number, part in enumerate(own):
                if number + 1 < len(own):
                    split.source.prefetch(own[number + 1])
                yield part
                activity.advance(len(part) * self.fabric.world_size)

    def training_batches(self, what: str) -> Iterator[PyramidBatch]:
        """The pyramids of the pool's images, batch by batch; the model is in evaluation mode."""
        self.model.eval()
        device = self.fabric.device
        for part in self.batches(self.train, self.pool(), what):
            batch = self.train.source.plain(part)
            with torch.no_grad():
                z = self.model.pyramid_from_maps(batch.maps)
            yield PyramidBatch(
                z,
                torch.from_numpy(part).to(device),
                torch.from_numpy(self.train.labels[part]).to(device),
                batch.masks,
                batch.annotated,
            )

    def scores(self, split: Split, images: Indices, what: str) -> Tensor:
        """Scores (N, m) of images, over all processes."""
        self.model.eval()
        own: dict[int, Tensor] = {}  # by the first image of their batch
        for part in self.batches(split, images, what):
            batch = split.source.plain(part)
            with torch.no_grad():
                z = self.model.pyramid_from_maps(batch.maps)
                own[int(part[0])] = self.model.evidence_from_pyramid(z).scores.float().cpu()
        scores: dict[int, Tensor] = {}
        for share in gather(self.fabric, own):
            scores |= share
        return torch.cat([scores[int(part[0])] for part in self._parts(images)])

    def validate(self) -> ValidationMetrics:
        """The metrics of the model on the validation split."""
        reached("validate")
        scores = self.scores(self.validation, self.validation.everything, "validating")
        logits = self._logits(scores).numpy()
        data = self.config.data
        return validation_metrics(logits, self.validation.labels, data.classes, data.negative_class)

    def _logits(self, scores: Tensor) -> Tensor:
        """Logits (N, C) of scores (N, m), in double precision where the head is linear."""
        model = self.model
        if model.hidden is None:
            return scores.double() @ model.head.weight.detach().double().cpu().T
        with torch.no_grad():
            parts = torch.split(scores.to(self.fabric.device), self.config.train.eval_batch_size)
            return torch.cat([model.logits_of(part).double().cpu() for part in parts])

    def _parts(self, images: Indices) -> list[Indices]:
        size = self.config.train.eval_batch_size
        return [images[start : start + size] for start in range(0, len(images), size)]
