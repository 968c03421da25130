"""`protopyramid export`: the model of a run as one file for other programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """What can be written."""

    onnx = "onnx"
    torch_export = "torch-export"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    format: Annotated[Format, typer.Option(help="The kind of file.")] = Format.onnx,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file to write; else RUN/export/NAME.onnx."),
    ] = None,
) -> None:
    """Export a run's model, from image to logits, scores and similarity maps, checked against torch.

    Any number of images at once. A JSON file beside it says what the numbers mean.
    """
    from protopyramid.cli.console import say
    from protopyramid.export import export_run
    from protopyramid.runs.run import load_run

    loaded = load_run(run)
    done = export_run(loaded, "onnx" if format is Format.onnx else "torch-export", out)
    say(f"largest difference from torch: {done.difference:.1e}")
    say(str(done.path))
    say(str(done.description))
