"""What a reader study adds up to: the table of readings, and the summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from protopyramid.metrics.reader_study import (
    Answers,
    Compared,
    Rate,
    Readings,
    Summary,
    summarise,
)
from protopyramid.reader.readings.plan import STAGES
from protopyramid.reader.readings.store import KeptAnswer, Reading, ReadingStore
from protopyramid.utils.tables import Cell, csv_text, number

OVER_RELIANCE, CORRECTION = "over-reliance", "correction"
ANSWER_COLUMNS = ("margin", "confidence", "birads", "seconds", "openings", "answered_at")
COLUMNS = (
    "reader",
    "place",
    "case",
    "patient",
    "truth",
    *(f"unaided_{name}" for name in ANSWER_COLUMNS),
    "run",
    "model_margin",
    "model_probability",
    *(f"aided_{name}" for name in ANSWER_COLUMNS),
    "changed",
    "unaided_right",
    "model_right",
    "aided_right",
    "effect",
)
# Of a summary: what is compared, and what it is called in tables.
MEASURES = (
    ("auroc", "AUROC"),
    ("accuracy", "accuracy"),
    ("seconds", "seconds per case"),
    ("confidence", "confidence (0-100)"),
    ("kappa_readers", "agreement between readers (kappa)"),
    ("kappa_truth", "agreement with the truth (kappa)"),
    ("kappa_model", "agreement with the model (kappa)"),
)
IN_TENTHS = ("seconds", "confidence")
READER_COLUMNS = (
    "AUROC unaided",
    "AUROC aided",
    "seconds unaided",
    "seconds aided",
    "over-reliance",
    "right corrections",
)
RATES = (
    ("over_reliance", "over-reliance: right alone, then changed to the model's wrong answer"),
    ("correction", "right correction: wrong alone, then right with a model that was right"),
    ("changed", "margin changed after seeing the model"),
)


def readings_csv(store: ReadingStore) -> str:
    """One row per reading, that is, per reader and case; safe to open in a spreadsheet."""
    rows = [_row(store, reading) for reading in store.readings()]
    return csv_text(COLUMNS, rows)


def study_summary(store: ReadingStore, resamples: int = 1000, seed: int = 0) -> Summary:
    """The statistics of the readings that are complete."""
    plan = store.plan
    return summarise(study_arrays(store), plan.classes, plan.negative, resamples, seed)


def study_arrays(store: ReadingStore) -> Readings:
    """The readings as arrays (readers, cases)."""
    plan, found = store.plan, store.readings()
    numbers = {name: number for number, name in enumerate(plan.classes)}
    readers = list(dict.fromkeys(reading.reader for reading in found))
    shape = (len(readers), len(plan.cases))
    sides = {
        stage: Answers(np.full(shape, -1), np.zeros(shape), np.zeros(shape)) for stage in STAGES
    }
    model = np.full(shape, -1)
    for reading in found:
        at = readers.index(reading.reader), reading.case
        for stage, kept in reading.answers.items():
            sides[stage].margin[at] = numbers[kept.answer.margin]
            sides[stage].confidence[at] = kept.answer.confidence
            sides[stage].seconds[at] = kept.answer.seconds
        if reading.suggestion is not None:
            model[at] = numbers[reading.suggestion.margin]
    truth = np.array([numbers.get(case.label, -1) for case in plan.cases], np.int64)
    patients = [case.patient for case in plan.cases]
    return Readings(sides["unaided"], sides["aided"], truth, model, patients, readers)


def summary_json(store: ReadingStore, summary: Summary) -> dict[str, Any]:
    """The summary with what it is a summary of."""
    plan = store.plan
    study = {
        "run": plan.run,
        "classes": list(plan.classes),
        "negative_class": plan.negative,
        "cases": len(plan.cases),
        "seed": plan.seed,
    }
    return {"study": study, **asdict(summary)}


def headline(store: ReadingStore, summary: Summary) -> str:
    """What the numbers are about, in a sentence."""
    people, readings = (
        f"{count} {word}{'' if count == 1 else 's'}"
        for count, word in (
            (len(summary.readers), "reader"),
            (summary.readings, "complete reading"),
        )
    )
    return (
        f"{people}, {readings} of {summary.cases} of "
        f"{len(store.plan.cases)} cases; model: {store.plan.run}"
    )


def compared_rows(summary: Summary) -> list[list[str]]:
    """The measures as rows of a table: name, unaided, aided, difference."""
    return [
        [words, *_compared_cells(getattr(summary, name), name in IN_TENTHS)]
        for name, words in MEASURES
    ]


def rate_rows(summary: Summary) -> list[list[str]]:
    """The rates as rows of a table: name, counts, share."""
    return [[words, *rate_cells(getattr(summary, name))] for name, words in RATES]


def reader_rows(summary: Summary) -> list[list[str]]:
    """One row per reader: AUROC, seconds, over-reliance and correction."""
    rows = []
    for place, reader in enumerate(summary.readers):
        values = [
            _text(getattr(summary, name), stage, place, name in IN_TENTHS)
            for name in ("auroc", "seconds")
            for stage in STAGES
        ]
        counts = [getattr(summary, name).per_reader[place] for name, _ in RATES[:2]]
        rows.append([reader, *values, *(f"{did} of {could}" for did, could in counts)])
    return rows


def rate_cells(rate: Rate) -> list[str]:
    """How often, of how many times, and the share."""
    return [f"{rate.happened} of {rate.could}", number(rate.share, rate.ci95)]


def _text(compared: Compared, stage: str, place: int, in_tenths: bool) -> str:
    return _figure(getattr(compared, stage).per_reader[place], None, in_tenths)


def _compared_cells(compared: Compared, in_tenths: bool) -> list[str]:
    sides = (compared.unaided, compared.aided, compared.difference)
    return [_figure(side.value, side.ci95, in_tenths) for side in sides]


def _figure(value: float | None, limits: Sequence[float] | None, in_tenths: bool) -> str:
    if not in_tenths or value is None:
        return number(value, limits)
    between = "" if limits is None else f" [{limits[0]:.1f}, {limits[1]:.1f}]"
    return f"{value:.1f}{between}"


def _row(store: ReadingStore, reading: Reading) -> list[Cell]:
    case, plan = store.plan.cases[reading.case], store.plan
    unaided, aided = (reading.answers.get(stage) for stage in STAGES)
    said = None if reading.suggestion is None else reading.suggestion.margin
    margins = [None if each is None else each.answer.margin for each in (unaided, aided)]
    right = [
        None if not case.label or margin is None else int(margin == case.label)
        for margin in (margins[0], said, margins[1])
    ]
    changed = None if margins[1] is None else int(margins[0] != margins[1])
    return [
        reading.reader,
        reading.place + 1,
        case.name,
        case.patient.removeprefix("patient ") if case.patient.startswith("patient ") else "",
        case.label,
        *_answer_cells(unaided),
        plan.run,
        said,
        None if reading.suggestion is None else round(reading.suggestion.probability, 4),
        *_answer_cells(aided),
        changed,
        *right,
        effect(right, margins[1] is not None and margins[1] == said),
    ]


def effect(right: Sequence[int | None], follows: bool) -> str:
    """What the model did to a reading, given whether unaided, model and aided answers are right.

    >>> effect([1, 0, 0], follows=True), effect([0, 1, 1], follows=True), effect([1, 1, 1], True)
    ('over-reliance', 'correction', '')
    """
    if list(right) == [1, 0, 0] and follows:
        return OVER_RELIANCE
    return CORRECTION if list(right) == [0, 1, 1] else ""


def _answer_cells(kept: KeptAnswer | None) -> list[Cell]:
    if kept is None:
        return [None] * len(ANSWER_COLUMNS)
    said = kept.answer
    return [
        said.margin,
        said.confidence,
        said.birads,
        round(said.seconds, 1),
        kept.openings,
        kept.at,
    ]
