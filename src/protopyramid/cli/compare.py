"""`protopyramid compare`: several runs side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from protopyramid.cli.evaluate import new_table, terminal

if TYPE_CHECKING:
    from protopyramid.runs.run import Run


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Run folders; the first is the reference."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")],
    data: Annotated[
        Path | None,
        typer.Option(metavar="MANIFEST", help="One manifest for all; else that of each training."),
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    bootstrap: Annotated[int, typer.Option(min=1, help="Resamples of intervals and test.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    figures: Annotated[bool, typer.Option(help="Draw what each run looks at.")] = True,
    jet: Annotated[bool, typer.Option("--jet", help="The paper's colour map, jet.")] = False,
) -> None:
    """Compare runs: AUROC with intervals and a paired test, and where their maps activate."""
    from protopyramid.cli.console import progress, say
    from protopyramid.errors import UserError

    if out.exists() and not out.is_dir():
        raise UserError(f"{out}: is a file; give a folder to write to")
    if len({path.resolve() for path in runs}) < len(runs):
        raise UserError(f"{runs[0]}: a run is named twice; name each once")
    from protopyramid.evaluation.comparison import compare as compare_runs
    from protopyramid.evaluation.comparison_results import auroc_table, localisation_table
    from protopyramid.explain.saliency import METHODS
    from protopyramid.runs.run import load_run

    loaded = [load_run(path) for path in runs]
    with progress("compare") as update:
        result = compare_runs(
            loaded, data, split, bootstrap, seed, methods=METHODS, progress=update
        )
    _show(*auroc_table(result))
    if result.localisation:
        _show(*localisation_table(result))
    written = result.write(out)
    if figures:
        written += _figures(loaded, result.digest, data, split, out, jet)
    for path in written:
        say(str(path))


def _figures(
    runs: "list[Run]", digest: str, data: Path | None, split: str, out: Path, jet: bool
) -> list[Path]:
    """The paper's comparison figure and teaser, as far as the images are at hand."""
    from protopyramid.evaluation.comparison import same_images
    from protopyramid.figures.drawing import COLOUR_MAP, JET
    from protopyramid.reports.comparison import write_comparison, write_teaser

    chosen = same_images(runs[0], digest, data, split)
    if chosen is None:
        return []
    colours = JET if jet else COLOUR_MAP
    written = [write_comparison(runs, chosen.samples, out / "comparison.png", colour_map=colours)]
    if any(run.model.prototypes is not None for run in runs):
        written.append(write_teaser(runs, chosen.samples, out / "teaser.png", colours))
    return written


def _show(header: list[str], rows: list[list[str]]) -> None:
    table = new_table(*header)
    for row in rows:
        table.add_row(*row)
    terminal().print(table)
