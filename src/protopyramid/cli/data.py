"""`protopyramid data`: draw phantoms, import a public dataset, sample negatives, join and check manifests."""

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protopyramid.cli.help import Help, help_unless_command
from protopyramid.cli.options import DataSeed, FolderArgument, Workers

if TYPE_CHECKING:
    from protopyramid.config.schema import MarginBandConfig

app = typer.Typer(rich_markup_mode=None)
FORMATS = (
    "One of cbis-ddsm, mini-mias, inbreast, vindr-mammo, cdd-cesm, cmmd, coco, labelme, folders."
)


class Mixed(StrEnum):
    """What to do with masses that have several margins."""

    DROP = "drop"
    FIRST = "first"


class Margins(StrEnum):
    """The classes of an import."""

    THREE = "three"
    FIVE = "five"


class Regions(StrEnum):
    """What to do with films that have several outlines."""

    ONLY = "only"
    ALL = "all"


@app.callback(invoke_without_command=True, add_help_option=False)
def data(context: typer.Context, help: Help = False) -> None:
    """Make and check training data."""
    help_unless_command(context)


@app.command()
def phantom(
    folder: FolderArgument,
    seed: DataSeed = 0,
    patients: Annotated[int, typer.Option(min=1, help="Number of patients.")] = 250,
    patches: Annotated[int, typer.Option(min=1, help="Patches per patient.")] = 4,
    size: Annotated[int, typer.Option(min=32, help="Side of a patch, in pixels.")] = 224,
    workers: Workers = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that is not empty.")
    ] = False,
) -> None:
    """Write synthetic mammogram patches with masks, lesion boxes and a manifest."""
    from protopyramid.cli.console import new_folder, say

    # Before the slow imports: a wrong folder is refused at once. One whose phantoms were begun continues.
    new_folder(folder, force or _holds_phantoms_alone(folder))
    from protopyramid.data.phantoms import write_phantoms
    from protopyramid.utils.progress import progress_bar

    with progress_bar("phantoms") as update:
        manifest = write_phantoms(
            folder,
            seed=seed,
            patients=patients,
            patches=patches,
            size=size,
            workers=workers,
            progress=update,
        )
    say(str(manifest))


def _holds_phantoms_alone(folder: Path) -> bool:
    """Whether there are patches of phantoms in a folder, and nothing else: no manifest yet."""
    parts = [each for each in folder.iterdir() if each.is_dir()] if folder.is_dir() else []
    if {each.name for each in parts} - {"images", "masks"}:
        return False
    names = [each.name for part in parts for each in part.iterdir()]
    names += [each.name for each in folder.iterdir() if each not in parts] if parts else []
    ours = re.compile(r"patient\d{4,}-\d+\.png|\.partial-.*|\.lock")
    return bool(parts) and all(ours.fullmatch(name) for name in names)


@app.command(name="import")
def import_(
    name: Annotated[str, typer.Argument(metavar="FORMAT", help=FORMATS)],
    source: Annotated[
        Path, typer.Argument(metavar="SRC", help="Folder of the downloaded dataset.")
    ],
    folder: FolderArgument,
    margin: Annotated[
        float,
        typer.Option(
            min=0, max=4, help="Tissue on each side of a lesion, as a fraction of its longer side."
        ),
    ] = 0.5,
    mixed: Annotated[
        Mixed, typer.Option(help="Masses with several margins: drop them, or take the first.")
    ] = Mixed.DROP,
    margins: Annotated[
        Margins, typer.Option(help="Classes: three, or five with microlobulated and obscured.")
    ] = Margins.THREE,
    test_fraction: Annotated[
        float, typer.Option(min=0, max=0.9, help="Test fraction of a dataset that has no splits.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits and tissue patches.")] = 0,
    regions: Annotated[
        Regions,
        typer.Option(
            help="Films with several outlines and one margin: skip them (only), or take all outlines."
        ),
    ] = Regions.ONLY,
    margin_column: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="Column of the mass margins, if the header of a spreadsheet is not understood.",
        ),
    ] = "",
    workers: Workers = 0,
) -> None:
    """Make crops, masks and a manifest from a public dataset or from annotated images.

    A crop is the square around a lesion with the margin on each side, shifted to stay inside the
    image; where it is larger than the image, it is black beyond the edge. What is not imported is
    listed in DIR/skipped.csv. DIR/films.csv lists the whole films with all their lesions, for
    `data negatives`. The same command continues an import that was stopped.
    """
    from protopyramid.cli.console import say, say_lines
    from protopyramid.data.importers import finder
    from protopyramid.data.importers.base import Options
    from protopyramid.data.importers.writer import check_folder, render, write_dataset
    from protopyramid.utils.progress import progress_bar

    find = finder(name)
    options = Options(
        margin,
        mixed.value,
        margins.value,
        test_fraction,
        seed,
        regions.value,
        margin_column,
    )
    check_folder(source, folder, name, options)
    found = find(source, options)
    with progress_bar("import") as update:
        imported = write_dataset(found, source, folder, name, options, workers, update)
    say_lines(render(imported))
    say(str(imported.manifest))


