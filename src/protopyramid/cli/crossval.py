"""`protopyramid crossval`: train and test on every part of the data in turn."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from protopyramid.cli.options import Accelerator, Assignments, Preset


def crossval(
    preset: Preset,
    data: Annotated[
        Path, typer.Option(help="Manifest of the dataset (CSV); its test rows are never used.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to create; the same command continues in it.")],
    folds: Annotated[int, typer.Option(min=2, help="Number of folds, split by patient.")] = 5,
    seeds: Annotated[
        str, typer.Option(help="Seeds, separated by commas; each has folds of its own.")
    ] = "0",
    set_: Assignments = None,
    backbone_from: Annotated[
        Path | None,
        typer.Option(
            help="Start every run from the backbone of another run, which must not have seen this data."
        ),
    ] = None,
    accelerator: Accelerator = "auto",
) -> None:
    """Cross-validate by patient: one run per fold and seed, and their mean and spread."""
    from protopyramid.cli.console import parse_numbers, say
    from protopyramid.cli.train import stop_in_order
    from protopyramid.config import load_config, parse_assignments
    from protopyramid.studies.crossval import cross_validate, summary_lines

    config = load_config(preset, parse_assignments(set_ or []))
    with stop_in_order(shlex.join(["protopyramid", *sys.argv[1:]])):
        summary = cross_validate(
            config,
            data,
            out,
            folds,
            parse_numbers(seeds, "--seeds"),
            backbone_from=backbone_from,
            accelerator=accelerator,
            say=say,
        )
    for line in summary_lines(summary):
        say(line)
    say(str(out))
