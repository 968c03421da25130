"""`protopyramid predict`: class probabilities of images."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from protopyramid.cli.options import (
    IMAGES_HELP,
    Compile,
    CropOption,
    Lesions,
    Regions,
    RegionsMm,
    RunPath,
    TableSplit,
)
from protopyramid.cli.regions import marked_boxes
from protopyramid.errors import UserError


def predict(
    run: RunPath,
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES|MANIFEST", help=IMAGES_HELP)],
    out: Annotated[Path, typer.Option(metavar="CSV", help="Table to write.")],
    split: TableSplit = None,
    region: Regions = None,
    region_mm: RegionsMm = None,
    lesion: Lesions = None,
    crop: CropOption = None,
    compile: Compile = False,
) -> None:
    """Predict class probabilities, strongest prototypes, and whether an image is unlike the training data.

    An image that cannot be read is reported and left out; the exit code is then 2.
    """
    from protopyramid import api
    from protopyramid.cli.console import say
    from protopyramid.inference.prediction import predictions_csv
    from protopyramid.utils.files import refuse_special, write_text
    from protopyramid.utils.progress import progress_bar

    refuse_special(out)  # before the images are looked at
    failed: list[str] = []
    with progress_bar("predict") as update:
        records = api.predict(
            run,
            images,
            split=split,
            **marked_boxes(region, region_mm, lesion),
            crop=crop,
            compile=compile,
            progress=update,
            unreadable=lambda path, error: failed.append(str(error)),
        )
    write_text(out, predictions_csv(records, list(records[0]["probabilities"])))
    _warn_of_unlike(run, records)
    say(str(out))
    if failed:
        total = len(failed) + len(records)
        raise UserError(
            f"{len(failed)} of {total} images are left out of {out}: {'; '.join(failed)}"
        )


def _warn_of_unlike(run: Path, records: Sequence[Mapping[str, Any]]) -> None:
    from protopyramid.inference.ood import FALSE_FLAGS

    unlike = [record["image"] for record in records if record["unlike_training"]]
    if unlike:
        more = " and others" if len(unlike) > 1 else ""
        warnings.warn(
            f"{len(unlike)} of {len(records)} images are flagged as unlike the training data (about "
            f"{FALSE_FLAGS:.0%} of images like the training data are): {unlike[0]}{more}",
            stacklevel=1,
        )
    elif records[0]["unlike_training"] is None:
        warnings.warn(
            f"{run}: has no thresholds.json of this version, so no image is flagged as unlike the "
            f"training data; create it with: protopyramid evaluate {run} --split validation",
            stacklevel=1,
        )
