"""`protopyramid data`: make a dataset of phantoms, check a manifest."""

import os
from pathlib import Path
from typing import Annotated

import typer

from protopyramid.cli.help import Help, help_unless_command

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True, add_help_option=False)
def data(context: typer.Context, help: Help = False) -> None:
    """Make and check the data of training."""
    help_unless_command(context)


@app.command()
def phantom(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same seed gives the same bytes.")] = 0,
    patients: Annotated[int, typer.Option(min=1, help="Number of patients.")] = 250,
    patches: Annotated[int, typer.Option(min=1, help="Patches of each patient.")] = 4,
    size: Annotated[int, typer.Option(min=32, help="Side of a patch in pixels.")] = 224,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0 = one a processor.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder in use.")] = False,
) -> None:
    """Write synthetic mammogram patches with masks, lesion boxes and a manifest."""
    from protopyramid.cli.console import new_folder, progress, say

    new_folder(folder, force)  # before the slow imports: a wrong folder is refused at once
    from protopyramid.data.phantoms import write_phantoms

    with progress("phantoms") as update:
        manifest = write_phantoms(
            folder,
            seed=seed,
            patients=patients,
            patches=patches,
            size=size,
            workers=workers or os.cpu_count() or 1,
            progress=update,
        )
    say(str(manifest))


@app.command()
def check(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="The manifest, a CSV file.")],
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Write a sheet of example images.")
    ] = None,
) -> None:
    """Say what a manifest holds and what is wrong with it."""
    from protopyramid.cli.console import say
    from protopyramid.data.check import check_manifest, contact_sheet, render
    from protopyramid.data.manifest import read_manifest
    from protopyramid.errors import UserError

    report = check_manifest(manifest)
    say(render(report).rstrip())
    if report.errors:
        first, more = report.errors[0], len(report.errors) - 1
        raise UserError(f"{manifest}: {first}" + (f" (and {more} more)" if more else ""))
    if out is not None:
        contact_sheet(read_manifest(manifest), out)
        say(str(out))
