"""`protopyramid explain`: why the model says what it says of each image."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

KINDS = (".png", ".pdf", ".json")


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder.")],
    images: Annotated[
        list[Path],
        typer.Argument(
            metavar="IMAGE…", help="Images, folders of them, or a table (CSV) with a column image."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")],
    top: Annotated[int, typer.Option(min=1, help="Prototypes shown, those that matter most.")] = 5,
    split: Annotated[
        str | None, typer.Option(help="Only the rows of this split of the table.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most so many images; 0 = all.")] = 0,
    colour_map: Annotated[
        str, typer.Option("--colour-map", help="matplotlib's name of the heat's colours.")
    ] = "inferno",
    jet: Annotated[bool, typer.Option("--jet", help="The paper's colour map, jet.")] = False,
) -> None:
    """Explain: the case-based figure of each image as PNG and PDF, and all its numbers as JSON."""
    from protopyramid.cli.console import progress, say
    from protopyramid.errors import UserError

    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file; give a folder to write to")
    from protopyramid.explain.explanation import explain_file
    from protopyramid.figures.drawing import JET, check_colour_map
    from protopyramid.runs.run import load_run

    colours = JET if jet else check_colour_map(colour_map)
    chosen = _images(images, split)
    chosen = chosen[:limit] if limit else chosen
    loaded = load_run(run)
    stems = distinct_stems([name for name, _ in chosen])
    with progress("explain") as update:
        for number, ((name, path), stem) in enumerate(zip(chosen, stems, strict=True)):
            explanation = explain_file(loaded, path, name)
            paths = [out / f"{stem}{kind}" for kind in KINDS]
            explanation.save_all(paths, top, colours)
            update(number + 1, len(chosen))
            share = explanation.probabilities[explanation.predicted]
            caution = "  unlike the training images" if explanation.unlike_training else ""
            say(f"{paths[0]}  {explanation.predicted} {share:.0%}{caution}")


def distinct_stems(names: Sequence[str]) -> list[str]:
    """File names without suffix, each used once, also where a disk does not tell a from A.

    >>> distinct_stems(["x/a.png", "y/A.png", "a-2.png"])
    ['a', 'A-2', 'a-2-2']
    """
    taken: set[str] = set()
    stems = []
    for name in names:
        plain = Path(name).stem
        stem, number = plain, 2
        while stem.lower() in taken:
            stem, number = f"{plain}-{number}", number + 1
        taken.add(stem.lower())
        stems.append(stem)
    return stems


def _images(paths: Sequence[Path], split: str | None) -> list[tuple[str, Path]]:
    """Name and file of every image: those given, or the rows of a manifest."""
    from protopyramid.errors import UserError

    tables = [path for path in paths if path.suffix.lower() == ".csv"]
    if tables and len(paths) > 1:
        raise UserError(f"{tables[0]}: a manifest stands alone; give it without other images")
    if tables:
        from protopyramid.inference.prediction import table_rows

        return [(sample.name, sample.image) for sample in table_rows(tables[0], split)]
    if split is not None:
        raise UserError("--split: is for a manifest; leave it out for images")
    from protopyramid.inference.prediction import expand_folders

    return [(path.name, path) for path in expand_folders(paths)]
