"""Cross-validation: every patient is predicted by a model that never saw any image of theirs.

The rows of a manifest that are not test rows are split into folds, whole patients at a time and classes
evenly, differently for each seed (a study does the same with `dealing = 2`). Each fold and seed is a run in
`OUT/seed-S/fold-F`: it learns from the other folds, is selected on a part of them that it holds out, and
predicts its fold. Finished runs are not trained again and a stopped one continues, so the same call resumes.

    OUT/crossval.json        mean and spread of the macro AUROC, and the metrics of every run
    OUT/predictions.csv      the out-of-fold predictions, one row per image and seed
    OUT/seed-S/fold-F/       a run, with its manifest.csv; the fold is its test split
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protopyramid import api
from protopyramid.config.schema import Config
from protopyramid.data.images import file_hash
from protopyramid.data.manifest import (
    Manifest,
    Sample,
    manifest_text,
    with_fold,
    with_validation,
)
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.inference.batches import evidence_batches
from protopyramid.metrics.softmax import softmax
from protopyramid.metrics.validation import ValidationMetrics, validation_metrics
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.provenance import read_provenance
from protopyramid.runs.run import load_run
from protopyramid.runs.shelf import find_run
from protopyramid.studies.results import (
    CrossValidation,
    FoldMetrics,
    MeanAndSpread,
    SeedMetrics,
)
from protopyramid.training.checkpoint import has_checkpoint
from protopyramid.training.data_check import fit_for_training, labelled_manifest
from protopyramid.utils.files import part_of, write_text
from protopyramid.utils.opening import TABLE, exists, is_file, read_file
from protopyramid.utils.tables import Cell, csv_text

Array = NDArray[np.float64]
MANIFEST, PREDICTIONS, SUMMARY = "manifest.csv", "predictions.csv", "crossval.json"


@dataclass(frozen=True)
class FoldPredictions:
    """The out-of-fold predictions of one run: samples of the fold and their logits (N, C)."""

    seed: int
    fold: int
    samples: tuple[Sample, ...]
    logits: Array


def cross_validate(
    config: Config,
    data: str | Path,
    out: str | Path,
    folds: int,
    seeds: Sequence[int],
    *,
    backbone_from: str | Path | None = None,
    accelerator: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> CrossValidation:
    """Train and predict every fold of every seed; returns the content of crossval.json.

    `say` gets a line for each finished run. Raises `Stopped` after a signal; the same call continues.
    """
    _check(seeds)
    folder = RunFolder(out)
    manifest = labelled_manifest(data, config)
    if backbone_from is not None:
        backbone_from = find_run(backbone_from)
        _warn_of_leak(manifest, RunFolder(backbone_from))
    _check_folds(manifest, config, folds, seeds)
    results: list[FoldPredictions] = []
    with folder.lock():
        for seed in seeds:
            seeded = _with_seed(config, seed)
            for fold in range(folds):
                run = part_of(folder.path, f"seed-{seed}/fold-{fold}")
                fold_rows = with_fold(manifest, folds, fold, seed)
                with _begun(folder.path, run, bool(results)):
                    written = _write_manifest(run, fold_rows, seeded)
                    api.train(
                        seeded,
                        written,
                        run,
                        backbone_from=backbone_from,
                        accelerator=accelerator,
                        resume=True,
                    )
                result = FoldPredictions(seed, fold, *_predict(run, fold_rows.samples))
                results.append(result)
                say(f"seed {seed}, fold {fold}: {_line(_metrics([result], config))}")
        summary = summarise(config, folds, seeds, results)
        folder.write_text(PREDICTIONS, predictions_csv(config, results))
        folder.write_json(SUMMARY, summary.to_json())
    return summary


def summarise(
    config: Config, folds: int, seeds: Sequence[int], results: Sequence[FoldPredictions]
) -> CrossValidation:
    """The metrics of all runs, of each seed over its folds together, and their mean and spread."""
    runs = [
        FoldMetrics(each.seed, each.fold, len(each.samples), **asdict(_metrics([each], config)))
        for each in results
    ]
    pooled = []
    for seed in seeds:
        own = [result for result in results if result.seed == seed]
        pooled.append(SeedMetrics(seed, **asdict(_metrics(own, config))))
    return CrossValidation(
        system=config.system,
        classes=tuple(config.data.classes),
        folds=folds,
        seeds=tuple(seeds),
        auroc=MeanAndSpread.of([run.auroc for run in runs]),
        accuracy=MeanAndSpread.of([run.accuracy for run in runs]),
        pooled_auroc=MeanAndSpread.of([seed.auroc for seed in pooled]),
        per_seed=tuple(pooled),
        runs=tuple(runs),
    )


def summary_lines(summary: CrossValidation) -> list[str]:
    """The result of a cross-validation in words."""
    runs, lines = len(summary.runs), []
    for found, what in (
        (summary.auroc, f"macro AUROC over {runs} runs"),
        (summary.accuracy, f"accuracy over {runs} runs"),
        (summary.pooled_auroc, f"macro AUROC of pooled folds, over {len(summary.seeds)} seeds"),
    ):
        if found.mean is None:
            lines.append(f"{what}: undefined")
            continue
        spread = "" if found.spread is None else f" ± {found.spread:.3f}"
        lines.append(f"{what}: {found.mean:.3f}{spread}")
    return lines


def predictions_csv(config: Config, results: Sequence[FoldPredictions]) -> str:
    """One row per image and seed: what it is, and the probability of each class."""
    rows: list[list[Cell]] = []
    for result in results:
        for sample, row in zip(result.samples, softmax(result.logits), strict=True):
            facts: list[Cell] = [
                sample.name,
                sample.label,
                sample.patient_id,
                result.fold,
                result.seed,
            ]
            rows.append([*facts, *(f"{value:.6f}" for value in row)])
    header = ["image", "label", "patient_id", "fold", "seed", *config.data.classes]
    return csv_text(header, rows)


def _check(seeds: Sequence[int]) -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(
            "crossval: runs in one process; start it without torchrun, or train fold by fold"
        )
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds: expected different numbers, as in 0,1,2, got {list(seeds)}")


def _check_folds(manifest: Manifest, config: Config, folds: int, seeds: Sequence[int]) -> None:
    """Refuse, before any training, a fold that cannot be trained on; its training says the rest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            for fold in range(folds):
                rows = with_fold(manifest, folds, fold, seed)
                place = Path(f"{manifest.path} (seed {seed}, fold {fold})")
                fit_for_training(replace(rows, path=place), _with_seed(config, seed))


