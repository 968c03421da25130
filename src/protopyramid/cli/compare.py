"""`protopyramid compare`: several runs side by side."""

from pathlib import Path
from typing import Annotated

import typer

from protopyramid.cli.options import Jet, OutFolder, ResampleSeed, Split


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Run folders or names; the first is the reference."),
    ],
    out: OutFolder,
    data: Annotated[
        Path | None,
        typer.Option(metavar="MANIFEST", help="One manifest for all, by default each run's own."),
    ] = None,
    split: Split = "test",
    bootstrap: Annotated[int, typer.Option(min=1, help="Resamples for intervals and test.")] = 1000,
    seed: ResampleSeed = 0,
    figures: Annotated[bool, typer.Option(help="Draw what each run looks at.")] = True,
    levels: Annotated[
        str,
        typer.Option(
            metavar="N,N", help="Draw the leading prototype of each of these levels, e.g. 2,3,5."
        ),
    ] = "",
    jet: Jet = False,
) -> None:
    """Compare runs: AUROC with intervals and a paired test, and where their maps activate."""
    from protopyramid.cli.console import parse_numbers, say, show_table
    from protopyramid.utils.files import check_output_folder

    chosen = parse_numbers(levels, "--levels")
    check_output_folder(out)  # before the slow imports
    from protopyramid import api
    from protopyramid.evaluation.comparison_results import auroc_table, localisation_table
    from protopyramid.reports.comparison import check_levels
    from protopyramid.runs.run import load_run
    from protopyramid.utils.progress import progress_bar

    loaded = [load_run(path) for path in runs]
    check_levels(loaded, chosen)  # before the evaluation, which takes long
    with progress_bar("compare") as update:
        result = api.compare(loaded, data, split, bootstrap=bootstrap, seed=seed, progress=update)
    show_table(*auroc_table(result))
    if result.localisation:
        show_table(*localisation_table(result))
    colours = "jet" if jet else api.COLOUR_MAP
    for path in api.write_comparison(
        result, loaded, out, data=data, figures=figures, levels=chosen, colour_map=colours
    ):
        say(str(path))
