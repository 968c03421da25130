"""Several runs side by side on the same images: the paper's table, with intervals and a paired test.

    comparison = compare([load_run("runs/fpn"), load_run("runs/vgg16")])
    comparison.write("comparison")          # comparison.md, .csv and .json

The first run is the one that the others are tested against.
"""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import (
    RESAMPLES,
    Progress,
    annotation_masks,
    class_numbers,
    evaluate_run,
    model_digest,
    rows_digest,
)
from protopyramid.evaluation.split import EvaluatedSplit, evaluated_split
from protopyramid.inference.batches import device_of, model_input
from protopyramid.metrics import classification as metrics
from protopyramid.metrics.localisation import Places, places
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder

if TYPE_CHECKING:
    from protopyramid.runs.run import Run


Array = NDArray[np.float64]
Row = dict[str, Any]
Saliency = Callable[[PrototypeNetwork, Tensor, Tensor], Tensor]

PAPER_NAMES = {
    "fpn-iaia-bl": "FPN-IAIA-BL",
    "iaia-bl": "IAIA-BL",
    "protopnet": "ProtoPNet",
    "vgg16": "VGG-16",
}


@dataclass(frozen=True)
class Evaluated:
    """A run's evaluation: its figures, and its N rows sorted by content so that runs align."""

    name: str
    figures: Mapping[str, Any]
    labels: tuple[str, ...]
    patients: tuple[str, ...]
    probabilities: Array

    @property
    def class_numbers(self) -> metrics.Labels:
        """The labels as numbers, (N,)."""
        classes = self.figures["classes"]
        return np.array([classes.index(label) for label in self.labels], dtype=np.int64)


@dataclass(frozen=True)
class Comparison:
    """`rows`, one a run: AUROC and the test against the first; `localisation`, one a method."""

    split: str
    digest: str
    n: int
    patients: int
    classes: tuple[str, ...]
    resamples: int
    rows: tuple[Row, ...]
    localisation: tuple[Row, ...]

    def markdown(self) -> str:
        """Both tables as Markdown."""
        return _markdown(self)

    def csv(self) -> str:
        """The AUROC table and the localisation of each run as one CSV table."""
        return _csv(self)

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain values."""
        head = {"split": self.split, "n": self.n, "patients": self.patients}
        head |= {"classes": list(self.classes), "resamples": self.resamples}
        return {**head, "rows": list(self.rows), "localisation": list(self.localisation)}

    def write(self, folder: str | Path) -> list[Path]:
        """Write comparison.md, comparison.csv and comparison.json."""
        out = RunFolder(folder)
        return [
            out.write_text("comparison.md", self.markdown()),
            out.write_text("comparison.csv", self.csv()),
            out.write_text("comparison.json", json.dumps(self.to_json(), indent=2) + "\n"),
        ]


def compare(
    runs: Sequence[Run],
    manifest_path: str | Path | None = None,
    split: str = "test",
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    methods: Mapping[str, Saliency] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare runs on a split; what is not evaluated yet, or evaluated before training went on, is.

    `methods` are saliency methods whose localisation is measured for runs without prototypes. Results
    that were forced on training images, and runs that saw other images, are refused.
    """
    if not runs:
        raise UserError("compare: no run given; name one run folder or more")
    names = run_names(runs)
    found = [
        stored_evaluation(run, name, manifest_path, split, bootstrap, seed, progress)
        for run, name in zip(runs, names, strict=True)
    ]
    _check_alike(runs, found)
    first = found[0]
    classes, negative = first.figures["classes"], first.figures["negative_class"]
    labels = first.class_numbers
    weights = metrics.resample_weights(first.patients, bootstrap, seed)
    rows = []
    for run, each in zip(runs, found, strict=True):
        test = None
        if each is not first:
            test = metrics.paired_differences(
                first.probabilities, each.probabilities, labels, classes, negative, weights
            )
        auroc = metrics.auroc_figures(each.probabilities, labels, classes, negative, weights)
        rows.append(
            {
                "name": each.name,
                "system": run.config.system,
                "run": str(run.folder.path),
                "auroc": auroc,
                "against_first": test,
                "accuracy": each.figures["accuracy"],
                "ece": each.figures["calibration"]["ece"],
            }
        )
    localisation = [_run_localisation(each) for each in found]
    for run, each in zip(runs, found, strict=True):
        if run.model.prototypes is None and methods:
            chosen = same_images(run, first.figures["rows"], manifest_path, split)
            localisation += [
                saliency_row(run, f"{each.name}, {label}", method, chosen, bootstrap, seed)
                for label, method in methods.items()
                if chosen is not None
            ]
    return Comparison(
        split,
        first.figures["rows"],
        len(labels),
        len(set(first.patients)),
        tuple(first.figures["auroc"]["per_class"]),
        bootstrap,
        tuple(rows),
        tuple(row for row in localisation if row["area"] is not None),
    )


