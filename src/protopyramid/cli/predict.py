"""`protopyramid predict`: class probabilities of images."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGES|MANIFEST",
            help="Images, folders (with their subfolders), or a table (CSV) with a column image.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="CSV", help="Table to write.")],
    split: Annotated[
        str | None, typer.Option(help="Only the rows of this split of the table.")
    ] = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the network first; pays for many images.")
    ] = False,
) -> None:
    """Predict class probabilities, strongest prototypes, and whether an image is unlike the training data."""
    from protopyramid import api
    from protopyramid.cli.console import say
    from protopyramid.inference.prediction import predictions_csv, write_csv
    from protopyramid.utils.progress_bar import progress_bar

    with progress_bar("predict", "images") as update:
        records = api.predict(run, images, split=split, compile=compile, progress=update)
    write_csv(out, predictions_csv(records, list(records[0]["probabilities"])))
    _warn_of_unlike(run, records)
    say(str(out))


def _warn_of_unlike(run: Path, records: Sequence[Mapping[str, Any]]) -> None:
    from protopyramid.inference.ood import FALSE_FLAGS

    unlike = [record["image"] for record in records if record["unlike_training"]]
    if unlike:
        more = " and others" if len(unlike) > 1 else ""
        warnings.warn(
            f"{len(unlike)} of {len(records)} images are flagged as unlike the training data (about "
            f"{FALSE_FLAGS:.0%} of ordinary images are): {unlike[0]}{more}",
            stacklevel=1,
        )
    elif records[0]["unlike_training"] is None:
        warnings.warn(
            f"{run}: has no thresholds.json of this version, so no image is flagged as unlike the "
            f"training data; create it with: protopyramid evaluate {run} --split validation",
            stacklevel=1,
        )
