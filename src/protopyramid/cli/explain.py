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
            help="Outline the smallest part that keeps 90 % of a prototype's rise, not the map's top 5 %.",
        ),
    ] = False,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of images (0 = all).")] = 0,
    colour_map: Annotated[
        str, typer.Option("--colour-map", help="Matplotlib colormap for heat maps.")
    ] = "inferno",
    jet: Jet = False,
) -> None:
    """Explain each image: a case-based figure as PNG and PDF, and all numbers as JSON."""
    from protopyramid.cli.console import say
    from protopyramid.utils.files import check_output_folder

    check_output_folder(out)  # before the slow imports
    from protopyramid import api
    from protopyramid.inference.requests import MARK_IT
    from protopyramid.utils.progress import progress_bar

    colours = "jet" if jet else colour_map
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
        evidence=evidence,
    )
    with progress_bar("explain") as update:
        for saved in found:
            update(saved.number, saved.total)
            explanation = saved.explanation
            share = explanation.probabilities[explanation.predicted]
            if explanation.framing:
                warnings.warn(f"{explanation.image}: {explanation.framing} {MARK_IT}", stacklevel=1)
            said = f"{explanation.predicted} {share:.0%}"
            if explanation.unlike_training:
                said = f"unlike the training images ({said})"
            say(f"{saved.paths[0]}  {said}")
