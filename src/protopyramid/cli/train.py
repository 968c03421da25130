"""`protopyramid train`: train a model."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def train(
    preset: Annotated[str, typer.Argument(help="A preset's name, or a TOML file.")],
    data: Annotated[Path, typer.Option(help="The manifest of the dataset (CSV).")],
    out: Annotated[Path, typer.Option(help="The run folder to make.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")
    ] = None,
    backbone_from: Annotated[
        Path | None, typer.Option(help="Start from the backbone of another run (the paper's way).")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="Processes, one a device.")] = 1,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    resume: Annotated[bool, typer.Option(help="Go on with a run that was stopped.")] = False,
) -> None:
    """Train a model on a manifest."""
    from protopyramid.config import load_config
    from protopyramid.config.loading import parse_assignments
    from protopyramid.training.engine import train_run
    from protopyramid.training.signals import Stopped

    config = load_config(preset, parse_assignments(set_ or []))
    try:
        train_run(
            config,
            data,
            out,
            backbone_from=backbone_from,
            devices=devices,
            accelerator=accelerator,
            resume=resume,
        )
    except Stopped as stopped:
        words = [word for word in sys.argv[1:] if word != "--resume"]
        command = shlex.join(["protopyramid", *words, "--resume"])
        typer.echo(f"{stopped}; everything is saved. Go on with: {command}", err=True)
        raise typer.Exit(stopped.code) from stopped
    typer.echo(out)
