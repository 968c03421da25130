"""`protopyramid explain`: why the model says what it says about each image."""

import warnings
from pathlib import Path
from typing import Annotated

import typer

from protopyramid.cli.options import (
    IMAGES_HELP,
    CropOption,
    Jet,
    Lesions,
    OutFolder,
    Regions,
    RegionsMm,
    RunPath,
    TableSplit,
)
from protopyramid.cli.regions import marked_boxes
from protopyramid.errors import UserError


def explain(
    run: RunPath,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE…", help=IMAGES_HELP)],
    out: OutFolder,
    top: Annotated[int, typer.Option(min=1, help="Number of prototypes shown.")] = 5,
    split: TableSplit = None,
    region: Regions = None,
    region_mm: RegionsMm = None,
    lesion: Lesions = None,
    crop: CropOption = None,
    evidence: Annotated[
        bool,
        typer.Option(
            "--evidence",
            help="Outline the smallest part that keeps 90 % of a prototype's rise (the default).",
        ),
    ] = False,
    strongest: Annotated[
        bool,
        typer.Option(
            "--strongest",
            help="Outline the map's strongest 5 % instead, as the paper does: faster.",
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS",
            help="Class that the predicted one is compared with, by default the runner-up.",
        ),
    ] = None,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="LIST",
            help="What to write: png, pdf, svg (figure), json (numbers).",
        ),
    ] = "png,json",
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of images (0 = all).")] = 0,
    colour_map: Annotated[
        str, typer.Option("--colour-map", help="Matplotlib colormap for heat maps.")
    ] = "inferno",
    jet: Jet = False,
) -> None:
    """Explain each image: a figure of why this class and not another, and all numbers as JSON.

    An image that cannot be read is reported and left out; the exit code is then 2.
    """
    from protopyramid.cli.console import say
    from protopyramid.utils.files import check_output_folder

    check_output_folder(out)  # before the slow imports
    from protopyramid import api
    from protopyramid.inference.requests import MARK_IT
    from protopyramid.utils.progress import progress_bar

    colours = "jet" if jet else colour_map
    failed: list[str] = []
    found = api.explain_all(
        run,
        images,
        out,
        split=split,
        **marked_boxes(region, region_mm, lesion),
        crop=crop,
        limit=limit,
        top=top,
        colour_map=colours,
        evidence=True if evidence else False if strongest else None,
        against=against,
        formats=format.split(","),
        unreadable=lambda path, error: failed.append(str(error)),
    )
    done = 0
    with progress_bar("explain") as update:
        for saved in found:
            update(saved.number, saved.total)
            explanation = saved.explanation
            done += 1
            if explanation.framing:
                warnings.warn(f"{explanation.image}: {explanation.framing} {MARK_IT}", stacklevel=1)
            say(f"{saved.paths[0]}  {explanation.summary}")
    if failed:
        total = len(failed) + done
        raise UserError(f"{len(failed)} of {total} images are left out: {'; '.join(failed)}")
