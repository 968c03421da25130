"""The evaluation of a run on a split: one pass, then every metric, written to evaluation/SPLIT.*."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.store import ImageStore, Loaded
from protopyramid.evaluation.results import AurocOfSplit, Bootstrap, Evaluation, Grouped
from protopyramid.evaluation.split import EvaluatedSplit, evaluated_split, lesions, patients
from protopyramid.figures import evaluation_plots as plots
from protopyramid.inference.batches import evidence_batches
from protopyramid.inference.ood import (
    OodFeatures,
    concatenate,
    fit_limits,
    limits_digest,
    ood_features,
    write_limits,
)
from protopyramid.metrics.auroc import auroc_with_intervals
from protopyramid.metrics.bootstrap import RESAMPLES, mean_interval, resample_weights
from protopyramid.metrics.calibration import calibration
from protopyramid.metrics.confusion import (
    confusion_matrix,
    row_normalised,
    sensitivities,
    specificities,
)
from protopyramid.metrics.elimination import elimination
from protopyramid.metrics.localisation import (
    Localisation,
    LocalisationPass,
    LocalisationSummary,
    box_masks,
    nothing_localised,
    per_image,
    summarise,
)
from protopyramid.metrics.softmax import softmax
from protopyramid.prototypes.health import (
    LOOK_ELSEWHERE,
    below_chance,
    run_health,
    source_pointing,
    source_warnings,
)
from protopyramid.runs import layout
from protopyramid.utils.opening import WEIGHTS, read_file
from protopyramid.utils.tables import csv_text, number

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

Array = NDArray[np.float64]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Pass:
    """What one pass over N images gives: logits (N, C), scores (N, m), what out-of-distribution images
    are told by, and where prototypes activate."""

    logits: Tensor
    scores: Tensor
    ood: OodFeatures
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
    source: str = "",
) -> Evaluation:
    """Evaluate a run on a split and write evaluation/SPLIT.json, .csv and the plots.

    With `source`, only on the rows of that dataset, and the files are called SPLIT@SOURCE.

    Images that the run was trained on are refused (UserError) unless `force`, which marks the result
    `leaked`. Evaluating validation also writes thresholds.json, by which `predict` flags images.
    """
    chosen = evaluated_split(run, manifest_path, split, force, source)
    return evaluate_split(run, chosen, bootstrap, seed, progress, pictures)


def evaluate_split(
    run: Run,
    chosen: EvaluatedSplit,
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    progress: Progress | None = None,
    pictures: bool = True,
) -> Evaluation:
    """As `evaluate_run`, on a split whose images are known already."""
    split = chosen.key
    labels = class_numbers(run, chosen)
    found = run_pass(run, chosen, labels, progress)
    result = measure(run, chosen, labels, found, Bootstrap(bootstrap, seed, "patient"))
    probabilities = softmax(found.logits.numpy())
    run.folder.write_text(
        layout.evaluation(split, "csv"), rows_csv(run, chosen, probabilities, found.localisation)
    )
    if pictures:
        for name, picture in plots.draw_all(result, probabilities, labels).items():
            run.folder.write_bytes(layout.plot(split, name), picture)
    if split == "validation":
        limits = fit_limits(found.ood, patients(chosen.samples))
        write_limits(run.folder, limits, limits_digest(run))
    # The JSON last: where it is, all else is.
    run.folder.write_json(layout.evaluation(split), result.to_json())
    for text in result.warnings:
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
    # Each image is needed once, so none is kept in memory.
    store = ImageStore(chosen.samples, run.config.data.model_copy(update={"memory_budget": 0.0}))
    logits, scores, features = [], [], []
    for batch in evidence_batches(run.model, store, batch_size=run.config.train.eval_batch_size):
        logits.append(batch.evidence.logits.double().cpu())
        scores.append(batch.evidence.scores.cpu())
        features.append(ood_features(batch.loaded.images, scores[-1], batch.evidence.closeness))
        if places is not None:
            fine, lesion = annotation_masks(chosen, batch.images, batch.loaded)
            places.update(batch.evidence.maps, torch.from_numpy(labels[batch.images]), fine, lesion)
        if progress is not None:
            progress(batch.images[-1] + 1, len(labels))
    localisation = nothing_localised(len(labels)) if places is None else places.result()
    return Pass(torch.cat(logits), torch.cat(scores), concatenate(features), localisation)


def annotation_masks(
    chosen: EvaluatedSplit, images: Sequence[int], loaded: Loaded
) -> tuple[Tensor, Tensor]:
    """Fine and lesion annotations of a batch, bool (B, S, S) each, all False where missing.

    Fine counts mask files alone: the ellipse that stands for a mask in training is not a fine annotation.
    """
    real = torch.tensor([chosen.samples[index].mask is not None for index in images])
    fine = loaded.masks.bool() & real[:, None, None]
    return fine, box_masks(loaded.boxes, loaded.masks.shape[-1])


def measure(
    run: Run,
    chosen: EvaluatedSplit,
    labels: NDArray[np.int64],
    found: Pass,
    bootstrap: Bootstrap,
) -> Evaluation:
    """All metrics of a pass over a split."""
    classes, negative = run.config.data.classes, run.config.data.negative_class
    logits, layer = found.logits.numpy(), run.model.prototypes
    probabilities, predicted = softmax(logits), logits.argmax(1)
    groups, of_lesion = patients(chosen.samples), lesions(chosen.samples)
    weights = resample_weights(groups, bootstrap.resamples, bootstrap.seed)
    counts = confusion_matrix(labels, predicted, len(classes))
    levels = np.zeros(0, np.int64) if layer is None else layer.levels.cpu().numpy()
    right = (predicted == labels).astype(np.float64)
    localised = summarise(found.localisation, labels, levels, classes, weights)
    pointing = source_pointing(run, chosen.manifest)
    by_elimination = None
    if layer is not None:
        weight = run.model.head.weight.detach().cpu()
        by_elimination = elimination(weight, found.scores, labels, classes)
    return Evaluation(
        system=run.config.system,
        split=chosen.name,
        source=chosen.source,
        annotation=run.config.data.annotation,
        manifest=chosen.manifest.path.name,
        model=model_digest(run),
        rows=rows_digest(chosen.hashes, chosen.labels),
        leaked=chosen.leaked,
        warnings=(
            *chosen.warnings,
            *_absent(classes, labels, chosen.name),
            *looking_elsewhere(localised, chosen.name),
            *source_warnings(run, pointing),
        ),
        classes=tuple(classes),
        negative_class=negative,
        n=len(labels),
        patients=len(set(groups)),
        per_class_n=dict(zip(classes, counts.sum(1).tolist(), strict=True)),
        bootstrap=bootstrap,
        auroc=_auroc(probabilities, labels, classes, negative, weights),
        accuracy=float(right.mean()),
        accuracy_ci95=mean_interval(right, np.ones(len(right)), weights),
        confusion_matrix=tuple(map(tuple, counts.tolist())),
        confusion_matrix_normalised=tuple(map(tuple, row_normalised(counts))),
        sensitivity=dict(zip(classes, sensitivities(counts), strict=True)),
        specificity=dict(zip(classes, specificities(counts), strict=True)),
        calibration=calibration(probabilities, labels),
        activation_precision=localised.activation_precision,
        pointing_game=localised.pointing_game,
        activation_area=localised.activation_area,
        source_pointing=pointing,
        health=run_health(run, found.logits, found.scores),
        elimination=by_elimination,
        per_lesion=grouped(run, probabilities, labels, of_lesion, groups, bootstrap),
        per_patient=grouped(run, probabilities, labels, groups, groups, bootstrap),
        system_title=run.system_title,
    )


def _auroc(
    probabilities: Array,
    labels: NDArray[np.int64],
    classes: Sequence[str],
    negative: str,
    weights: Array,
) -> AurocOfSplit:
    margins = auroc_with_intervals(probabilities, labels, classes, negative, weights)
    everything = auroc_with_intervals(probabilities, labels, classes, "", weights)
    return AurocOfSplit(**vars(margins), with_negative=everything)


def _absent(classes: Sequence[str], labels: NDArray[np.int64], split: str) -> list[str]:
    missing = [name for number, name in enumerate(classes) if not (labels == number).any()]
    return [f"split {split} has no row of class {name}: its metrics are null" for name in missing]


def looking_elsewhere(found: LocalisationSummary, split: str) -> list[str]:
    """A line for each metric of where prototypes activate that is below its chance level."""
    lines = []
    for metric, scales in (
        ("activation precision", found.activation_precision),
        ("the pointing game", found.pointing_game),
    ):
        below = [
            f"{number(each.mean)} inside the {where} (chance {number(each.chance)})"
            for where, each in (("annotation", scales.fine), ("lesion box", scales.lesion))
            if below_chance(each.mean, each.chance)
        ]
        if below:
            values = " and ".join(below)
            lines.append(f"split {split}: {metric} is below chance, {values}; {LOOK_ELSEWHERE}")
    return lines


def grouped(
    run: Run,
    probabilities: Array,
    labels: NDArray[np.int64],
    groups: Sequence[str] | None,
    owners: Sequence[str],
    bootstrap: Bootstrap,
) -> Grouped | None:
    """AUROC and accuracy where the rows of a group (lesion, patient) are averaged into one.

    Rows of a patient with different labels are different lesions: one group for each label. None
    where no group has several rows. `owners` are the patients.
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
    drawn = [owners[index] for index in first]
    weights = resample_weights(drawn, bootstrap.resamples, bootstrap.seed)
    data = run.config.data
    return Grouped(
        n=len(first),
        auroc=_auroc(means, labels, data.classes, data.negative_class, weights),
        accuracy=float((means.argmax(1) == labels).mean()),
    )


