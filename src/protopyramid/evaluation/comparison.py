"""Several runs side by side on the same images: the paper's table, with intervals and a paired test.

    comparison = compare([load_run("runs/fpn"), load_run("runs/vgg16")])
    comparison.write("comparison")          # comparison.md, .csv and .json

The first run is the reference that the others are tested against.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.evaluation.comparison_results import (
    ComparedRun,
    Comparison,
    LevelLocalisation,
    MethodLocalisation,
)
from protopyramid.evaluation.evaluate import (
    Progress,
    annotation_masks,
    class_numbers,
    evaluate_run,
    model_digest,
    rows_digest,
)
from protopyramid.evaluation.results import Evaluation, read_evaluation
from protopyramid.evaluation.split import EvaluatedSplit, evaluated_split
from protopyramid.inference.batches import device_of, model_input
from protopyramid.metrics.auroc import auroc_with_intervals
from protopyramid.metrics.bootstrap import RESAMPLES, resample_weights
from protopyramid.metrics.localisation import (
    Localisation,
    LocalisationSummary,
    Places,
    annotation_share,
    places,
    summarise,
)
from protopyramid.metrics.paired_test import Difference, Pair, paired_differences
from protopyramid.model.necks import COARSEST
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs import layout
from protopyramid.utils.csv_files import numbers_in, read_columns

if TYPE_CHECKING:
    from protopyramid.runs.run import Run


Array = NDArray[np.float64]
Saliency = Callable[[PrototypeNetwork, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class EvaluatedRun:
    """A run's evaluation and its N rows, sorted by content so that runs align.

    probabilities (N, C).
    """

    name: str
    evaluation: Evaluation
    labels: tuple[str, ...]
    patients: tuple[str, ...]
    probabilities: Array
    hashes: tuple[str, ...] = ()

    @property
    def class_numbers(self) -> NDArray[np.int64]:
        """The labels as numbers, (N,)."""
        classes = self.evaluation.classes
        return np.array([classes.index(label) for label in self.labels], dtype=np.int64)


def compare(
    runs: Sequence[Run],
    manifest_path: str | Path | None = None,
    split: str = "test",
    bootstrap: int = RESAMPLES,
    seed: int = 0,
    methods: Mapping[str, Saliency] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare runs on a split; runs without an up-to-date evaluation are evaluated first.

    `methods` are saliency methods whose localisation is measured for runs without prototypes. Results
    that were forced on training images, and runs that were evaluated on other images, are refused.
    """
    if not runs:
        raise UserError("compare: no run given; name one run folder or more")
    found = [
        stored_evaluation(run, name, manifest_path, split, bootstrap, seed, progress)
        for run, name in zip(runs, run_names(runs), strict=True)
    ]
    _check_alike(runs, found)
    first = found[0]
    weights = resample_weights(first.patients, bootstrap, seed)
    rows = [_compared(run, each, first, weights) for run, each in zip(runs, found, strict=True)]
    localisation = [_run_localisation(each) for each in found]
    for run, each in zip(runs, found, strict=True):
        if run.model.prototypes is None and methods:
            chosen = same_images(run, first.evaluation.rows, manifest_path, split)
            localisation += [
                saliency_row(run, f"{each.name}, {label}", method, chosen, bootstrap, seed)
                for label, method in methods.items()
                if chosen is not None
            ]
    return Comparison(
        split=split,
        n=len(first.labels),
        patients=len(set(first.patients)),
        classes=tuple(first.evaluation.auroc.per_class),
        resamples=bootstrap,
        rows=tuple(rows),
        localisation=tuple(row for row in localisation if row.area is not None),
        digest=first.evaluation.rows,
    )


def _compared(run: Run, each: EvaluatedRun, first: EvaluatedRun, weights: Array) -> ComparedRun:
    """A run's AUROC and its paired test against the first run; weights (R, N)."""
    classes, negative = first.evaluation.classes, first.evaluation.negative_class
    labels = first.class_numbers
    test: Mapping[str, Difference] | None = None
    if each is not first:
        pair = Pair(first.probabilities, each.probabilities, labels, weights)
        test = paired_differences([pair], classes, negative)
    return ComparedRun(
        name=each.name,
        system=run.config.system,
        run=str(run.folder.path),
        auroc=auroc_with_intervals(each.probabilities, labels, classes, negative, weights),
        against_first=test,
        accuracy=each.evaluation.accuracy,
        ece=each.evaluation.calibration.ece,
    )


def run_names(runs: Sequence[Run]) -> list[str]:
    """The names of the runs in tables: their systems', with the folder where two runs have one name."""
    systems = [run.system_title for run in runs]
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
) -> EvaluatedRun:
    """The evaluation in the run folder if it is of this model, else a new one.

    With a manifest given, the run is always evaluated again.
    """
    table = run.folder / layout.evaluation(split, "csv")
    evaluation = None
    if manifest_path is None and table.is_file():
        stored = read_evaluation(run.folder, split)
        if stored is not None and stored.model == model_digest(run):
            evaluation = stored
    if evaluation is None:
        evaluation = evaluate_run(
            run, manifest_path, split, bootstrap=bootstrap, seed=seed, progress=progress
        )
    if evaluation.leaked:
        raise UserError(
            f"{run.folder / layout.evaluation(split)}: is leaked (forced on training images) and "
            "cannot be compared; evaluate on images that the run has not seen, or give --data MANIFEST"
        )
    return read_rows(table, name, evaluation)


