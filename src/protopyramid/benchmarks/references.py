"""What we compare with: the same work as published systems do it, written with care."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from protopyramid.config.schema import TrainPhaseConfig
from protopyramid.model.prototypes import PrototypeLayer


class BareClassifier(nn.Module):
    """VGG-16 features, global average, one linear layer: the least that can be trained."""

    def __init__(self, features: nn.Module, channels: int, classes: int) -> None:
        super().__init__()
        self.features, self.head = features, nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) -> logits (B, C)."""
        logits: Tensor = self.head(self.features(images).mean((-2, -1)))
        return logits


class BareStep:
    """A step of the same optimiser on the bare classifier, with cross entropy alone."""

    def __init__(self, model: BareClassifier, step: TrainPhaseConfig) -> None:
        self.model, self.clip = model.train(), step.clip
        self.optimiser = torch.optim.AdamW(
            model.parameters(), step.learning_rate, weight_decay=step.weight_decay
        )

    def __call__(self, images: Tensor, labels: Tensor) -> float:
        loss = F.cross_entropy(self.model(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return float(loss.detach())


def pixel_weights(masks: Tensor, inside: Tensor, outside: Tensor) -> Tensor:
    """W of the paper's fine loss: masks (B, H, W) 1 inside; inside, outside (B, m) -> (B, m, H, W)."""
    beyond = 1.0 - masks.to(inside.dtype)[:, None]
    return outside[:, :, None, None] * beyond + inside[:, :, None, None]


def upsampled_fine_loss(maps: Tensor, weights: Tensor) -> Tensor:
    """The fine loss as the paper writes it: upsample, multiply, norm.

    maps (B, m, h, w), weights (B, m, H, W) -> scalar. Of the ways to write it with torch's own
    operations, this is the fastest that we found.
    """
    size = (weights.shape[-2], weights.shape[-1])
    pams = F.interpolate(maps, size, mode="bilinear", align_corners=False)
    norms: Tensor = torch.linalg.vector_norm((weights * pams).flatten(2), dim=2)
    return norms.sum(1).mean()


class LoopedProjection:
    """ProtoPNet's push: similarities to NumPy, then a loop over the prototypes for every batch."""

    def __init__(self, prototypes: PrototypeLayer) -> None:
        self.prototypes = prototypes
        m, d = prototypes.vectors.shape
        self.similarity = np.full(m, -np.inf)
        self.vectors = np.zeros((m, d), np.float32)
        self.image = np.full(m, -1)
        self.cell = np.zeros((m, 2), np.int64)

    @torch.no_grad()
    def update(self, z: dict[int, Tensor], images: Tensor, labels: Tensor) -> None:
        """Take a batch into account: z {level: (B, d, H, W)}; images, labels (B,)."""
        classes, owners = labels.numpy(), self.prototypes.classes.numpy()
        for level, rows in self.prototypes.slices.items():
            maps = self.prototypes.similarity_map(z[level], self.prototypes.vectors[rows]).numpy()
            patches = z[level].numpy()
            for j in range(rows.start, rows.stop):
                own = np.flatnonzero(classes == owners[j])
                if len(own):
                    self._consider(j, maps[own, j - rows.start], patches, own, images.numpy())

    def _consider(
        self,
        j: int,
        maps: NDArray[np.float32],
        patches: NDArray[np.float32],
        own: NDArray[np.int64],
        images: NDArray[np.int64],
    ) -> None:
        best = float(maps.max())
        if best > self.similarity[j]:
            place, row, col = np.unravel_index(maps.argmax(), maps.shape)
            self.similarity[j] = best
            self.vectors[j] = patches[own[place], :, row, col]
            self.image[j], self.cell[j] = images[own[place]], (row, col)
