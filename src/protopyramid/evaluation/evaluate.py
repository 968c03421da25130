"""The evaluation of a run on a split: one pass, then every figure, written to evaluation/SPLIT.*."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.store import ImageStore, Loaded
from protopyramid.evaluation.split import EvaluatedSplit, evaluated_split, lesions, patients
from protopyramid.figures import evaluation_plots as plots
from protopyramid.inference.batches import evidence_batches
from protopyramid.inference.ood import Numbers, fit_limits, numbers_of, write_limits
from protopyramid.metrics import classification as metrics
from protopyramid.metrics.elimination import elimination
from protopyramid.metrics.localisation import (
    Localisation,
    LocalisationPass,
    box_masks,
    nothing_localised,
    per_image,
    summarise,
)
from protopyramid.prototypes.health import prototype_health, source_peaks
from protopyramid.runs import layout

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

Array = NDArray[np.float64]
Progress = Callable[[int, int], None]

RESAMPLES = 1000


@dataclass(frozen=True)
class Pass:
    """What one pass over N images gives: logits (N, C), scores (N, m), what images are judged by, places."""

    logits: Tensor
    scores: Tensor
    numbers: Numbers
    localisation: Localisation


def evaluate_run(
    run: Run,
    manifest_path: str | Path | None = None,
    split: str = "test",
    force: bool = False,
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    progress: Progress | None = None,
    pictures: bool = True,
) -> dict[str, Any]:
    """Evaluate a run on a split and write evaluation/SPLIT.json, .csv and the plots.

    Images that the run was trained on are refused (UserError) unless `force`, which marks the result
    `leaked`. Evaluating validation also writes thresholds.json, which `predict` flags images by.
    """
    chosen = evaluated_split(run, manifest_path, split, force)
    return evaluate_split(run, chosen, bootstrap, seed, progress, pictures)


def evaluate_split(
    run: Run,
    chosen: EvaluatedSplit,
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    progress: Progress | None = None,
    pictures: bool = True,
) -> dict[str, Any]:
    """As `evaluate_run`, on a split whose images are known already."""
    split = chosen.name
    labels = class_numbers(run, chosen)
    found = run_pass(run, chosen, labels, progress)
    result = figures(run, chosen, labels, found, bootstrap, seed)
    probabilities = metrics.softmax(found.logits.numpy())
    run.folder.write_text(
        layout.evaluation(split, "csv"), rows_csv(run, chosen, probabilities, found.localisation)
    )
    if pictures:
        for name, picture in plots.draw_all(result, probabilities, labels).items():
            run.folder.write_bytes(layout.plot(split, name), picture)
    if split == "validation":
        write_limits(run.folder, fit_limits(found.numbers, patients(chosen.samples)))
    # The figures last: where they are, all else is.
    run.folder.write_json(layout.evaluation(split), result)
    for text in result["warnings"]:
        warnings.warn(text, stacklevel=2)
    return result


def class_numbers(run: Run, chosen: EvaluatedSplit) -> NDArray[np.int64]:
    """The labels of the samples as class numbers (N,)."""
    classes = run.config.data.classes
    return np.array([classes.index(sample.label) for sample in chosen.samples], dtype=np.int64)


def run_pass(
    run: Run,
    chosen: EvaluatedSplit,
    labels: NDArray[np.int64],
    progress: Progress | None = None,
) -> Pass:
    """One pass of the model over the samples."""
    layer = run.model.prototypes
    places = None
    if layer is not None:
        places = LocalisationPass(layer.classes.cpu(), layer.levels.cpu())
    # Each image is needed once: none is kept.
    store = ImageStore(chosen.samples, run.config.data.model_copy(update={"memory_budget": 0.0}))
    logits, scores, numbers = [], [], []
    for seen in evidence_batches(run.model, store, batch_size=run.config.train.eval_batch_size):
        logits.append(seen.evidence.logits.double().cpu())
        scores.append(seen.evidence.scores.cpu())
        numbers.append(numbers_of(seen.loaded.images, scores[-1], seen.evidence.closeness.cpu()))
        if places is not None:
            fine, lesion = annotation_masks(chosen, seen.images, seen.loaded)
            places.update(seen.evidence.maps, torch.from_numpy(labels[seen.images]), fine, lesion)
        if progress is not None:
            progress(seen.images[-1] + 1, len(labels))
    localisation = nothing_localised(len(labels)) if places is None else places.result()
    together = Numbers(*map(torch.cat, zip(*numbers, strict=True)))
    return Pass(torch.cat(logits), torch.cat(scores), together, localisation)


def annotation_masks(
    chosen: EvaluatedSplit, images: Sequence[int], loaded: Loaded
) -> tuple[Tensor, Tensor]:
    """Fine and lesion annotations of a batch, bool (B, S, S) each, all False where missing.

    Fine counts mask files alone: the ellipse that stands for a mask in training is not a fine annotation.
    """
    real = torch.tensor([chosen.samples[index].mask is not None for index in images])
    fine = loaded.masks.bool() & real[:, None, None]
    return fine, box_masks(loaded.boxes, loaded.masks.shape[-1])


def figures(
    run: Run,
    chosen: EvaluatedSplit,
    labels: NDArray[np.int64],
    found: Pass,
    bootstrap: int,
    seed: int,
) -> dict[str, Any]:
    """Everything that evaluation/SPLIT.json holds."""
    classes, negative = run.config.data.classes, run.config.data.negative_class
    logits = found.logits.numpy()
    probabilities = metrics.softmax(logits)
    groups, of_lesion = patients(chosen.samples), lesions(chosen.samples)
    resampling = (bootstrap, seed)
    weights = metrics.resample_weights(groups, *resampling)
    counts = metrics.confusion_matrix(labels, logits.argmax(1), len(classes))
    curve = metrics.reliability(probabilities, labels)
    layer = run.model.prototypes
    levels = np.zeros(0, np.int64) if layer is None else layer.levels.cpu().numpy()
    right = (logits.argmax(1) == labels).astype(np.float64)
    return {
        "system": run.config.system,
        "split": chosen.name,
        "manifest": chosen.manifest.path.name,
        "model": model_digest(run),
        "rows": rows_digest(chosen),
        "leaked": chosen.leaked,
        "warnings": [*chosen.warnings, *_absent(classes, labels, chosen.name)],
        "classes": list(classes),
        "negative_class": negative,
        "n": len(labels),
        "patients": len(set(groups)),
        "per_class_n": dict(zip(classes, counts.sum(1).tolist(), strict=True)),
        "bootstrap": {"resamples": bootstrap, "seed": seed, "unit": "patient"},
        "auroc": _auroc(probabilities, labels, classes, negative, weights),
        "accuracy": float(right.mean()),
        "accuracy_ci95": metrics.mean_interval(right, np.ones(len(right)), weights),
        "confusion_matrix": counts.tolist(),
        "confusion_matrix_normalised": metrics.row_normalised(counts),
        "sensitivity": dict(zip(classes, metrics.sensitivities(counts), strict=True)),
        "specificity": dict(zip(classes, metrics.specificities(counts), strict=True)),
        "calibration": {"ece": metrics.expected_calibration_error(curve), "reliability": curve},
        **summarise(found.localisation, labels, levels, classes, weights),
        "prototype_peak_inside": source_peaks(run, chosen.manifest),
        "health": prototype_health(run, found.logits, found.scores),
        "elimination": None
        if layer is None
        else elimination(run.model.head.weight.detach().cpu(), found.scores, labels, classes),
        "per_lesion": grouped_figures(run, probabilities, labels, of_lesion, groups, resampling),
        "per_patient": grouped_figures(run, probabilities, labels, groups, groups, resampling),
    }


def _auroc(
    probabilities: Array,
    labels: NDArray[np.int64],
    classes: Sequence[str],
    negative: str,
    weights: Array,
) -> dict[str, Any]:
    return {
        **metrics.auroc_figures(probabilities, labels, classes, negative, weights),
        "with_negative": metrics.auroc_figures(probabilities, labels, classes, "", weights),
    }


def _absent(classes: Sequence[str], labels: NDArray[np.int64], split: str) -> list[str]:
    missing = [name for number, name in enumerate(classes) if not (labels == number).any()]
    return [f"no row of split {split} is {name}: its figures are null" for name in missing]


def grouped_figures(
    run: Run,
    probabilities: Array,
    labels: NDArray[np.int64],
    groups: Sequence[str] | None,
    owners: Sequence[str],
    resampling: tuple[int, int],
) -> dict[str, Any] | None:
    """AUROC and accuracy where the rows of a group (lesion, patient) are averaged into one.

    Rows of a patient with different labels are different lesions: one group for each label. None
    where no group has several rows. `owners` are the patients, `resampling` is (resamples, seed).
    """
    if groups is None:
        return None
    keys = [f"{group}\n{label}" for group, label in zip(groups, labels, strict=True)]
    _, first, row = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(keys):
        return None
    sums = np.zeros((len(first), probabilities.shape[1]))
    np.add.at(sums, row, probabilities)
    means = sums / np.bincount(row)[:, None]
    labels = labels[first]
    weights = metrics.resample_weights([owners[index] for index in first], *resampling)
    data = run.config.data
    return {
        "n": len(first),
        "auroc": _auroc(means, labels, data.classes, data.negative_class, weights),
        "accuracy": float((means.argmax(1) == labels).mean()),
    }


# -- files ---------------------------------------------------------------------------------------
def rows_csv(
    run: Run, chosen: EvaluatedSplit, probabilities: Array, localisation: Localisation
) -> str:
    """One row an image: label, prediction, probabilities, its own activation precision."""
    classes = run.config.data.classes
    n = len(chosen.samples)
    fine = per_image(localisation.places.fine, localisation, n)
    lesion = per_image(localisation.places.lesion, localisation, n)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [f"probability_{name}" for name in classes]
    precision = ["fine_precision", "lesion_precision"]
    writer.writerow(["image", "hash", "patient", "label", "predicted", *names, *precision])
    for row, sample in enumerate(chosen.samples):
        predicted = classes[int(probabilities[row].argmax())]
        numbers = [repr(float(value)) for value in probabilities[row]]
        places = [_cell(fine[row]), _cell(lesion[row])]
        identity = [sample.name, chosen.hashes[row], sample.patient, sample.label]
        writer.writerow([*identity, predicted, *numbers, *places])
    return text.getvalue()


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def model_digest(run: Run) -> str:
    """Hash of the saved model and its test-time augmentation, which an evaluation belongs to."""
    content = (run.folder / layout.MODEL).read_bytes()
    tta = run.config.model.tta
    # "looks" is what evaluations of earlier versions have in their digest.
    return hashlib.sha256(content + (f"{tta} looks".encode() if tta > 1 else b"")).hexdigest()


def rows_digest(chosen: EvaluatedSplit) -> str:
    """Hash of what was evaluated: the images' content and labels, whatever their order."""
    pairs = zip(chosen.hashes, chosen.samples, strict=True)
    lines = sorted(f"{content} {sample.label}" for content, sample in pairs)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
