"""Rows on inference: a batch and a single image, in torch, ONNX Runtime and compiled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from protopyramid.benchmarks.row import Row, at_most
from protopyramid.benchmarks.settings import (
    Settings,
    bare_features,
    channels_last,
    copy_of,
    fresh_model,
    random_images,
)
from protopyramid.benchmarks.timing import in_turns
from protopyramid.config.schema import Config
from protopyramid.data.images import normalise
from protopyramid.errors import UserError
from protopyramid.exporting.formats import EvidenceModule, to_onnx
from protopyramid.inference.batches import compile_network
from protopyramid.model.network import PrototypeNetwork

FORWARD_TARGET = 1.10  # ours: times one pass of the bare backbone


def forward_rows(settings: Settings) -> Iterator[Row]:
    """A batch through the network against the bare backbone; then a single image."""
    config = settings.config()
    model = fresh_model(config)
    features = bare_features(model)
    batches = [(settings.batch, FORWARD_TARGET), (1, None)]
    for size, bound in batches:
        images = random_images(size, config.data.image_size)
        with torch.inference_mode():
            pair = in_turns(
                lambda images=images: model(images),  # type: ignore[misc]
                lambda images=images: features(images),  # type: ignore[misc]
                settings.repetitions,
            )
        name = f"forward, {size} image{'s' if size > 1 else ''}"
        yield at_most(name, "bare VGG-16 features", pair, bound)


def latency_rows(settings: Settings) -> Iterator[Row]:
    """A single image through the exported and the compiled network, against the network in torch.

    Both rows are for information. A row whose library or compiler is missing is left out, with a warning.
    """
    if not settings.latency:
        return
    config = settings.config()
    model = fresh_model(config)
    image = torch.rand(1, 3, config.data.image_size, config.data.image_size)
    ready = channels_last(normalise(image, config.data))
    limit = "the network in torch"
    with torch.inference_mode():
        exported = _exported(model, config)
        if exported is not None:
            pair = in_turns(lambda: exported(image), lambda: model(ready), settings.repetitions)
            yield at_most("forward, 1 image: onnxruntime", limit, pair, None)
        compiled = copy_of(model)
        reason = compile_network(compiled, config.data.image_size)
        if reason is None:
            pair = in_turns(lambda: compiled(ready), lambda: model(ready), settings.repetitions)
            yield at_most("forward, 1 image: torch.compile", limit, pair, None)
        else:
            warnings.warn(f"no row for torch.compile: {reason}", stacklevel=2)


def _exported(model: PrototypeNetwork, config: Config) -> Callable[[Tensor], object] | None:
    module = EvidenceModule(copy_of(model), config.data).eval()
    try:
        _, call = to_onnx(module, config.data.image_size, torch.get_num_threads())
    except UserError as error:
        warnings.warn(f"no row for onnxruntime: {error}", stacklevel=2)
        return None
    return call
