"""`protopyramid train`: train a model."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from protopyramid.cli.options import Accelerator, Assignments, Preset
from protopyramid.errors import UserError, printable


def train(
    preset: Preset,
    data: Annotated[Path, typer.Option(help="Manifest of the dataset (CSV).")],
    out: Annotated[Path, typer.Option(help="Run folder to create.")],
    set_: Assignments = None,
    backbone_from: Annotated[
        Path | None,
        typer.Option(help="Start from the backbone of another run, as the paper does."),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep cached maps here, so that other runs can share them."
        ),
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="Number of processes, one per device.")] = 1,
    accelerator: Accelerator = "auto",
    resume: Annotated[bool, typer.Option(help="Continue a run that was stopped.")] = False,
) -> None:
    """Train a model on a manifest."""
    from protopyramid import api
    from protopyramid.cli.console import say
    from protopyramid.config import load_config, parse_assignments
    from protopyramid.training.distributed import is_rank_zero
    from protopyramid.utils.files import DiskFull

    config = load_config(preset, parse_assignments(set_ or []))
    try:
        with stop_in_order(resume_command()):
            api.train(
                config,
                data,
                out,
                backbone_from=backbone_from,
                devices=devices,
                accelerator=accelerator,
                resume=resume,
                cache=cache,
            )
    except DiskFull as error:
        advice = "free some space, then continue with --resume"
        raise UserError(f"{error.target}: the disk is full; {advice}") from error
    if is_rank_zero():
        say(str(out))


@contextmanager
def stop_in_order(command: str) -> Iterator[None]:
    """Within it, a training that a signal stops ends the command with the signal's exit code."""
    from protopyramid.training.distributed import ErrorElsewhere, is_rank_zero
    from protopyramid.utils.signals import Stopped

    try:
        yield
    except ErrorElsewhere:
        raise typer.Exit(0) from None
    except Stopped as stopped:
        if not is_rank_zero():
            raise typer.Exit(0) from None
        typer.echo(printable(stopped.advice(command)), err=True)
        raise typer.Exit(stopped.code) from stopped


def resume_command() -> str:
    """The command that continues this one."""
    words = [word for word in sys.argv[1:] if word != "--resume"]
    start = ["protopyramid"]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        local, world = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
        nodes = ["--nnodes", str(world // local)] if world > local else []
        start = ["torchrun", *nodes, "--nproc-per-node", str(local), "-m", "protopyramid"]
    return shlex.join([*start, *words, "--resume"])
