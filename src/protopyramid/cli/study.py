"""`protopyramid study`: many runs that answer one question."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protopyramid.errors import UserError

if TYPE_CHECKING:
    from protopyramid.studies.study import Place


def study(
    file: Annotated[Path, typer.Argument(metavar="STUDY", help="The study, a TOML file.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for its runs and tables.")],
    data: Annotated[
        Path | None, typer.Option(metavar="MANIFEST", help="The dataset, if the study needs one.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of every variant."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds that replace the study's own, as in 0,1.")] = "",
    workers: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    variants: Annotated[
        str,
        typer.Option(metavar="A,B", help="Only these variants, and those that they start from."),
    ] = "",
    only: Annotated[
        str, typer.Option(metavar="VARIANT", help="Run this variant only, and write no tables.")
    ] = "",
    fold: Annotated[
        int | None, typer.Option(min=0, help="With --only: run this fold only (dealing = 2).")
    ] = None,
    kept: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Results by source, without models: kept ones are not trained again, new ones are added.",
        ),
    ] = None,
) -> None:
    """Train and measure the variants of a study with every seed, and write its tables.

    The same command continues a study that was stopped.
    """
    from protopyramid.cli.console import parse_numbers, say, say_lines, say_on_stderr

    chosen = parse_numbers(seeds, "--seeds") if seeds else None
    from protopyramid.utils.opening import is_file

    if not is_file(file):
        raise UserError(f"{file}: no such study; give a TOML file, as in studies/phantom.toml")
    from protopyramid.studies.study import Place, run_study

    place = Place(file, out, data, tuple(set_ or ()), kept)
    if only:
        _one(place, only, chosen, fold)
        return
    if fold is not None:
        raise UserError("--fold: give --only VARIANT too")
    named = [name.strip() for name in variants.split(",") if name.strip()]
    say_lines(run_study(place, chosen, workers, say=say_on_stderr, variants=named))
    say(str(out / f"{file.stem}.md"))


def _one(place: "Place", only: str, seeds: list[int] | None, fold: int | None) -> None:
    from protopyramid.cli.train import stop_in_order
    from protopyramid.studies.study import run_variant
    from protopyramid.utils.processes import stop_with_parent

    stop_with_parent()
    with stop_in_order("the same command"):
        run_variant(place, only, seeds, fold)
