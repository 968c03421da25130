"""The curves of a training from its log (metrics.jsonl)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from protopyramid.figures.curves import Curve, Plot
from protopyramid.reports.facts import nested

Record = Mapping[str, Any]
METRICS = {"auroc": "AUROC", "accuracy": "accuracy"}


def training_plots(records: Sequence[Record]) -> list[Plot]:
    """Two plots of a training log: the terms of the loss, and validation metrics."""
    epochs = [record for record in records if record.get("kind") == "epoch"]
    if not epochs:
        return []
    marks = _phase_marks(epochs)
    return [
        Plot("Loss terms (first epoch = ±1)", _loss_curves(epochs), None, marks),
        Plot("Validation", _validation_curves(epochs), (0.0, 1.02), marks),
    ]


def _loss_curves(epochs: Sequence[Record]) -> list[Curve]:
    """Each term relative to the size of its first value that is not zero."""
    x = [float(record["epoch"]) for record in epochs]
    curves = []
    for term in dict.fromkeys(term for record in epochs for term in record.get("losses", {})):
        values = [_number(nested(record, "losses", term)) for record in epochs]
        first = next((abs(v) for v in values if math.isfinite(v) and v), 1.0)
        curves.append(Curve(term.replace("_", " "), x, [value / first for value in values]))
    return curves


def _validation_curves(epochs: Sequence[Record]) -> list[Curve]:
    """Each metric at the epochs after which it was measured, which need not be all."""
    curves = []
    for key, word in METRICS.items():
        values = [(float(r["epoch"]), _number(nested(r, "validation", key))) for r in epochs]
        known = [(epoch, value) for epoch, value in values if math.isfinite(value)]
        curves.append(Curve(word, [epoch for epoch, _ in known], [value for _, value in known]))
    return curves


def _phase_marks(epochs: Sequence[Record]) -> list[tuple[float, str]]:
    """Where a training phase of another name begins."""
    marks, last = [], None
    for record in epochs:
        if record.get("stage") != last:
            last = record.get("stage")
            marks.append((float(record["epoch"]) - 0.5, f" phase {last}"))
    return marks


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
