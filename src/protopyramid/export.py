"""The whole model as one file that runs without protopyramid: ONNX, or torch's own export.

The file takes images in [0, 1], normalises them as in training, and gives the evidence: `logits`, `scores`
and a similarity map `map_LEVEL` for each level with prototypes. The number of images is free. A JSON file
beside it says what the numbers mean. Nothing is written before the outputs were compared with torch's.
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from protopyramid.config.schema import DataConfig
from protopyramid.data.images import normalise
from protopyramid.errors import UserError
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run
from protopyramid.utils.callable_modules import make_callable

make_callable(__name__, "protopyramid.api:export")  # pp.export(run)

Format = Literal["onnx", "torch-export"]
SUFFIXES: dict[Format, str] = {"onnx": ".onnx", "torch-export": ".pt2"}
TOLERANCE = 1e-4  # largest difference from torch that is accepted, on any output
CHECKED_BATCHES = (1, 3)
TRACED_BATCH = 2  # not 1: sizes of 1 would be taken as fixed
INPUT = "images"


@dataclass(frozen=True)
class Exported:
    """Where an export went, and its largest difference from torch."""

    path: Path
    description: Path
    difference: float


class EvidenceModule(nn.Module):
    """The network from images in [0, 1] to a flat tuple of evidence."""

    def __init__(self, model: PrototypeNetwork, data: DataConfig) -> None:
        super().__init__()
        self.model, self.data = model, data

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """(B, 3, S, S) -> logits (B, C), scores (B, m), then a map (B, m_level, H, W) a level."""
        evidence = self.model(normalise(images, self.data))
        return (evidence.logits, evidence.scores, *evidence.maps.values())


def output_names(model: PrototypeNetwork) -> list[str]:
    """Names of the outputs, in order."""
    levels = [] if model.prototypes is None else list(model.prototypes.slices)
    return ["logits", "scores", *(f"map_{level}" for level in levels)]


def export_run(run: Run, kind: Format = "onnx", out: Path | None = None) -> Exported:
    """Write the model of a run as one file, checked against torch to 1e-4.

    ONNX goes to `export/NAME.onnx` in the run's folder by default. torch's format holds a pickled sample
    input, so it is written outside the run folder only. `NAME.json` beside the file describes inputs,
    outputs, classes and prototypes.
    """
    module = EvidenceModule(run.model.cpu().eval(), run.config.data).eval()
    size = run.config.data.image_size
    content, call = (to_onnx if kind == "onnx" else _to_torch_export)(module, size)
    difference = largest_difference(module, call, size)
    if not difference <= TOLERANCE:
        raise RuntimeError(f"the export differs from torch by {difference:.1e}: it is not written")
    path = out or run.folder / f"export/{run.name}{SUFFIXES[kind]}"
    _check_place(path, kind, run)
    folder = RunFolder(path.parent)
    folder.write_bytes(path.name, content)
    description = folder.write_json(path.stem + ".json", describe(run, kind))
    return Exported(path, description, difference)


def _check_place(path: Path, kind: Format, run: Run) -> None:
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give a file to write to")
    if kind == "torch-export" and path.resolve().is_relative_to(run.folder.path.resolve()):
        raise UserError(
            f"{path}: torch's format holds a pickle, and a run folder holds none; "
            "give a place outside it with --out FILE, or take --format onnx"
        )


def largest_difference(
    module: EvidenceModule, call: Callable[[Tensor], Sequence[Tensor]], size: int
) -> float:
    """The largest difference of any output from torch's, over batches of several sizes."""
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    for count in CHECKED_BATCHES:
        images = torch.rand(count, 3, size, size, generator=generator)
        with torch.no_grad():
            expected = module(images)
        for ours, theirs in zip(call(images), expected, strict=True):
            if ours.shape != theirs.shape:
                return float("inf")
            largest = max(largest, float((ours - theirs).abs().max()))
    return largest


def describe(run: Run, kind: Format) -> dict[str, Any]:
    """What the numbers of an export mean."""
    from protopyramid import __version__

    size = run.config.data.image_size
    return {
        "made_by": f"protopyramid {__version__}",
        "format": kind,
        "input": {
            "name": INPUT,
            "shape": ["batch", 3, size, size],
            "values": "0 to 1, grey repeated to three channels; normalised inside",
            "fit": run.config.data.fit,
        },
        "outputs": output_names(run.model),
        "classes": list(run.config.data.classes),
        "prototypes": [record.to_json() for record in run.prototypes],
        "head": run.model.head.weight.detach().tolist(),
    }


def _program(module: EvidenceModule, size: int) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    images = torch.rand(TRACED_BATCH, 3, size, size)
    with torch.no_grad(), _quiet():
        return torch.export.export(module, (images,), dynamic_shapes={INPUT: {0: batch}})


def _to_torch_export(
    module: EvidenceModule, size: int
) -> tuple[bytes, Callable[[Tensor], Sequence[Tensor]]]:
    buffer = io.BytesIO()
    with _quiet():
        torch.export.save(_program(module, size), buffer)
        buffer.seek(0)
        loaded = torch.export.load(buffer).module()

    def call(images: Tensor) -> Sequence[Tensor]:
        with torch.no_grad():
            return tuple(loaded(images))

    return buffer.getvalue(), call


def to_onnx(
    module: EvidenceModule, size: int, threads: int = 0
) -> tuple[bytes, Callable[[Tensor], Sequence[Tensor]]]:
    """The content of an ONNX file, and a function that runs it; 0 threads are as many as cores."""
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            f'--format onnx needs the library "{error.name}"; install protopyramid[export], '
            "or take --format torch-export"
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
    """torch.cdist, which ONNX does not know, of x (B, n, d) and y (B, m, d) -> (B, n, m)."""
    assert p == 2.0
    return (x[:, :, None] - y[:, None]).square().sum(-1).sqrt()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' own messages, which speak to their developers."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
