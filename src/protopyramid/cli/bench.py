"""`protopyramid bench`: measured speed, as ratios to the least work possible."""

import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from protopyramid.benchmarks.growth import Growth
    from protopyramid.benchmarks.settings import Settings

# Share of the machine above which other programs are reported: threads that wait for each other lose much
# more than that.
BUSY = 0.05


def bench(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Smaller batches and fewer repetitions: under three minutes."),
    ] = False,
    growth: Annotated[
        bool,
        typer.Option(
            "--growth", help="Measure how cost scales with prototypes, classes and sizes instead."
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for results (JSON) and plots.")
    ] = Path("results/bench"),
    threads: Annotated[int, typer.Option(min=0, help="Torch threads (0 = one per CPU core).")] = 0,
) -> None:
    """Measure the speed of the default model: each row with its reference, target and verdict.

    Images are noise of the real size; no data is read. Both sides of a ratio run in turns.
    """
    import torch

    from protopyramid.benchmarks.growth import FULL_GROWTH, QUICK_GROWTH
    from protopyramid.benchmarks.settings import FULL, QUICK
    from protopyramid.utils.allocator import keep_freed_memory
    from protopyramid.utils.files import check_output_folder

    check_output_folder(out)
    if threads:
        torch.set_num_threads(threads)
    keep_freed_memory()  # as in training; both sides of a ratio have it
    if growth:
        show_growth(QUICK_GROWTH if quick else FULL_GROWTH, out)
    else:
        show_rows(QUICK if quick else FULL, out)


def show_rows(settings: "Settings", out: Path) -> None:
    """Measure the table, print it and write it to `bench.json`."""
    from protopyramid.benchmarks.report import (
        HEADER,
        OtherPrograms,
        cells,
        notes,
        summary,
        write_rows,
    )
    from protopyramid.benchmarks.row import Row
    from protopyramid.benchmarks.rows import ROWS
    from protopyramid.cli.console import say, show_table, terminal
    from protopyramid.utils.progress import progress_bar

    start, others = time.monotonic(), OtherPrograms()
    rows: list[Row] = []
    with progress_bar("bench", "rows") as update:
        for number, measure in enumerate(ROWS):
            update(number, len(ROWS))
            rows += measure(settings)
        update(len(ROWS), len(ROWS))
    show_table(HEADER, [cells(row) for row in rows])
    for line in notes(rows):
        terminal().print(line)
    took = time.monotonic() - start
    say(f"{summary(rows)}; took {took:.0f} s")
    share = others.share
    _warn_if_busy(share)
    say(str(write_rows(rows, asdict(settings), took, share, out / "bench.json")))


def show_growth(growth: "Growth", out: Path) -> None:
    """Measure the curves, print their orders, write `growth.json` and a plot per variable."""
    from protopyramid.benchmarks.growth import all_curves, draw
    from protopyramid.benchmarks.report import VERDICTS, OtherPrograms, write_curves
    from protopyramid.cli.console import new_table, say, terminal

    start, others = time.monotonic(), OtherPrograms()
    table = new_table(
        "work", "scales with", "from … to", "seconds", "order", "fitted", "target", "verdict"
    )
    curves = []
    for curve in all_curves(growth):
        curves.append(curve)
        say(f"{curve.work} by {curve.variable}: {curve.seconds[0]:.3g} … {curve.seconds[-1]:.3g} s")
        table.add_row(
            curve.work,
            curve.variable,
            f"{curve.values[0]:,} … {curve.values[-1]:,}",
            f"{curve.seconds[0]:.3g} … {curve.seconds[-1]:.3g}",
            f"{curve.measured:.2f}",
            f"{curve.fitted:.2f}",
            f"≤ {curve.order:g}",
            VERDICTS[curve.met],
        )
    terminal().print(table)
    took = time.monotonic() - start
    missed = [f"{curve.work} by {curve.variable}" for curve in curves if not curve.met]
    if missed:
        say(f"scales worse than its theoretical order: {'; '.join(missed)}")
    else:
        say("no cost scales worse than its theoretical order")
    say(f"order: between the two largest points; fitted: over all points; took {took:.0f} s")
    share = others.share
    _warn_if_busy(share)
    for path in (write_curves(curves, took, share, out / "growth.json"), *draw(curves, out)):
        say(str(path))


def _warn_if_busy(share: float | None) -> None:
    if share is not None and share > BUSY:
        warnings.warn(
            f"other programs used {share:.0%} of the machine meanwhile; measure again when it is idle",
            stacklevel=2,
        )
