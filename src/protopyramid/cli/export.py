"""`protopyramid export`: the model of a run as one file for other programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from protopyramid.cli.options import RunPath


class Format(StrEnum):
    """The file formats."""

    onnx = "onnx"
    torch_export = "torch-export"


def export(
    run: RunPath,
    format: Annotated[Format, typer.Option(help="File format.")] = Format.onnx,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write, by default RUN/export/NAME.onnx."),
    ] = None,
) -> None:
    """Export a run's model, from image to logits, scores and similarity maps, checked against torch.

    The exported model takes any number of images at once. A JSON file beside it describes its inputs and
    outputs.
    """
    from protopyramid import api
    from protopyramid.cli.console import say

    done = api.export(run, "onnx" if format is Format.onnx else "torch-export", out)
    say(f"largest difference from torch: {done.difference:.1e}")
    say(str(done.path))
    say(str(done.description))
