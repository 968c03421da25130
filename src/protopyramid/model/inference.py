"""One pass of the network over stored images, without gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from protopyramid.config.schema import Data
from protopyramid.data.images import normalise
from protopyramid.data.store import ImageStore, Loaded
from protopyramid.model.network import Evidence, PrototypeNetwork


class Seen(NamedTuple):
    """A batch of a pass: which images (indices into the store), what was loaded, what was found."""

    images: list[int]
    loaded: Loaded
    evidence: Evidence


def device_of(model: nn.Module) -> torch.device:
    """Where a model's parameters are."""
    return next(model.parameters()).device


def model_input(
    images: Tensor, data: Data, device: torch.device, channels_last: bool = True
) -> Tensor:
    """Images (B, C, S, S) in [0, 1] as the network wants them: (B, 3, S, S), normalised, on its device."""
    ready = normalise(images.to(device, non_blocking=True), data)
    return ready.contiguous(memory_format=torch.channels_last) if channels_last else ready


def evidence_batches(
    model: PrototypeNetwork,
    store: ImageStore,
    images: Sequence[int] | None = None,
    batch_size: int = 32,
) -> Iterator[Seen]:
    """Evidence of the images of a store, batch by batch; the model is put in evaluation mode."""
    model.eval()
    order = list(range(len(store)) if images is None else images)
    parts = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    for number, part in enumerate(parts):
        loaded = store.load(part)
        store.prefetch(parts[number + 1] if number + 1 < len(parts) else [])
        with torch.inference_mode():
            evidence = model(model_input(loaded.images, store.data, device_of(model)))
        yield Seen(part, loaded, evidence)