def read_rows(path: Path, name: str, evaluation: Evaluation) -> EvaluatedRun:
    """The rows of a stored evaluation, from the CSV beside it."""
    columns = [f"probability_{each}" for each in evaluation.classes]
    remedy = "evaluate the run again"
    table = sorted(
        read_columns(path, ["hash", "label", "patient", *columns], remedy),
        key=lambda row: (row["hash"], row["label"]),
    )
    values = numbers_in(path, table, columns, remedy)
    found = rows_digest((row["hash"] for row in table), (row["label"] for row in table))
    if found != evaluation.rows:
        raise UserError(f"{path}: damaged (its rows are not those of the evaluation); {remedy}")
    return EvaluatedRun(
        name,
        evaluation,
        tuple(row["label"] for row in table),
        tuple(row["patient"] for row in table),
        np.array(values).reshape(len(table), len(columns)),
        tuple(row["hash"] for row in table),
    )


def _check_alike(runs: Sequence[Run], found: Sequence[EvaluatedRun]) -> None:
    """Refuse runs that were evaluated on other images or classes than the first."""
    first, reference = found[0].evaluation, runs[0].folder.path
    for run, each in zip(runs[1:], found[1:], strict=True):
        path, other = run.folder.path, each.evaluation
        if other.classes != first.classes:
            raise UserError(
                f"{path}: its classes are {', '.join(other.classes)}, those of {reference} are "
                f"{', '.join(first.classes)}; compare runs with the same classes in the same order"
            )
        if other.negative_class != first.negative_class:
            raise UserError(
                f"{path}: its negative class is {other.negative_class!r}, that of {reference} is "
                f"{first.negative_class!r}; they must be the same"
            )
        if other.rows != first.rows:
            raise UserError(
                f"{path}: evaluated on {other.n} images, not the same as the {first.n} of "
                f"{reference}; give one manifest for all with --data"
            )


# -- localisation --------------------------------------------------------------------------------
def _run_localisation(each: EvaluatedRun) -> MethodLocalisation:
    found = each.evaluation
    fine, lesion = found.activation_precision.fine, found.activation_precision.lesion
    levels = {
        level: LevelLocalisation(fine.per_level[level], lesion.per_level[level], value)
        for level, value in found.activation_area.per_level.items()
    }
    return _method_localisation(each.name, found, levels)


def _method_localisation(
    name: str,
    found: Evaluation | LocalisationSummary,
    levels: dict[str, LevelLocalisation],
) -> MethodLocalisation:
    fine, lesion = found.activation_precision.fine, found.activation_precision.lesion
    return MethodLocalisation(
        method=name,
        fine=fine.mean,
        fine_ci95=fine.ci95,
        fine_chance=fine.chance,
        lesion=lesion.mean,
        lesion_ci95=lesion.ci95,
        lesion_chance=lesion.chance,
        pointing_game=found.pointing_game.fine.mean,
        area=found.activation_area.mean,
        per_level=levels,
    )


def same_images(
    run: Run, digest: str, manifest_path: str | Path | None, split: str
) -> EvaluatedSplit | None:
    """The images of a stored evaluation (its `rows`), if they are available; else a warning."""
    try:
        chosen = evaluated_split(run, manifest_path, split)
    except UserError as error:
        reason = str(error)
    else:
        if rows_digest(chosen.hashes, chosen.labels) == digest:
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
) -> MethodLocalisation:
    """The localisation of a saliency method on a run: maps of each image's own class.

    `method(model, images (B, 3, S, S) normalised, targets (B,))` gives maps (B, S, S).
    """
    found = saliency_localisation(run, method, chosen, bootstrap, seed)
    return _method_localisation(name, found, {})


def saliency_localisation(
    run: Run,
    method: Saliency,
    chosen: EvaluatedSplit,
    bootstrap: int = RESAMPLES,
    seed: int = 0,
) -> LocalisationSummary:
    """Where the maps of a saliency method activate, as is measured of prototypes: one map per image.

    The map is that of the image's own class, and counts as one of level 5, the backbone's last.
    """
    labels = class_numbers(run, chosen)
    weights = resample_weights([each.patient for each in chosen.samples], bootstrap, seed)
    found = _saliency_places(run, method, chosen, labels)
    return summarise(found, labels, np.array([COARSEST]), run.config.data.classes, weights)


def _saliency_places(
    run: Run, method: Saliency, chosen: EvaluatedSplit, labels: NDArray[np.int64]
) -> Localisation:
    """Where the map of every image activates."""
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
        chance.append([annotation_share(each) for each in annotations])
    return Localisation(
        np.arange(len(labels)),
        np.zeros(len(labels), np.int64),
        Places(*(np.concatenate(values) for values in zip(*parts, strict=True))),
        *(np.concatenate(values) for values in zip(*chance, strict=True)),
    )