@app.command()
def negatives(
    films: Annotated[
        list[Path],
        typer.Argument(metavar="FILMS", help="CSV of films and lesions, or folders of films."),
    ],
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write to.")],
    lesions: Annotated[
        Path | None,
        typer.Option(metavar="MANIFEST", help="Lesion crops whose sizes and splits are followed."),
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, help="Number of patches (5,000 in the paper).")
    ] = 5000,
    seed: DataSeed = 0,
    lesion_free: Annotated[
        bool, typer.Option("--lesion-free", help="State that films in folders show no lesion.")
    ] = False,
    patient: Annotated[
        str,
        typer.Option(
            metavar="REGEX", help="Pattern of the patient in a film's name, as in '(P_[0-9]+)'."
        ),
    ] = "",
    tissue: Annotated[
        float, typer.Option(min=0, max=1, help="Minimum share of tissue in a patch.")
    ] = 0.9,
    gap: Annotated[
        float,
        typer.Option(
            min=0, help="Minimum distance from a lesion, as a fraction of its longer side."
        ),
    ] = 0.25,
    overlap: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Maximum overlap of two patches, as a share of their area."
        ),
    ] = 0.25,
    workers: Workers = 0,
) -> None:
    """Cut patches of lesion-free tissue from whole mammograms, for the negative class.

    CSV: `image`, and `patient_id`, `split`, `mask`, `lesion_x0` to `lesion_y1` as in a manifest, in
    pixels of the film; one row per lesion. The same command continues one that was stopped.
    """
    from protopyramid.cli.console import say, say_lines
    from protopyramid.data.manifest import read_manifest
    from protopyramid.data.negatives.dataset import Limits, render, write_negatives
    from protopyramid.data.negatives.sources import read_films
    from protopyramid.utils.progress import progress_bar

    table = read_films(films, lesion_free, patient)
    crops = None if lesions is None else read_manifest(lesions)
    limits = Limits(tissue, gap, overlap)
    with progress_bar("negatives", "films") as update:
        made = write_negatives(table, folder, crops, count, seed, limits, workers, update)
    say_lines(render(made))
    say(str(made.combined or made.manifest))


@app.command()
def join(
    manifests: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=MANIFEST...", help="Manifests, each with a name of its source."
        ),
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The joined manifest (CSV).")],
    margins: Annotated[
        Margins,
        typer.Option(
            help="Labels to keep: three margins and negative, or five with microlobulated and obscured."
        ),
    ] = Margins.THREE,
    classes: Annotated[
        str, typer.Option(metavar="A,B", help="Labels to keep in place of those of --margins.")
    ] = "",
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="Rename a label first.")
    ] = None,
) -> None:
    """Join the manifests of several datasets to one table with a column `source`.

    Images stay where they are. Patient ids get the source in front. Train on the table with
    `--set data.balance=source-class`.
    """
    from protopyramid.cli.console import say, say_lines
    from protopyramid.data import joining

    kept = [each.strip() for each in classes.split(",") if each.strip()]
    joined = joining.join_manifests(
        joining.parse_sources(manifests),
        out,
        kept or joining.CLASSES[margins.value],
        joining.parse_labels(rename or []),
    )
    say_lines(joining.render(joined))
    say(str(out))


@app.command()
def check(
    manifest: Annotated[Path, typer.Argument(metavar="MANIFEST", help="Manifest (CSV).")],
    out: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Write a contact sheet of example images.")
    ] = None,
    band: Annotated[
        str,
        typer.Option(
            metavar="INNER,OUTER",
            help="Draw bands around outlines in place of masks, as data.margin_band, such as 0.07,0.07.",
        ),
    ] = "",
    margin: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=4,
            help='Draw what a model with data.crop = "lesion" and this data.region.margin sees.',
        ),
    ] = None,
) -> None:
    """Report what a manifest holds and what is wrong with it."""
    from protopyramid.cli.console import say, say_lines
    from protopyramid.data.check import View, check_manifest, contact_sheet, render
    from protopyramid.data.manifest import read_manifest
    from protopyramid.errors import UserError

    view = View(_band(band), margin)
    report = check_manifest(manifest)
    say_lines(render(report).rstrip())
    if report.errors:
        first, more = report.errors[0], len(report.errors) - 1
        raise UserError(f"{manifest}: {first}" + (f" (and {more} more)" if more else ""))
    if out is not None:
        contact_sheet(read_manifest(manifest), out, view=view)
        say(str(out))


def _band(text: str) -> "MarginBandConfig | None":
    """The widths of a band, as they are given on the command line."""
    if not text:
        return None
    from pydantic import ValidationError

    from protopyramid.config.schema import MarginBandConfig
    from protopyramid.errors import UserError

    inner, _, outer = text.partition(",")
    try:
        return MarginBandConfig(inner=float(inner), outer=float(outer))
    except (ValueError, ValidationError):
        raise UserError(
            f"--band {text}: give two fractions of the lesion's size from 0 to 1, such as 0.07,0.07"
        ) from None
