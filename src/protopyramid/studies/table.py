"""What a study found: mean and spread over seeds of every figure, and differences from the first row."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from protopyramid.studies.plan import Study

Values = list[float | None]


@dataclass(frozen=True)
class Row:
    """A variant: its values of each column, one a seed."""

    name: str
    group: str
    values: Mapping[str, Values]


def columns_of(figures: Mapping[str, Any]) -> dict[str, float | None]:
    """The figures of one evaluation that the table shows, by column."""
    auroc, precision = figures["auroc"], figures["activation_precision"]
    found: dict[str, float | None] = {"AUROC": auroc["mean"]}
    found |= {f"AUROC {name}": value for name, value in auroc["per_class"].items()}
    found["accuracy"] = figures["accuracy"]
    found["fine"] = precision["fine"]["mean"]
    for level, value in (precision["fine"]["per_level"] or {}).items():
        found[f"fine {level}"] = value
    found["lesion"] = precision["lesion"]["mean"]
    for level, value in (precision["lesion"]["per_level"] or {}).items():
        found[f"lesion {level}"] = value
    for scale in ("fine", "lesion"):
        for name, value in (precision[scale]["per_class"] or {}).items():
            found[f"{scale} {name}"] = value
    for name, value in (
        (figures.get("prototype_peak_inside") or {}).get("per_class") or {}
    ).items():
        found[f"peak inside {name}"] = value
    found["area"] = figures["activation_area"]["mean"]
    for level, value in (figures["activation_area"]["per_level"] or {}).items():
        found[f"area {level}"] = value
    elimination = figures.get("elimination") or {}
    found["elimination"] = elimination.get("mean")
    found["control AUROC"] = figures.get("control")
    moved = figures.get("moved") or {}
    found["lesion, moved"] = moved.get("lesion")
    found["lesion, had it stayed"] = moved.get("stayed")
    for name, value in (figures.get("nearest") or {}).items():
        found[f"nearest patch, {name}"] = value
    negative = figures.get("negative_class", "")
    found["negatives found"] = (figures.get("sensitivity") or {}).get(negative)
    return found


def make_rows(study: Study, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[Row]:
    """The rows of the shown variants; `found` are the evaluations of each variant, one a seed."""
    rows = []
    for variant in study.shown:
        each = [columns_of(figures) for figures in found[variant.name]]
        names = list(dict.fromkeys(name for columns in each for name in columns))
        values = {name: [columns.get(name) for columns in each] for name in names}
        rows.append(Row(variant.name, variant.group, values))
    return rows


def summary(values: Values) -> tuple[float | None, float | None]:
    """Mean and standard deviation (n - 1) over seeds; None where a seed has no value, or is alone."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None, None
    return mean(known), stdev(known) if len(known) > 1 else None


def cell(values: Values) -> str:
    """Mean ± spread, as in the paper's tables.

    >>> cell([0.9, 0.92, 0.94]), cell([0.5]), cell([None]), cell([-0.012, 0.004])
    ('.920 ± .020', '.500', '–', '-.004 ± .011')
    """
    middle, spread = summary(values)
    if middle is None:
        return "–"
    return _short(middle) if spread is None else f"{_short(middle)} ± {_short(spread)}"


def _short(value: float) -> str:
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.9995 else text


def markdown(study: Study, rows: Sequence[Row], columns: Sequence[str]) -> str:
    """A Markdown table of some columns, a heading row for each group."""
    shown = [column for column in columns if any(_is_known(row, column) for row in rows)]
    lines = [f"| | {' | '.join(shown)} |", "|---" * (len(shown) + 1) + "|"]
    group = ""
    for row in rows:
        if row.group and row.group != group:
            lines.append(f"| **{row.group}** |" + " |" * len(shown))
        group = row.group
        cells = [cell(row.values.get(column, [None])) for column in shown]
        lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def differences(rows: Sequence[Row]) -> list[Row]:
    """Each row minus the first, seed by seed: seeds share data and start, so they pair."""
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


def csv_text(study: Study, rows: Sequence[Row]) -> str:
    """Everything: one line a variant, seed and column."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["variant", "group", "seed", "figure", "value"])
    for row in rows:
        for name, values in row.values.items():
            for seed, value in zip(study.seeds, values, strict=True):
                shown = "" if value is None else repr(value)
                writer.writerow([row.name, row.group, seed, name, shown])
    return text.getvalue()


def _is_known(row: Row, column: str) -> bool:
    return any(value is not None for value in row.values.get(column, []))