# -- files ---------------------------------------------------------------------------------------
def rows_csv(
    run: Run, chosen: EvaluatedSplit, probabilities: Array, localisation: Localisation
) -> str:
    """One row per image: label, prediction, probabilities, its own activation precision."""
    classes, n = run.config.data.classes, len(chosen.samples)
    fine = per_image(localisation.places.fine, localisation, n)
    lesion = per_image(localisation.places.lesion, localisation, n)
    header = ["image", "hash", "patient", "label", "predicted"]
    header += [*(f"probability_{name}" for name in classes), "fine_precision", "lesion_precision"]
    rows = []
    for row, sample in enumerate(chosen.samples):
        identity = [sample.name, chosen.hashes[row], sample.patient, sample.label]
        predicted = classes[int(probabilities[row].argmax())]
        values = [repr(float(value)) for value in probabilities[row]]
        rows.append([*identity, predicted, *values, _cell(fine[row]), _cell(lesion[row])])
    return csv_text(header, rows)


def _cell(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def model_digest(run: Run) -> str:
    """Hash of the saved model and its test-time augmentation, which an evaluation belongs to."""
    content = read_file(run.folder / layout.MODEL, WEIGHTS)
    tta = run.config.model.tta
    # "looks" is what evaluations of earlier versions have in their digest.
    return hashlib.sha256(content + (f"{tta} looks".encode() if tta > 1 else b"")).hexdigest()


def rows_digest(hashes: Iterable[str], labels: Iterable[str]) -> str:
    """Hash of what was evaluated: the images' content and labels, in any order."""
    lines = sorted(f"{content} {label}" for content, label in zip(hashes, labels, strict=True))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
