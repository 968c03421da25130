"""All rows of the speed table, in order.

Each topic is a module, each function measures one row or a few that belong together. References are the
least work that the task needs (one pass of the bare backbone), or the same work as published systems do it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from protopyramid.benchmarks.evidence import evidence_row
from protopyramid.benchmarks.explanation import explanation_rows
from protopyramid.benchmarks.fine import fine_rows
from protopyramid.benchmarks.head import head_row
from protopyramid.benchmarks.inference import forward_rows, latency_rows
from protopyramid.benchmarks.learning import cached_row, loader_row, training_row
from protopyramid.benchmarks.projection import projection_rows
from protopyramid.benchmarks.row import Row
from protopyramid.benchmarks.serving import explain_rows, film_row, predict_row
from protopyramid.benchmarks.settings import Settings
from protopyramid.benchmarks.startup import help_row

ROWS: tuple[Callable[[Settings], Iterator[Row]], ...] = (
    forward_rows,
    latency_rows,
    explanation_rows,
    training_row,
    cached_row,
    projection_rows,
    head_row,
    fine_rows,
    evidence_row,
    help_row,
    loader_row,
    explain_rows,
    film_row,
    predict_row,
)


def all_rows(settings: Settings) -> Iterator[Row]:
    """Every row, one by one as it is measured."""
    for measure in ROWS:
        yield from measure(settings)
