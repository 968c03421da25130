"""`protopyramid predict`: class probabilities of images."""

import warnings
from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGES|MANIFEST", help="Images, folders of them, or a manifest."),
    ],
    out: Annotated[Path, typer.Option(metavar="CSV", help="The table to write.")],
    split: Annotated[
        str | None, typer.Option(help="Only this split of the manifest: train, validation or test.")
    ] = None,
) -> None:
    """Predict: probabilities, strongest prototypes, and whether an image is unlike any learned."""
    from protopyramid.cli.console import progress, say
    from protopyramid.errors import UserError

    manifest = _manifest(images)
    if split is not None and manifest is None:
        raise UserError("--split: is for a manifest; leave it out for images")
    from protopyramid.evaluation.prediction import (
        expand_folders,
        predict_files,
        predict_manifest,
        predictions_csv,
        write_csv,
    )
    from protopyramid.run import load_run

    loaded = load_run(run)
    with progress("predict") as update:
        if manifest is None:
            records = predict_files(loaded, expand_folders(images), update)
        else:
            records = predict_manifest(loaded, manifest, split, update)
    write_csv(out, predictions_csv(records, loaded.config.data.classes))
    unlike = [record["image"] for record in records if record["unlike_training"]]
    if unlike:
        more = " and others" if len(unlike) > 1 else ""
        warnings.warn(
            f"{len(unlike)} of {len(records)} images are unlike the training data: "
            f"{unlike[0]}{more}",
            stacklevel=1,
        )
    elif records[0]["nearest"] is not None and records[0]["unlike_training"] is None:
        warnings.warn(
            f"{run}: has no thresholds.json, so that no image is flagged as unlike the training data; "
            f"protopyramid evaluate {run} --split validation makes it",
            stacklevel=1,
        )
    say(str(out))


def _manifest(paths: list[Path]) -> Path | None:
    """The manifest among the arguments, if that is what was given."""
    from protopyramid.errors import UserError

    tables = [path for path in paths if path.suffix.lower() == ".csv"]
    if not tables:
        return None
    if len(paths) > 1:
        raise UserError(f"{tables[0]}: give either one manifest or images, not both")
    return tables[0]
