"""The formats of an export: the network as an ONNX file, or in torch's own format."""

from __future__ import annotations

import io
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from protopyramid.config.schema import DataConfig
from protopyramid.data.images import normalise
from protopyramid.errors import UserError
from protopyramid.model.network import PrototypeNetwork

Format = Literal["onnx", "torch-export"]
Call = Callable[[Tensor], Sequence[Tensor]]

SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "torch-export": ".pt2"}
CHECKED_BATCHES = (1, 3)
TRACED_BATCH = 2  # not 1: tracing would take a size of 1 for a constant
INPUT = "images"


class EvidenceModule(nn.Module):
    """The network from images in [0, 1] to a flat tuple: normalisation is inside."""

    def __init__(self, model: PrototypeNetwork, data: DataConfig) -> None:
        super().__init__()
        self.model, self.data = model, data

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """(B, 3, S, S) -> logits (B, C), scores (B, m), then maps (B, m_level, H, W) for each level."""
        evidence = self.model(normalise(images, self.data))
        return (evidence.logits, evidence.scores, *evidence.maps.values())


def output_names(model: PrototypeNetwork) -> list[str]:
    """Names of the outputs, in order."""
    levels = [] if model.prototypes is None else list(model.prototypes.slices)
    return ["logits", "scores", *(f"map_{level}" for level in levels)]


def largest_difference(module: EvidenceModule, call: Call, size: int) -> float:
    """The largest difference between `call` and torch in any output, over batches of several sizes.

    `call`: images (B, 3, size, size) -> the outputs of `module`. Infinite where shapes differ or a value
    is NaN.
    """
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    for count in CHECKED_BATCHES:
        images = torch.rand(count, 3, size, size, generator=generator)
        with torch.no_grad():
            expected = module(images)
        for ours, theirs in zip(call(images), expected, strict=True):
            if ours.shape != theirs.shape:
                return math.inf
            difference = float((ours - theirs).abs().max())
            if math.isnan(difference):  # max() would drop it
                return math.inf
            largest = max(largest, difference)
    return largest


def _program(module: EvidenceModule, size: int) -> torch.export.ExportedProgram:
    """The traced network, for any number of images (B, 3, size, size)."""
    batch = torch.export.Dim("batch", min=1)
    images = torch.rand(TRACED_BATCH, 3, size, size)
    with torch.no_grad(), _quiet():
        return torch.export.export(module, (images,), dynamic_shapes={INPUT: {0: batch}})


def to_torch_export(module: EvidenceModule, size: int) -> tuple[bytes, Call]:
    """The content of a .pt2 file, and a function that runs it."""
    buffer = io.BytesIO()
    with _quiet():
        torch.export.save(_program(module, size), buffer)
        buffer.seek(0)
        loaded = torch.export.load(buffer).module()

    def call(images: Tensor) -> Sequence[Tensor]:
        with torch.no_grad():
            return tuple(loaded(images))

    return buffer.getvalue(), call


def to_onnx(module: EvidenceModule, size: int, threads: int = 0) -> tuple[bytes, Call]:
    """The content of an ONNX file, and a function that runs it (0 threads = one per CPU core)."""
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            f'--format onnx needs the library "{error.name}"; install protopyramid[export], '
            "or use --format torch-export"
        ) from error
    with _quiet():
        plain = _program(module, size).run_decompositions(
            {torch.ops.aten.cdist.default: _distances}
        )
        program = torch.onnx.export(
            plain,
            input_names=[INPUT],
            output_names=output_names(module.model),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    entry = proto.metadata_props.add()
    entry.key, entry.value = "outputs", json.dumps(output_names(module.model))
    content: bytes = proto.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def call(images: Tensor) -> Sequence[Tensor]:
        found = session.run(output_names(module.model), {INPUT: images.numpy()})
        return [torch.from_numpy(array) for array in found]

    return content, call


def _distances(x: Tensor, y: Tensor, p: float = 2.0, mode: int | None = None) -> Tensor:
    """torch.cdist, which ONNX lacks. x (B, n, d), y (B, m, d) -> (B, n, m)."""
    assert p == 2.0
    return (x[:, :, None] - y[:, None]).square().sum(-1).sqrt()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the exporters' own messages, which address their developers."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
