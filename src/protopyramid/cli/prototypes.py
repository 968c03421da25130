"""`protopyramid prototypes`: what they are, which images are nearest to them, and editing them."""

from pathlib import Path
from typing import Annotated

import typer

from protopyramid.cli.options import Jet, RunManifest, RunPath


def prototypes(
    run: RunPath,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder to write to: figures (by default RUN), or the new run (--prune: RUN-pruned).",
        ),
    ] = None,
    data: RunManifest = None,
    prune: Annotated[
        bool,
        typer.Option("--prune", help="Write a run without the prototypes near other classes."),
    ] = False,
    remove: Annotated[
        str,
        typer.Option(
            metavar="N…",
            help="Tell what removing these prototypes costs; with --out, write the run.",
        ),
    ] = "",
    require: Annotated[
        str,
        typer.Option(
            metavar="N…", help="Keep these prototypes in use when the head is fitted again."
        ),
    ] = "",
    at_least: Annotated[
        float | None,
        typer.Option(
            metavar="W",
            help="Least weight of required prototypes for their own class, by default the initial one.",
        ),
    ] = None,
    bound: Annotated[
        float | None,
        typer.Option(
            metavar="LOSS",
            help="List every prototype that could go alone within this increase of the head's loss.",
        ),
    ] = None,
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
    """Show the prototypes by class and level with their nearest images, or edit them."""
    from protopyramid.cli.console import parse_numbers, say
    from protopyramid.cli.editing import say_bound, say_plan
    from protopyramid.errors import UserError
    from protopyramid.utils.files import check_output_folder

    removed, required = parse_numbers(remove, "--remove"), parse_numbers(require, "--require")
    editing = bool(removed or required)
    if prune and (editing or bound is not None):
        raise UserError(
            "--prune, --remove, --require, --bound: choose one; --prune finds the prototypes itself"
        )
    if bound is not None and (editing or bound < 0):
        raise UserError("--bound: expected a loss of at least 0, without --remove and --require")
    if at_least is not None and not required:
        raise UserError("--at-least: belongs to --require; name the prototypes to require")
    if out is not None:
        check_output_folder(out, empty=editing or prune)
    from protopyramid import api
    from protopyramid.prototypes.cases import layer_of
    from protopyramid.prototypes.editing import editor_of
    from protopyramid.runs.provenance import training_manifest
    from protopyramid.runs.run import load_run
    from protopyramid.utils.progress import progress_bar

    loaded = load_run(run)
    layer_of(loaded.model)  # refuses a model without prototypes
    training_manifest(loaded)  # a damaged data.json is told before anything is written
    if bound is not None:
        with progress_bar("scoring images") as update:
            editor = editor_of(loaded, data, update)
        say_bound(loaded, editor, bound)
    elif prune:
        found = api.prune(loaded, data, out, nearest=nearest, least=least, bars=progress_bar)
        if found is None:
            say(
                f"nothing to prune: each prototype has at least {least} images of its own class among its "
                f"{nearest} nearest"
            )
        else:
            say_plan(loaded, found.plan)
            say(str(out or f"{loaded.folder.path}-pruned"))
    elif editing:
        asked = required if at_least is None else dict.fromkeys(required, at_least)
        plan = api.plan_edit(loaded, remove=removed, require=asked, data=data, bars=progress_bar)
        say_plan(loaded, plan)
        if out is None:
            say("nothing is written; --out NEW_RUN writes the run")
        else:
            say(str(api.write_edit(loaded, plan, out, data=data).folder.path))
    else:
        for path in api.show_prototypes(
            loaded,
            data,
            out,
            nearest=nearest,
            regions=regions,
            colour_map="jet" if jet else api.COLOUR_MAP,
            bars=progress_bar,
        ):
            say(str(path))
