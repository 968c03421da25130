"""`protopyramid crossval`: train and test on every part of the data in turn."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from protopyramid.errors import UserError


def crossval(
    preset: Annotated[str, typer.Argument(help="A preset's name, or a TOML file.")],
    data: Annotated[
        Path, typer.Option(help="The manifest of the dataset (CSV); its test rows are never used.")
    ],
    out: Annotated[Path, typer.Option(help="The folder to make; the same command goes on in it.")],
    folds: Annotated[int, typer.Option(min=2, help="Parts, whole patients each.")] = 5,
    seeds: Annotated[
        str, typer.Option(help="Seeds, separated by commas: each deals the folds anew.")
    ] = "0",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")
    ] = None,
    backbone_from: Annotated[
        Path | None,
        typer.Option(
            help="Start every run from the backbone of another run, which must not have seen this data."
        ),
    ] = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Cross-validate by patient: a run for every fold and seed, and their mean and spread."""
    from protopyramid.config import load_config, parse_assignments
    from protopyramid.studies.crossval import cross_validate, summary_lines
    from protopyramid.utils.signals import Stopped

    config = load_config(preset, parse_assignments(set_ or []))
    try:
        summary = cross_validate(
            config,
            data,
            out,
            folds,
            numbers(seeds),
            backbone_from=backbone_from,
            accelerator=accelerator,
            say=typer.echo,
        )
    except Stopped as stopped:
        command = shlex.join(["protopyramid", *sys.argv[1:]])
        typer.echo(f"{stopped}; everything is saved. Go on with: {command}", err=True)
        raise typer.Exit(stopped.code) from stopped
    for line in summary_lines(summary):
        typer.echo(line)
    typer.echo(out)


def numbers(seeds: str) -> list[int]:
    """The numbers of a list such as 0,1,2."""
    try:
        return [int(word) for word in seeds.split(",")]
    except ValueError:
        raise UserError(f"--seeds: expected numbers as in 0,1,2, got {seeds!r}") from None
