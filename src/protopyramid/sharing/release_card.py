"""The card of a model that is published: figures out of fold by class and source, data, licences, limits.

The words come from a TOML file: `name`, `version`, `summary`, `licence`, lists of sentences `use`, `limits`
and `untested`, and a table `sources.NAME` with `title`, `licence` and `note` for each source of the manifest.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.figures.text import figure_text
from protopyramid.metrics.auroc import Auroc, auroc_with_intervals
from protopyramid.metrics.bootstrap import resample_weights
from protopyramid.reports.facts import PAPER
from protopyramid.reports.model_card import USE
from protopyramid.runs.run import Run
from protopyramid.utils.csv_files import read_columns
from protopyramid.utils.opening import SETTINGS, read_text
from protopyramid.utils.tables import markdown_table
from protopyramid.utils.typed_json import from_json

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
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as TOML ({error})") from error
    return from_json(CardWords, content, path, "correct the file")


def release_card(run: Run, words: CardWords, manifest: Path, crossval: Path) -> str:
    """The card of a run as Markdown, with the figures of a cross-validation on the same manifest."""
    figures = out_of_fold(run, manifest, crossval / PREDICTIONS)
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
        "## Figures, out of fold\n\n" + _figures(run, figures),
        "## Limits\n" + _bullets(words.limits),
        "## Never tested on\n" + _bullets(words.untested),
        "## How to cite\n\n" + PAPER + ".",
    ]
    return "\n\n".join(parts) + "\n"


def out_of_fold(run: Run, manifest: Path, predictions: Path) -> dict[str, Auroc]:
    """AUROC by class, of each source and of all: each image predicted by a run that never saw its patient.

    Intervals are of resampled patients. Several seeds count as one prediction: their mean.
    """
    data = run.config.data
    sources = {each.name: each.source for each in read_manifest(manifest).samples}
    remedy = "run the cross-validation again"
    rows = read_columns(predictions, ["image", "label", "patient_id", *data.classes], remedy)
    by_image: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        by_image.setdefault(row["image"], []).append(row)
    strangers = [name for name in by_image if name not in sources]
    if strangers:
        raise UserError(f"{predictions}: {strangers[0]} is not in {manifest}; {remedy}")
    names = list(by_image)
    chances = np.array(
        [
            np.mean(
                [[float(row[name]) for name in data.classes] for row in by_image[image]], axis=0
            )
            for image in names
        ]
    )
    labels = np.array([data.classes.index(by_image[image][0]["label"]) for image in names])
    patients = [by_image[image][0]["patient_id"] or image for image in names]
    own = np.array([sources[image] for image in names])
    groups = {name: own == name for name in dict.fromkeys(own.tolist()) if name}
    found = {}
    for name, mask in {**groups, ALL: np.ones(len(names), dtype=bool)}.items():
        chosen = [patient for patient, kept in zip(patients, mask, strict=True) if kept]
        weights = resample_weights(chosen, RESAMPLES, seed=0)
        found[name] = auroc_with_intervals(
            chances[mask], labels[mask], data.classes, data.negative_class, weights
        )
    return found


def _figures(run: Run, figures: Mapping[str, Auroc]) -> str:
    classes = [name for name in run.config.data.classes if name != run.config.data.negative_class]
    rows = [
        [
            source,
            *(figure_text(a.per_class.get(n), a.ci95_per_class.get(n)) for n in classes),
            figure_text(a.mean, a.ci95),
        ]
        for source, a in figures.items()
    ]
    note = (
        "One-vs-rest AUROC among lesions, each predicted by a model that saw neither the image nor its "
        "patient in training; 95 % intervals of resampled patients in brackets. The model that is shipped "
        "was trained on all of these images by the same recipe and has no figures of its own here.\n\n"
    )
    return note + markdown_table(["source", *classes, "mean"], rows)


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
