"""`protopyramid prototypes`: what the prototypes are, which images are nearest to them, and pruning."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protopyramid.cli.options import Jet, RunManifest, RunPath

if TYPE_CHECKING:
    from protopyramid.api import Edited
    from protopyramid.runs.run import Run


def prototypes(
    run: RunPath,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to write to, by default RUN or RUN-pruned."),
    ] = None,
    data: RunManifest = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Write a run without the prototypes near other classes."),
    ] = False,
    remove: Annotated[
        str, typer.Option(metavar="N,N", help="Write a run without these prototypes.")
    ] = "",
    nearest: Annotated[
        int, typer.Option(min=1, help="Number of nearest images per prototype.")
    ] = 6,
    least: Annotated[
        int,
        typer.Option(
            min=1,
            help="Minimum number of same-class neighbours a prototype needs to be kept (--prune).",
        ),
    ] = 3,
    regions: Annotated[
        bool,
        typer.Option(
            "--regions", help="Show in the gallery where each prototype activates, not its patch."
        ),
    ] = False,
    jet: Jet = False,
) -> None:
    """Show the prototypes by class and level with their nearest images, or prune them."""
    from protopyramid.cli.console import parse_numbers, say
    from protopyramid.errors import UserError
    from protopyramid.utils.files import check_output_folder

    numbers = parse_numbers(remove, "--remove")
    if prune and numbers:
        raise UserError("--prune, --remove: choose one; --prune finds the prototypes itself")
    if out is not None:
        check_output_folder(out)
    from protopyramid import api
    from protopyramid.prototypes.cases import layer_of
    from protopyramid.runs.run import load_run
    from protopyramid.utils.progress import progress_bar

    loaded = load_run(run)
    layer_of(loaded.model)  # refuses a model without prototypes
    if not prune and not numbers:
        colours = "jet" if jet else api.COLOUR_MAP
        for path in api.show_prototypes(
            loaded,
            data,
            out,
            nearest=nearest,
            regions=regions,
            colour_map=colours,
            bars=progress_bar,
        ):
            say(str(path))
        return
    pruned = api.prune(
        loaded, data, out, remove=numbers, nearest=nearest, least=least, bars=progress_bar
    )
    if pruned is None:
        say(
            f"nothing to prune: each prototype has at least {least} images of its own class among its "
            f"{nearest} nearest"
        )
    else:
        _say_cost(loaded, pruned)


def _say_cost(run: "Run", edited: "Edited") -> None:
    from protopyramid.cli.console import say

    plan = edited.plan
    for index in plan.removed:
        record = run.prototypes[index]
        say(
            f"removed prototype {index}: {record.class_name}, level {record.level}, from {record.image}"
        )
    total = len(run.prototypes)
    say(f"{len(plan.removed)} of {total} prototypes removed, head fitted again")
    before, after = plan.before.validation, plan.after.validation
    if before is None or after is None:
        say("the cost is unknown: there are no validation rows")
    else:
        say(f"validation AUROC {_figure(before.auroc)} before, {_figure(after.auroc)} after")
        say(
            f"validation accuracy {_figure(before.accuracy)} before, {_figure(after.accuracy)} after"
        )
    if edited.run is not None:
        say(str(edited.run.folder.path))


def _figure(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