@contextmanager
def _begun(folder: Path, run: Path, finished: bool) -> Iterator[None]:
    """Leave nothing of a run that fails before its first checkpoint, and say what is kept of the others."""
    new = not exists(run)
    try:
        yield
    except UserError as error:
        if new and not has_checkpoint(RunFolder(run)):
            shutil.rmtree(run, ignore_errors=True)
            with suppress(OSError):  # other folds are in it
                run.parent.rmdir()
        if not finished:
            raise
        raise UserError(f"{error}; the finished runs in {folder} are kept") from error


def _warn_of_leak(manifest: Manifest, source: RunFolder) -> None:
    """Warn of a backbone that has learned from images that it will be tested on."""
    known = read_provenance(source).digests
    samples = [sample for sample in manifest.samples if sample.split != "test"]
    seen = [s.name for s in samples if file_hash(s.image) in known]
    if seen:
        warnings.warn(
            f"{source.path}: its backbone was trained on {len(seen)} of the {len(samples)} images of "
            f"{manifest.path} ({seen[0]} …); the metrics will be optimistic",
            stacklevel=3,
        )


def _with_seed(config: Config, seed: int) -> Config:
    content = config.model_dump()
    content["train"]["seed"] = seed
    return Config.model_validate(content)


def _write_manifest(run: Path, fold: Manifest, config: Config) -> Path:
    """Write the manifest of a run in its folder, with the validation part that it is selected on."""
    fold = with_validation(fold, config.data.validation_fraction, config.train.seed)
    text = manifest_text(fold, run)
    path = run / MANIFEST
    if is_file(path) and read_file(path, TABLE) != text.encode():
        raise UserError(
            f"{path}: was created from a different dataset, folds or seeds; give another --out for these"
        )
    return write_text(path, text)


def _predict(run: Path, rows: Sequence[Sample]) -> tuple[tuple[Sample, ...], Array]:
    """The samples of the fold and their logits (N, C)."""
    samples = tuple(sample for sample in rows if sample.split == "test")
    loaded = load_run(run)
    store = ImageStore(samples, loaded.config.data)
    size = loaded.config.train.eval_batch_size
    parts = [
        batch.evidence.logits.double().cpu().numpy()
        for batch in evidence_batches(loaded.model, store, batch_size=size)
    ]
    return samples, np.concatenate(parts)


def _metrics(results: Sequence[FoldPredictions], config: Config) -> ValidationMetrics:
    """The metrics of the predictions of some folds together."""
    classes = config.data.classes
    labels = np.array([classes.index(s.label) for result in results for s in result.samples])
    logits = np.concatenate([result.logits for result in results])
    return validation_metrics(logits, labels, classes, config.data.negative_class)


def _line(found: ValidationMetrics) -> str:
    auroc = "undefined" if found.auroc is None else f"{found.auroc:.3f}"
    return f"macro AUROC {auroc}, accuracy {found.accuracy:.3f}"
