"""One pass of the network over stored images, without gradients."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from protopyramid.config.schema import DataConfig
from protopyramid.data.images import normalise
from protopyramid.data.store import ImageStore, Loaded
from protopyramid.errors import UserError
from protopyramid.model.network import Evidence, PrototypeNetwork

Unreadable = Callable[[int, UserError], None]

COMPILED_TOLERANCE = 1e-5
TRIED_IMAGES = 2  # not 1: a size of 1 would be taken as fixed


class EvidenceBatch(NamedTuple):
    """A batch of a pass: image indices into the store, the loaded images, and their evidence."""

    images: list[int]
    loaded: Loaded
    evidence: Evidence


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's parameters."""
    return next(model.parameters()).device


def model_input(
    images: Tensor, data: DataConfig, device: torch.device, channels_last: bool = True
) -> Tensor:
    """Images (B, C, S, S) in [0, 1] as network input: (B, 3, S, S), normalised, on its device."""
    ready = normalise(images.to(device, non_blocking=True), data)
    return ready.contiguous(memory_format=torch.channels_last) if channels_last else ready


def compile_network(model: PrototypeNetwork, size: int) -> str | None:
    """Compile the forward pass with torch, in place, for any number of images of one size.

    Takes a minute or so. Returns None, or why the network stays uncompiled: no C++ compiler, one that
    fails, or outputs that differ by more than 1e-5 from the uncompiled ones.
    """
    if device_of(model).type == "cpu" and not _has_compiler():
        return "no C++ compiler found (g++, clang++, or the one that CXX names)"
    model.eval()
    images = torch.rand(TRIED_IMAGES, 3, size, size, generator=torch.Generator().manual_seed(0))
    images = images.to(device_of(model), memory_format=torch.channels_last)
    with torch.inference_mode():
        expected = model(images)
        # The number of images may change without compiling again. The size is fixed: with symbolic bounds
        # in every loop the compiler takes many times as long.
        torch._dynamo.mark_dynamic(images, 0)
        model.compile()
        try:
            difference = largest_difference(model(images), expected)
        except Exception as error:  # each compiler has its own; the reason is reported
            reason = f"the compiler failed ({str(error).strip().splitlines()[0]})"
        else:
            if difference <= COMPILED_TOLERANCE:
                return None
            reason = f"compiled outputs differ by {difference:.1e}"
    model._compiled_call_impl = None
    return reason


def largest_difference(found: Evidence, expected: Evidence) -> float:
    """The largest difference of any logit, score, closeness or value of a map."""
    pairs = [
        (found.logits, expected.logits),
        (found.scores, expected.scores),
        (found.closeness, expected.closeness),
        *((found.maps[level], expected.maps[level]) for level in expected.maps),
    ]
    return max(float((a - b).abs().max()) for a, b in pairs if a.numel())


def _has_compiler() -> bool:
    names = [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++"]
    return any(shutil.which(name) for name in names)


def evidence_batches(
    model: PrototypeNetwork,
    store: ImageStore,
    images: Sequence[int] | None = None,
    batch_size: int = 32,
    tta: bool = True,
    unreadable: Unreadable | None = None,
) -> Iterator[EvidenceBatch]:
    """Evidence of the images of a store, batch by batch; puts the model in evaluation mode.

    Without `tta`, of the images alone, whatever test-time augmentation the model predicts with. An image
    that cannot be read is left out and handed to `unreadable`, or else raises its UserError.
    """
    model.eval()
    forward = model if tta else model.forward_once
    order = list(range(len(store)) if images is None else images)
    parts = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    for number, part in enumerate(parts):
        part, loaded = _load(store, part, unreadable)
        store.prefetch(parts[number + 1] if number + 1 < len(parts) else [])
        if not part:
            continue
        with torch.inference_mode():
            evidence = forward(model_input(loaded.images, store.data, device_of(model)))
        yield EvidenceBatch(part, loaded, evidence)


def _load(
    store: ImageStore, images: list[int], unreadable: Unreadable | None
) -> tuple[list[int], Loaded]:
    """The images that can be read, loaded; only where one cannot are all of them read once more."""
    try:
        return images, store.load(images)
    except UserError:
        if unreadable is None:
            raise
    good = []
    for index in images:
        try:
            store.load([index])
        except UserError as error:
            unreadable(index, error)
        else:
            good.append(index)
    return good, store.load(good)
