"""`protopyramid predict`: class probabilities of images."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from protopyramid.runs.run import Run


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGES|MANIFEST",
            help="Images, folders of them, or a table (CSV) with a column image.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="CSV", help="The table to write.")],
    split: Annotated[
        str | None, typer.Option(help="Only the rows of this split of the table.")
    ] = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="Compile the network first: for many images.")
    ] = False,
) -> None:
    """Predict: probabilities, strongest prototypes, and whether an image is unlike any learned."""
    from protopyramid.cli.console import progress, say
    from protopyramid.errors import UserError

    manifest = _manifest(images)
    if split is not None and manifest is None:
        raise UserError("--split: is for a table of images; leave it out for images")
    from protopyramid.inference.ood import FALSE_FLAGS
    from protopyramid.inference.prediction import (
        expand_folders,
        predict_files,
        predict_manifest,
        predictions_csv,
        write_csv,
    )
    from protopyramid.runs.run import load_run

    loaded = load_run(run)
    if compile:
        compile_run(loaded)
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
            f"{len(unlike)} of {len(records)} images are flagged as unlike the training data (of "
            f"ordinary ones, about {FALSE_FLAGS:.0%} are): {unlike[0]}{more}",
            stacklevel=1,
        )
    elif records[0]["unlike_training"] is None:
        warnings.warn(
            f"{run}: has no thresholds.json of this version, so that no image is flagged as unlike the "
            f"training data; protopyramid evaluate {run} --split validation makes it",
            stacklevel=1,
        )
    say(str(out))


def compile_run(run: "Run") -> None:
    """Compile a run's network, or say why it runs as it is."""
    from protopyramid.inference.batches import compile_network

    reason = compile_network(run.model, run.config.data.image_size)
    if reason is not None:
        warnings.warn(f"--compile: {reason}; the network runs as it is", stacklevel=1)


def _manifest(paths: list[Path]) -> Path | None:
    """The manifest among the arguments, if that is what was given."""
    from protopyramid.errors import UserError

    tables = [path for path in paths if path.suffix.lower() == ".csv"]
    if not tables:
        return None
    if len(paths) > 1:
        raise UserError(f"{tables[0]}: give either one manifest or images, not both")
    return tables[0]