def run_names(runs: Sequence[Run]) -> list[str]:
    """The names of the runs in tables: the system as the paper writes it, with the folder where two
    are of one system."""
    systems = [PAPER_NAMES.get(run.config.system, run.config.system) for run in runs]
    names = [
        system if systems.count(system) == 1 else f"{system} ({run.name})"
        for system, run in zip(systems, runs, strict=True)
    ]
    if len(set(names)) == len(names):
        return names
    return [f"{system} ({run.folder.path})" for system, run in zip(systems, runs, strict=True)]


def stored_evaluation(
    run: Run,
    name: str,
    manifest_path: str | Path | None,
    split: str,
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluated:
    """The evaluation in the run folder if it is of this model, else a new one.

    With a manifest given it is always made anew.
    """
    folder, figures = run.folder, None
    here = [folder / layout.evaluation(split, kind) for kind in ("json", "csv")]
    if manifest_path is None and all(path.is_file() for path in here):
        stored = folder.read_json(layout.evaluation(split))
        if stored.get("model") == model_digest(run):
            figures = stored
    if figures is None:
        figures = evaluate_run(
            run, manifest_path, split, bootstrap=bootstrap, seed=seed, progress=progress
        )
    if figures["leaked"]:
        raise UserError(
            f"{here[0]}: is leaked, forced on images of its training; it cannot be compared: "
            "evaluate on images that the run has not seen, or give --data MANIFEST"
        )
    return _read_rows(here[1], name, figures)


def _read_rows(path: Path, name: str, figures: Mapping[str, Any]) -> Evaluated:
    with path.open(newline="", encoding="utf-8") as file:
        table = sorted(csv.DictReader(file), key=lambda row: (row["hash"], row["label"]))
    columns = [f"probability_{each}" for each in figures["classes"]]
    try:
        values = [[float(row[column]) for column in columns] for row in table]
    except (KeyError, ValueError) as error:
        raise UserError(f"{path}: is damaged ({error}); evaluate the run again") from None
    return Evaluated(
        name,
        figures,
        tuple(row["label"] for row in table),
        tuple(row["patient"] for row in table),
        np.array(values).reshape(len(table), len(columns)),
    )


def _check_alike(runs: Sequence[Run], found: Sequence[Evaluated]) -> None:
    """Refuse runs that were evaluated on other images or classes than the first."""
    first = found[0].figures
    for run, each in zip(runs[1:], found[1:], strict=True):
        figures = each.figures
        if figures["classes"] != first["classes"]:
            raise UserError(
                f"{run.folder.path}: its classes are {', '.join(figures['classes'])}, those of "
                f"{runs[0].folder.path} are {', '.join(first['classes'])}; only runs with the same "
                "classes in the same order compare"
            )
        if figures["negative_class"] != first["negative_class"]:
            raise UserError(
                f"{run.folder.path}: its negative class is {figures['negative_class']!r}, that of "
                f"{runs[0].folder.path} is {first['negative_class']!r}; they must be the same"
            )
        if figures["rows"] != first["rows"]:
            raise UserError(
                f"{run.folder.path}: evaluated on {figures['n']} images, not the same as the "
                f"{first['n']} of {runs[0].folder.path}; give one manifest for all with --data"
            )


# -- localisation --------------------------------------------------------------------------------
def _run_localisation(each: Evaluated) -> Row:
    figures = each.figures
    fine, lesion = (figures["activation_precision"][scale] for scale in ("fine", "lesion"))
    area = figures["activation_area"]
    return {
        "method": each.name,
        "fine": fine["mean"],
        "fine_ci95": fine["ci95"],
        "fine_chance": fine["chance"],
        "lesion": lesion["mean"],
        "lesion_ci95": lesion["ci95"],
        "lesion_chance": lesion["chance"],
        "peak_inside": figures["peak_inside"]["fine"]["mean"],
        "area": area["mean"],
        "per_level": {
            level: {
                "fine": fine["per_level"][level],
                "lesion": lesion["per_level"][level],
                "area": area["per_level"][level],
            }
            for level in area["per_level"]
        },
    }


def same_images(
    run: Run, digest: str, manifest_path: str | Path | None, split: str
) -> EvaluatedSplit | None:
    """The images that a stored evaluation is of (its `rows`), if they are at hand; else a warning."""
    try:
        chosen = evaluated_split(run, manifest_path, split)
    except UserError as error:
        reason = str(error)
    else:
        if rows_digest(chosen) == digest:
            return chosen
        reason = "the manifest of training holds other images; give --data MANIFEST"
    warnings.warn(f"{run.folder.path}: its images cannot be shown: {reason}", stacklevel=3)
    return None


def saliency_row(
    run: Run,
    name: str,
    method: Saliency,
    chosen: EvaluatedSplit,
    bootstrap: int = RESAMPLES,
    seed: int = 0,
) -> Row:
    """The localisation of a saliency method on a run: maps of each image's own class.

    `method(model, images (B, 3, S, S) normalised, targets (B,))` gives maps (B, S, S).
    """
    labels = class_numbers(run, chosen)
    data, size = run.config.data, run.config.train.eval_batch_size
    store = ImageStore(chosen.samples, data.model_copy(update={"memory_budget": 0.0}))
    parts, chance = [], []
    for start in range(0, len(labels), size):
        images = list(range(start, min(start + size, len(labels))))
        loaded = store.load(images)
        ready = model_input(loaded.images, data, device_of(run.model))
        maps = method(run.model, ready, torch.from_numpy(labels[images])).detach().cpu()
        annotations = annotation_masks(chosen, images, loaded)
        parts.append(places(maps, *annotations))
        chance.append([each.flatten(1).double().mean(1).numpy() for each in annotations])
    found = Places(*(np.concatenate(values) for values in zip(*parts, strict=True)))
    shares = [np.concatenate(values) for values in zip(*chance, strict=True)]
    patients = [sample.patient for sample in chosen.samples]
    weights = metrics.resample_weights(patients, bootstrap, seed)
    return {
        "method": name,
        **_scale("fine", found.fine, shares[0], weights),
        **_scale("lesion", found.lesion, shares[1], weights),
        "peak_inside": _mean(found.peak_fine),
        "area": _mean(found.area),
        "per_level": {},
    }


def _scale(name: str, values: Array, chance: Array, weights: Array) -> Row:
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0)
    return {
        name: _mean(values),
        f"{name}_ci95": metrics.mean_interval(sums, known.astype(np.float64), weights),
        f"{name}_chance": _mean(chance[known]),
    }


