"""`protopyramid prototypes`: what the prototypes are, what they are near to, and pruning."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protopyramid.data.manifest import Sample
    from protopyramid.prototypes.neighbours import Neighbour
    from protopyramid.prototypes.pruning import Pruned
    from protopyramid.runs.run import Run


def prototypes(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to write to; else RUN, or RUN-pruned."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="MANIFEST", help="The manifest; else the one of training, if there."),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Write a run without prototypes near other classes.")
    ] = False,
    remove: Annotated[
        str, typer.Option(metavar="N,N", help="Write a run without these prototypes.")
    ] = "",
    nearest: Annotated[int, typer.Option(min=1, help="Nearest images of each prototype.")] = 6,
    least: Annotated[
        int, typer.Option(min=1, help="Of these, so many must be of its class to stay (--prune).")
    ] = 3,
    jet: Annotated[bool, typer.Option("--jet", help="The paper's colour map, jet.")] = False,
) -> None:
    """Show the prototypes by class and level with their nearest images; prune them."""
    from protopyramid.errors import UserError

    numbers = parse_numbers(remove)
    if prune and numbers:
        raise UserError("--prune, --remove: choose one; --prune finds the prototypes itself")
    if out is not None and out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file; give a folder to write to")
    from protopyramid.prototypes.cases import layer_of
    from protopyramid.runs.run import load_run

    loaded = load_run(run)
    layer_of(loaded.model)
    if prune or numbers:
        _prune(loaded, data, out or Path(f"{loaded.folder.path}-pruned"), numbers, nearest, least)
    else:
        _show(loaded, data, out or loaded.folder.path, nearest, jet)


def parse_numbers(text: str) -> list[int]:
    """Numbers of prototypes.

    >>> parse_numbers("3, 7")
    [3, 7]
    """
    from protopyramid.errors import UserError

    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise UserError(f'--remove: expected numbers such as 3,7, got "{text}"')
    return [int(part) for part in parts]


def _show(run: "Run", data: Path | None, out: Path, count: int, jet: bool) -> None:
    import warnings

    from protopyramid.cli.console import say
    from protopyramid.figures.drawing import COLOUR_MAP, JET
    from protopyramid.reports.gallery import write_gallery, write_nearest
    from protopyramid.runs.provenance import training_manifest

    say(str(write_gallery(run, out, JET if jet else COLOUR_MAP)))
    if data is None and training_manifest(run) is None:
        warnings.warn(
            f"{run.folder.path}: its manifest is gone, so that nearest images are left out; "
            "give it with --data MANIFEST",
            stacklevel=1,
        )
        return
    found = {}
    for split in ("train", "test"):
        samples = _samples(run, data, split)
        if samples:
            found[split] = _nearest(run, samples, count, split)
    for path in write_nearest(run, found, out):
        say(str(path))


def _samples(run: "Run", data: Path | None, split: str) -> "tuple[Sample, ...]":
    """The samples of a split, as training split them; () where it has none."""
    from protopyramid.data.manifest import read_manifest
    from protopyramid.errors import UserError
    from protopyramid.runs import layout
    from protopyramid.runs.provenance import find_manifest, split_samples

    manifest = read_manifest(find_manifest(run, data), run.config.data.classes)
    splits = run.folder.read_json(layout.DATA).get("splits", {})
    try:
        return split_samples(manifest, split, splits)
    except UserError:
        return ()


def _nearest(
    run: "Run", samples: "Sequence[Sample]", count: int, split: str
) -> "list[list[Neighbour]]":
    from protopyramid.cli.console import progress
    from protopyramid.prototypes.neighbours import nearest_images

    with progress(f"nearest in {split}") as update:
        return nearest_images(run, samples, count, update)


def _prune(
    run: "Run", data: Path | None, out: Path, numbers: list[int], count: int, least: int
) -> None:
    from protopyramid.cli.console import new_folder, say
    from protopyramid.errors import UserError
    from protopyramid.prototypes.neighbours import misplaced
    from protopyramid.prototypes.pruning import kept_prototypes, prune

    train = _samples(run, data, "train")
    if not train:
        raise UserError(f"{data or run.folder.path}: no training rows, on which the head is fitted")
    removed = numbers or misplaced(run, _nearest(run, train, count, "train"), least)
    if not removed:
        say(
            f"nothing to prune: every prototype has {least} of its {count} nearest in its own class"
        )
        return
    kept_prototypes(run, removed)  # refused before anything is written
    new_folder(out)
    _say_cost(run, prune(run, removed, out, train, _samples(run, data, "validation")))


def _say_cost(run: "Run", pruned: "Pruned") -> None:
    from protopyramid.cli.console import say

    for index in pruned.removed:
        record = run.prototypes[index]
        say(
            f"removed prototype {index}: {record.class_name}, level {record.level}, of {record.image}"
        )
    total = len(run.prototypes)
    say(f"{len(pruned.removed)} of {total} prototypes removed, the head fitted anew")
    if pruned.before is None or pruned.after is None:
        say("what it cost is unknown: there are no validation rows")
    else:
        before, after = pruned.before, pruned.after
        say(f"validation AUROC {_figure(before.auroc)} before, {_figure(after.auroc)} after")
        say(
            f"validation accuracy {_figure(before.accuracy)} before, {_figure(after.accuracy)} after"
        )
    say(str(pruned.run.folder.path))


def _figure(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
