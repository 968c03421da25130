"""What a study found: mean and spread of every metric over replicates, and differences from the first row.

Columns have the names of the CSV file; Markdown tables show `HEADINGS` instead where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from protopyramid.studies.plan import Study
from protopyramid.studies.results import Measurement
from protopyramid.utils.tables import Cell, csv_text, markdown_table, mean_and_spread

Values = list[float | None]

HEADINGS = {
    "control AUROC": "AUROC, occlusion control",
    "lesion, moved": "lesion, shift test",
    "lesion, had it stayed": "lesion, if not followed",
    "negatives found": "sensitivity, negatives",
    "peak inside circumscribed": "pointing game, circumscribed",
    "peak inside indistinct": "pointing game, indistinct",
    "peak inside spiculated": "pointing game, spiculated",
}


@dataclass(frozen=True)
class Row:
    """A variant: its values in each column, one per replicate."""

    name: str
    group: str
    values: Mapping[str, Values]


def columns_of(found: Measurement) -> dict[str, float | None]:
    """The metrics of one run that the tables show, by column."""
    evaluation = found.evaluation
    auroc, elimination = evaluation.auroc, evaluation.elimination
    control, shift = found.occlusion_control, found.shift_test
    columns: dict[str, float | None] = {"AUROC": auroc.mean}
    columns |= {f"AUROC {name}": value for name, value in auroc.per_class.items()}
    columns["accuracy"] = evaluation.accuracy
    columns |= _places(found)
    columns["elimination"] = None if elimination is None else elimination.mean
    columns["control AUROC"] = None if control is None else control.auroc
    columns["lesion, moved"] = None if shift is None else shift.lesion
    columns["lesion, had it stayed"] = None if shift is None else shift.stayed
    if found.nearest is not None:
        columns["nearest patch, mean"] = found.nearest.mean
        columns["nearest patch, worst"] = found.nearest.worst
    columns["negatives found"] = evaluation.sensitivity.get(evaluation.negative_class)
    return columns


def _places(found: Measurement) -> dict[str, float | None]:
    """Where the prototypes activate."""
    evaluation = found.evaluation
    precision, area = evaluation.activation_precision, evaluation.activation_area
    scales = {"fine": precision.fine, "lesion": precision.lesion}
    columns: dict[str, float | None] = {}
    for name, scale in scales.items():
        columns[name] = scale.mean
        columns |= {f"{name} {level}": value for level, value in scale.per_level.items()}
    for name, scale in scales.items():
        columns |= {f"{name} {label}": value for label, value in scale.per_class.items()}
    pointing = evaluation.source_pointing.per_class
    columns |= {f"peak inside {label}": value for label, value in pointing.items()}
    columns["area"] = area.mean
    columns |= {f"area {level}": value for level, value in area.per_level.items()}
    return columns


def make_rows(study: Study, found: Mapping[str, Sequence[Measurement]]) -> list[Row]:
    """The rows of the shown variants; `found` has the measurements of each, one per replicate."""
    rows = []
    for variant in study.shown:
        each = [columns_of(measurement) for measurement in found[variant.name]]
        names = list(dict.fromkeys(name for columns in each for name in columns))
        values = {name: [columns.get(name) for columns in each] for name in names}
        rows.append(Row(variant.name, variant.group, values))
    return rows


def summary(values: Values) -> tuple[float | None, float | None]:
    """Mean and standard deviation (n - 1); None where a replicate has no value, or is alone."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None, None
    return mean(known), stdev(known) if len(known) > 1 else None


def cell(values: Values) -> str:
    """Mean ± spread, as in the paper's tables.

    >>> cell([0.9, 0.92, 0.94]), cell([0.5]), cell([None]), cell([-0.012, 0.004])
    ('.920 ± .020', '.500', '–', '-.004 ± .011')
    """
    return mean_and_spread(*summary(values))


def markdown(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """A Markdown table of some columns, with a heading row for each group; empty columns are left out."""
    shown = [column for column in columns if any(_is_known(row, column) for row in rows)]
    table, group = [], ""
    for row in rows:
        if row.group and row.group != group:
            table.append([f"**{row.group}**", *[""] * len(shown)])
        group = row.group
        table.append([row.name, *(cell(row.values.get(column, [None])) for column in shown)])
    return markdown_table(["", *(HEADINGS.get(name, name) for name in shown)], table) + "\n"


def differences(rows: Sequence[Row]) -> list[Row]:
    """Each row minus the first, replicate by replicate: they share data and start, so they pair."""
    first = rows[0]
    found = []
    for row in rows[1:]:
        values = {
            name: [
                None if ours is None or theirs is None else ours - theirs
                for ours, theirs in zip(row.values[name], first.values[name], strict=True)
            ]
            for name in row.values
            if name in first.values
        }
        found.append(Row(row.name, row.group, values))
    return found


def values_csv(study: Study, rows: Sequence[Row]) -> str:
    """Everything: one line per variant, replicate and metric.

    Where seeds and folds are apart, a last column has the fold.
    """
    apart = study.dealing == 2
    table: list[list[Cell]] = []
    for row in rows:
        for name, values in row.values.items():
            for replicate, value in zip(study.replicates, values, strict=True):
                cells: list[Cell] = [row.name, row.group, replicate.seed, name, value]
                table.append([*cells, replicate.fold] if apart else cells)
    header = ["variant", "group", "seed", "figure", "value", *(["fold"] if apart else [])]
    return csv_text(header, table)


def _is_known(row: Row, column: str) -> bool:
    return any(value is not None for value in row.values.get(column, []))