def _mean(values: Array) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


# -- tables --------------------------------------------------------------------------------------
def number(value: float | None, limits: Sequence[float] | None = None) -> str:
    """A figure with its interval as text; a dash where it is undefined.

    >>> number(0.8125, [0.7, 0.9]), number(None)
    ('.812 [.700, .900]', '–')
    """
    if value is None:
        return "–"
    text = _short(value)
    return text if limits is None else f"{text} [{_short(limits[0])}, {_short(limits[1])}]"


def _short(value: float) -> str:
    """Three decimals without the leading zero, as in the paper."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def auroc_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the AUROC table."""
    header = ["system", *comparison.classes, "mean", "difference", "p"]
    table = []
    for row in comparison.rows:
        auroc, test = row["auroc"], row["against_first"]
        cells = [
            number(auroc["per_class"][name], auroc["ci95_per_class"][name])
            for name in comparison.classes
        ]
        mean = number(auroc["mean"], auroc["ci95"])
        tested = ["", ""]
        if test is not None:
            tested = [number(test["mean"]["difference"], test["mean"]["ci95"])]
            tested.append(number(test["mean"]["p"]))
        table.append([row["name"], *cells, mean, *tested])
    return header, table


def localisation_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the localisation table, a row more for each level of a pyramid."""
    header = ["method", "fine precision", "chance", "lesion precision", "chance", "peak inside"]
    table = []
    for row in comparison.localisation:
        cells = [number(row["fine"], row["fine_ci95"]), number(row["fine_chance"])]
        cells += [number(row["lesion"], row["lesion_ci95"]), number(row["lesion_chance"])]
        table.append([row["method"], *cells, number(row["peak_inside"]), number(row["area"])])
        if len(row["per_level"]) > 1:
            for level, of_level in row["per_level"].items():
                values = [number(of_level["fine"]), "", number(of_level["lesion"]), "", ""]
                table.append([f"  level {level}", *values, number(of_level["area"])])
    return [*header, "area"], table


def _markdown(comparison: Comparison) -> str:
    lines = [
        f"# Comparison on split {comparison.split}",
        "",
        f"{comparison.n} images of {comparison.patients} patients. AUROC: each class against the "
        "other margins, with 95 % intervals from "
        f"{comparison.resamples} resamples of the patients; difference and two-sided p of the mean "
        f"against {comparison.rows[0]['name']}, paired by resampling both alike.",
        "",
        *_markdown_table(*auroc_table(comparison)),
    ]
    if comparison.localisation:
        lines += [
            "",
            "Where the maps of an image's own class activate. Precision: share of their strongest 5 % "
            "of pixels inside the annotation (fine) or the lesion box (lesion); chance: the "
            "annotation's share of the image; peak inside: share of maps whose highest pixel is inside "
            "the fine annotation; area: share of the pixels above half way from lowest to highest.",
            "",
            *_markdown_table(*localisation_table(comparison)),
        ]
    return "\n".join(lines) + "\n"


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(header), "|---" + "|---:" * (len(header) - 1) + "|", *map(line, rows)]


def _csv(comparison: Comparison) -> str:
    """A table of plain numbers; empty where undefined."""
    header = ["name", "system", "run", "n", "accuracy", "ece"]
    for name in (*comparison.classes, "mean"):
        header += [f"auroc_{name}{end}" for end in ("", "_low", "_high", "_difference")]
        header += [f"auroc_{name}{end}" for end in ("_difference_low", "_difference_high", "_p")]
    kinds = ("fine", "fine_chance", "lesion", "lesion_chance", "peak_inside", "area")
    header += kinds
    places_of = {row["method"]: row for row in comparison.localisation}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in comparison.rows:
        auroc, test = row["auroc"], row["against_first"] or {}
        cells = [row["name"], row["system"], row["run"], comparison.n, row["accuracy"], row["ece"]]
        for name in (*comparison.classes, "mean"):
            of_mean = name == "mean"
            value = auroc["mean"] if of_mean else auroc["per_class"][name]
            limits = auroc["ci95"] if of_mean else auroc["ci95_per_class"][name]
            tested = test.get(name, {})
            cells += [value, *(limits or ("", "")), tested.get("difference")]
            cells += [*(tested.get("ci95") or ("", "")), tested.get("p")]
        found = places_of.pop(row["name"], {})
        writer.writerow(
            ["" if cell is None else cell for cell in cells + [found.get(k) for k in kinds]]
        )
    for method, found in places_of.items():
        blank = [""] * (len(header) - len(kinds) - 1)
        values = ["" if found[kind] is None else found[kind] for kind in kinds]
        writer.writerow([method, *blank, *values])
    return text.getvalue()
