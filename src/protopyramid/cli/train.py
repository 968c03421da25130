"""`protopyramid train`: train a model."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
    cache: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep cached maps here, for other runs to share."),
    ] = None,
    devices: Annotated[int, typer.Option(min=1, help="Processes, one a device.")] = 1,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    resume: Annotated[bool, typer.Option(help="Go on with a run that was stopped.")] = False,
) -> None:
    """Train a model on a manifest."""
    from protopyramid.config import load_config, parse_assignments
    from protopyramid.training.distributed import is_rank_zero
    from protopyramid.training.engine import train_run

    config = load_config(preset, parse_assignments(set_ or []))
    with stop_in_order(resume_command()):
        train_run(
            config,
            data,
            out,
            backbone_from=backbone_from,
            devices=devices,
            accelerator=accelerator,
            resume=resume,
            cache=cache,
        )
    if is_rank_zero():
        complete(out)
        typer.echo(out)


def complete(out: Path) -> None:
    """What a finished run holds beyond its training: limits for unlike images, and the model card."""
    from protopyramid.inference.ood import FILE, write_threshold
    from protopyramid.reports.model_card import write_model_card
    from protopyramid.reports.report import CARD
    from protopyramid.runs.run import load_run

    run = load_run(out)
    if not (run.folder / FILE).is_file():
        write_threshold(run)
    if not (run.folder / CARD).is_file():
        write_model_card(run)


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
        typer.echo(f"{stopped}; everything is saved. Go on with: {command}", err=True)
        raise typer.Exit(stopped.code) from stopped


def resume_command() -> str:
    """The command that goes on with this one."""
    words = [word for word in sys.argv[1:] if word != "--resume"]
    start = ["protopyramid"]
    if "TORCHELASTIC_RUN_ID" in os.environ:
        local, world = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
        nodes = ["--nnodes", str(world // local)] if world > local else []
        start = ["torchrun", *nodes, "--nproc-per-node", str(local), "-m", "protopyramid"]
    return shlex.join([*start, *words, "--resume"])
