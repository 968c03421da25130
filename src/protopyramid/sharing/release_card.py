"""The card of a model that is published: figures out of fold by class and source, data, licences, limits.

The words come from a TOML file: `name`, `version`, `summary`, `licence`, lists of sentences `use`, `limits`
and `untested`, and a table `sources.NAME` with `title`, `licence` and `note` for each source of the manifest.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.evaluation.comparison import read_rows
from protopyramid.evaluation.evaluate import model_digest
from protopyramid.evaluation.results import Evaluation, read_evaluation
from protopyramid.figures.text import figure_text
from protopyramid.metrics.auroc import Auroc, auroc_with_intervals
from protopyramid.metrics.bootstrap import resample_weights
from protopyramid.reports.facts import paper
from protopyramid.reports.model_card import USE, differences_section
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run
from protopyramid.utils.csv_files import numbers_in, read_columns
from protopyramid.utils.opening import SETTINGS, read_text
from protopyramid.utils.tables import markdown_table
from protopyramid.utils.typed_json import from_json

Array = NDArray[np.float64]
RESAMPLES = 1000
ALL = "all sources"
PREDICTIONS = "predictions.csv"  # of a cross-validation


@dataclass(frozen=True)
class SourceWords:
    """A dataset that a model was trained on."""

    title: str
    licence: str
    note: str = ""


@dataclass(frozen=True)
class CardWords:
    """What a published model says of itself in words."""

    name: str
    version: str
    summary: str
    licence: str
    use: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    untested: list[str] = field(default_factory=list)
    sources: dict[str, SourceWords] = field(default_factory=dict)


def read_words(path: Path) -> CardWords:
    """The words of a card."""
    try:
        content = tomllib.loads(read_text(path, SETTINGS))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as TOML ({error})") from error
    return from_json(CardWords, content, path, "correct the file")


@dataclass(frozen=True)
class Prediction:
    """What a model said of a lesion that it never saw: probabilities (C,)."""

    image: str
    label: str
    patient: str
    source: str
    probabilities: Array


@dataclass(frozen=True)
class SourceFigures:
    """AUROC on the lesions of a source, and how many there are of each class."""

    auroc: Auroc
    counts: Mapping[str, int]


def release_card(
    run: Run, words: CardWords, manifest: Path, predictions: Sequence[Prediction]
) -> str:
    """The card of a run as Markdown, with figures from predictions out of fold on the same manifest."""
    figures = out_of_fold(run, predictions)
    unknown = [name for name in figures if name not in (ALL, *words.sources)]
    if unknown:
        raise UserError(
            f"the card has no words on the source {unknown[0]!r}; add sources.{unknown[0]}"
        )
    parts = [
        f"# {words.name}",
        words.summary,
        f"Version {words.version}. Licence: {words.licence}.",
        "## Intended use\n\n" + USE + _bullets(words.use),
        "## Training data\n\n" + _data(run, words, manifest),
        "## Figures, out of fold\n\n" + _figures(run, figures, _lesions(run, manifest)),
        "## Limits\n" + _bullets(words.limits),
        "## Never tested on\n" + _bullets(words.untested),
        differences_section(run),
        "## How to cite\n\n" + paper(run) + ".",
    ]
    return "\n\n".join(parts) + "\n"


def of_crossval(run: Run, manifest: Path, folder: Path) -> list[Prediction]:
    """The predictions of a cross-validation on a manifest; several seeds count as one: their mean."""
    classes = run.config.data.classes
    sources = {each.name: each.source for each in read_manifest(manifest).samples}
    path, remedy = folder / PREDICTIONS, "run the cross-validation again"
    by_image: dict[str, list[Mapping[str, str]]] = {}
    for row in read_columns(path, ["image", "label", "patient_id", *classes], remedy):
        by_image.setdefault(row["image"], []).append(row)
    strangers = [name for name in by_image if name not in sources]
    if strangers:
        raise UserError(f"{path}: {strangers[0]} is not in {manifest}; {remedy}")
    found = []
    for image, rows in by_image.items():
        if rows[0]["label"] not in classes:
            raise UserError(f"{path}: {rows[0]['label']!r} is not a class of the run; {remedy}")
        values = np.array(numbers_in(path, rows, classes, remedy))
        patient = rows[0]["patient_id"] or image
        found.append(
            Prediction(image, rows[0]["label"], patient, sources[image], values.mean(axis=0))
        )
    return found


def of_run(run: Run, fold: Run) -> list[Prediction]:
    """The predictions of a run of a study on the held-out patients of each source."""
    if fold.config.data.classes != run.config.data.classes:
        raise UserError(f"{fold.folder.path}: its classes are not those of {run.folder.path}")
    return measured(fold.folder, model_digest(fold))


def measured(folder: RunFolder, model: str | None = None) -> list[Prediction]:
    """What a study has measured of a run, source by source; `model`: the digest it must be of."""
    found: list[Prediction] = []
    for source in _measured_sources(folder):
        evaluation = read_evaluation(folder, "test", source)
        if evaluation is None or model not in (None, evaluation.model):
            raise UserError(
                f"{folder.path}: its results on {source} are not of this model; run its study again"
            )
        found += _source_rows(folder, source, evaluation)
    if not found:
        raise UserError(f"{folder.path}: not measured source by source; run its study to the end")
    return found


def together(folds: Mapping[Path, Sequence[Prediction]]) -> list[Prediction]:
    """The predictions of folds that share no image."""
    found: list[Prediction] = []
    for folder, rows in folds.items():
        if {row.image for row in rows} & {row.image for row in found}:
            raise UserError(f"{folder}: tested on images of another fold; give each fold once")
        found += rows
    return found


def _measured_sources(folder: RunFolder) -> list[str]:
    """The sources that a run was tested on, from the names of its results."""
    prefix = layout.part("test", "any").removesuffix("any")
    files = (folder / layout.EVALUATION).glob(f"{prefix}*.csv")
    return sorted(unquote(path.stem.removeprefix(prefix)) for path in files)


def _source_rows(folder: RunFolder, source: str, evaluation: Evaluation) -> list[Prediction]:
    path = folder / layout.evaluation(layout.part("test", source), "csv")
    rows = read_rows(path, source, evaluation)
    columns = zip(rows.hashes, rows.labels, rows.patients, rows.probabilities, strict=True)
    return [
        Prediction(digest, label, patient, source, values)
        for digest, label, patient, values in columns
    ]


def out_of_fold(run: Run, predictions: Sequence[Prediction]) -> dict[str, SourceFigures]:
    """AUROC by class, of each source and of all, with intervals of resampled patients."""
    data = run.config.data
    chances = np.array([each.probabilities for each in predictions])
    labels = np.array([data.classes.index(each.label) for each in predictions])
    own = np.array([each.source for each in predictions])
    groups = {name: own == name for name in dict.fromkeys(own.tolist()) if name}
    found = {}
    for name, mask in {**groups, ALL: np.ones(len(own), dtype=bool)}.items():
        patients = [each.patient for each, kept in zip(predictions, mask, strict=True) if kept]
        weights = resample_weights(patients, RESAMPLES, seed=0)
        auroc = auroc_with_intervals(
            chances[mask], labels[mask], data.classes, data.negative_class, weights
        )
        counts = np.bincount(labels[mask], minlength=len(data.classes))
        found[name] = SourceFigures(auroc, dict(zip(data.classes, counts.tolist(), strict=True)))
    return found


def _lesions(run: Run, manifest: Path) -> int:
    """How many rows of a manifest are lesions."""
    return sum(each.label in _margins(run) for each in read_manifest(manifest).samples)


def _margins(run: Run) -> list[str]:
    data = run.config.data
    return [name for name in data.classes if name != data.negative_class]


def _figures(run: Run, figures: Mapping[str, SourceFigures], lesions: int) -> str:
    classes = _margins(run)
    tested = sum(figures[ALL].counts[name] for name in classes)
    part = "" if tested >= lesions else f"Of {lesions} lesions, {tested} were tested so far. "
    rows = [
        [
            source,
            str(sum(found.counts[name] for name in classes)),
            *(
                figure_text(found.auroc.per_class.get(n), found.auroc.ci95_per_class.get(n))
                for n in classes
            ),
            figure_text(found.auroc.mean, found.auroc.ci95),
        ]
        for source, found in figures.items()
    ]
    note = (
        "One-vs-rest AUROC among lesions, each predicted by a model that saw neither the image nor its "
        "patient in training; 95 % intervals of resampled patients in brackets. The model that is shipped "
        "was trained by the same recipe on the images above, some of them held out to choose it, and has no "
        f"figures of its own here. {part}".rstrip()
        + "\n\n"
    )
    return note + markdown_table(["source", "lesions", *classes, "mean"], rows)


def _data(run: Run, words: CardWords, manifest: Path) -> str:
    classes = run.config.data.classes
    samples = read_manifest(manifest).samples
    rows = []
    for name, about in words.sources.items():
        own = [each for each in samples if each.source == name and each.split != "test"]
        patients = len({each.patient for each in own})
        counts = [str(sum(each.label == label for each in own)) for label in classes]
        rows.append([f"{name}: {about.title}", str(patients), *counts, about.licence])
    table = markdown_table(["source", "patients", *classes, "licence"], rows)
    notes = [f"{name}: {about.note}" for name, about in words.sources.items() if about.note]
    return table + "\n" + _bullets(notes)


def _bullets(texts: Sequence[str]) -> str:
    return "".join(f"\n- {text}" for text in texts)
