"""`protopyramid export`: the model of a run as one file for other programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """File formats of an export."""

    onnx = "onnx"
    torch_export = "torch-export"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    format: Annotated[Format, typer.Option(help="File format.")] = Format.onnx,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write (default: RUN/export/NAME.onnx)."),
    ] = None,
) -> None:
    """Export a run's model as one file: images in, logits, scores and similarity maps out.

    The outputs are checked against torch's; any number of images at once. A JSON file beside it describes
    the preprocessing and what the outputs mean.
    """
    from protopyramid.cli.console import say
    from protopyramid.export import export_run
    from protopyramid.runs.run import load_run

    loaded = load_run(run)
    done = export_run(loaded, "onnx" if format is Format.onnx else "torch-export", out)
    say(f"largest difference from torch: {done.difference:.1e}")
    say(str(done.path))
    say(str(done.description))
