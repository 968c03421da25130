"""`protopyramid readings`: what a reader study adds up to, and its table of readings."""

from pathlib import Path
from typing import Annotated

import typer

from protopyramid.cli.options import ResampleSeed


def readings(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that serve was given with --readings.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Table to write, one row per reader and case."),
    ] = None,
    summary: Annotated[
        Path | None, typer.Option(metavar="JSON", help="File to write the statistics to.")
    ] = None,
    bootstrap: Annotated[int, typer.Option(min=1, help="Resamples for the intervals.")] = 1000,
    seed: ResampleSeed = 0,
) -> None:
    """Summarise a reader study: accuracy alone and with the model, time, agreement, over-reliance."""
    from protopyramid.cli.console import say, show_table, terminal
    from protopyramid.reader.readings import results
    from protopyramid.reader.readings.store import ReadingStore
    from protopyramid.utils.files import write_json, write_text

    with ReadingStore.open(folder) as store:
        found = results.study_summary(store, bootstrap, seed)
        console = terminal()
        console.print(results.headline(store, found))
        show_table(["", "unaided", "with the model", "difference"], results.compared_rows(found))
        show_table(["", "readings", "share"], results.rate_rows(found))
        show_table(
            ["reader", *results.READER_COLUMNS],
            results.reader_rows(found),
        )
        console.print(found.method)
        if out is not None:
            say(str(write_text(out, results.readings_csv(store))))
        if summary is not None:
            say(str(write_json(summary, results.summary_json(store, found))))
