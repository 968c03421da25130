"""Writing an export: the model file, checked against torch, and its description."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from protopyramid.errors import UserError
from protopyramid.exporting.description import describe
from protopyramid.exporting.formats import (
    SUFFIXES,
    EvidenceModule,
    Format,
    largest_difference,
    to_onnx,
    to_torch_export,
)
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run
from protopyramid.utils.files import inside
from protopyramid.utils.opening import is_folder, real_path

TOLERANCE = 1e-4  # ours: the largest difference from torch that is accepted, in any output


@dataclass(frozen=True)
class Exported:
    """Where an export was written, and its largest difference from torch."""

    path: Path
    description: Path
    difference: float


def export_run(run: Run, kind: Format = "onnx", out: Path | None = None) -> Exported:
    """Write the model of a run as one file whose outputs agree with torch's to 1e-4.

    By default, ONNX goes to `export/NAME.onnx` in the run's folder. torch's format contains a pickled
    sample input, so it is only written outside run folders. `NAME.json` beside the file describes
    preprocessing, inputs, outputs, classes and prototypes.
    """
    if not isinstance(kind, str) or kind not in SUFFIXES:
        raise TypeError(f"format: expected one of {', '.join(SUFFIXES)}, got {str(kind)[:40]!r}")
    path = out or inside(run.folder.path, layout.exported(run.name, SUFFIXES[kind]))
    _check_place(path, kind, run)  # before the minute that an export takes
    module = EvidenceModule(run.model.cpu().eval(), run.config.data).eval()
    size = run.config.data.image_size
    content, call = (to_onnx if kind == "onnx" else to_torch_export)(module, size)
    difference = largest_difference(module, call, size)
    if not difference <= TOLERANCE:
        raise RuntimeError(
            f"the export differs from torch by {difference:.1e}, so it was not written"
        )
    folder = RunFolder(path.parent)
    folder.write_bytes(path.name, content)
    description = folder.write_json(path.stem + ".json", describe(run, kind))
    return Exported(path, description, difference)


def _check_place(path: Path, kind: Format, run: Run) -> None:
    if is_folder(path):
        raise UserError(f"{path}: is a folder; give a file to write to")
    if path.suffix == ".json":
        raise UserError(
            f"{path}: the description would be written over the model; "
            f"give a file that ends in {SUFFIXES[kind]}"
        )
    if kind == "torch-export" and real_path(path).is_relative_to(real_path(run.folder.path)):
        raise UserError(
            f"{path}: torch's format contains a pickle, which a run folder must not; "
            "give a file outside it with --out FILE, or use --format onnx"
        )
