"""Cross-validation: every patient is predicted by a model that never saw any image of theirs.

The rows of a manifest that are not test rows are dealt into folds, whole patients at a time and every
class evenly, anew for each seed. Each fold and seed is a run in `OUT/seed-S/fold-F`: it learns from the
other folds, chooses its model on a part of them that it holds out, and predicts its fold. Runs that are
finished are not trained again and one that was stopped goes on, so the same call resumes.

    OUT/crossval.json        mean and spread of the macro AUROC, and the figures of every run
    OUT/predictions.csv      the out-of-fold predictions, one row an image and seed
    OUT/seed-S/fold-F/       a run, with its manifest.csv; the fold is its test split
"""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
from protopyramid.metrics.validation import ValidationMetrics, validation_metrics
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.provenance import read_provenance
from protopyramid.runs.run import load_run
from protopyramid.training.data_check import labelled_manifest

Array = NDArray[np.float64]
MANIFEST, PREDICTIONS, SUMMARY = "manifest.csv", "predictions.csv", "crossval.json"


@dataclass(frozen=True)
class FoldResult:
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
) -> dict[str, Any]:
    """Train and predict every fold of every seed; returns what crossval.json holds.

    `say` is told of each run that is done. Raises `Stopped` after a signal; the same call goes on.
    """
    _check(seeds)
    folder = RunFolder(out)
    manifest = labelled_manifest(data, config)
    if backbone_from is not None:
        _warn_of_leak(manifest, RunFolder(backbone_from))
    results = []
    with folder.lock():
        for seed in seeds:
            seeded = _with_seed(config, seed)
            for fold in range(folds):
                run = folder / f"seed-{seed}/fold-{fold}"
                dealt = with_fold(manifest, folds, fold, seed)
                written = _write_manifest(run, dealt, seeded)
                api.train(
                    seeded,
                    written,
                    run,
                    backbone_from=backbone_from,
                    accelerator=accelerator,
                    resume=True,
                )
                result = FoldResult(seed, fold, *_predict(run, dealt.samples))
                results.append(result)
                say(f"seed {seed}, fold {fold}: {_line(_score(result.logits, [result], config))}")
        summary = summarise(config, folds, seeds, results)
        folder.write_text(PREDICTIONS, predictions_csv(config, results))
        folder.write_json(SUMMARY, summary)
    return summary


def summarise(
    config: Config, folds: int, seeds: Sequence[int], results: Sequence[FoldResult]
) -> dict[str, Any]:
    """The figures of all runs, of each seed over its folds together, and their mean and spread."""
    runs = [
        {
            "seed": result.seed,
            "fold": result.fold,
            "images": len(result.samples),
            **asdict(_score(result.logits, [result], config)),
        }
        for result in results
    ]
    pooled = []
    for seed in seeds:
        own = [result for result in results if result.seed == seed]
        found = _score(np.concatenate([result.logits for result in own]), own, config)
        pooled.append({"seed": seed, **asdict(found)})
    return {
        "system": config.system,
        "classes": config.data.classes,
        "folds": folds,
        "seeds": list(seeds),
        "auroc": _mean_and_spread([run["auroc"] for run in runs]),
        "accuracy": _mean_and_spread([run["accuracy"] for run in runs]),
        "pooled_auroc": _mean_and_spread([seed["auroc"] for seed in pooled]),
        "per_seed": pooled,
        "runs": runs,
    }


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """What the user reads of a cross-validation."""
    runs = len(summary["runs"])
    lines = []
    for key, what in (
        ("auroc", f"macro AUROC over {runs} runs"),
        ("accuracy", f"accuracy over {runs} runs"),
        ("pooled_auroc", f"macro AUROC of all folds together, over {len(summary['seeds'])} seeds"),
    ):
        figure = summary[key]
        if figure["mean"] is None:
            lines.append(f"{what}: undefined")
            continue
        spread = "" if figure["spread"] is None else f" ± {figure['spread']:.3f}"
        lines.append(f"{what}: {figure['mean']:.3f}{spread}")
    return lines


def predictions_csv(config: Config, results: Sequence[FoldResult]) -> str:
    """One row an image and seed: what it is, and the probability of each class."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    classes = config.data.classes
    writer.writerow(["image", "label", "patient_id", "fold", "seed", *classes])
    for result in results:
        for sample, row in zip(result.samples, _probabilities(result.logits), strict=True):
            shown = [f"{value:.6f}" for value in row]
            facts = [sample.name, sample.label, sample.patient_id, result.fold, result.seed]
            writer.writerow([*facts, *shown])
    return text.getvalue()


def _check(seeds: Sequence[int]) -> None:
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(
            "crossval: runs in one process; train the folds with torchrun one by one instead"
        )
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds: expected different numbers, as in 0,1,2, got {list(seeds)}")


def _warn_of_leak(manifest: Manifest, source: RunFolder) -> None:
    """A backbone that has learned from an image must not be tested on it."""
    known = read_provenance(source).digests
    samples = [sample for sample in manifest.samples if sample.split != "test"]
    seen = [s.name for s in samples if file_hash(s.image) in known]
    if seen:
        warnings.warn(
            f"{source.path}: its backbone was trained on {len(seen)} of the {len(samples)} images of "
            f"{manifest.path} ({seen[0]} …); the figures will be too good",
            stacklevel=3,
        )


def _with_seed(config: Config, seed: int) -> Config:
    content = config.model_dump()
    content["train"]["seed"] = seed
    return Config.model_validate(content)


def _write_manifest(run: Path, fold: Manifest, config: Config) -> Path:
    """The manifest of a run, in its folder, with the part that is held out for the choice of the model."""
    fold = with_validation(fold, config.data.validation_fraction, config.train.seed)
    text = manifest_text(fold, run)
    path = run / MANIFEST
    if path.is_file() and path.read_text(encoding="utf-8") != text:
        raise UserError(
            f"{path}: is of other data, folds or seeds; give another folder to --out for these"
        )
    return RunFolder(run).write_text(MANIFEST, text)


def _predict(run: Path, rows: Sequence[Sample]) -> tuple[tuple[Sample, ...], Array]:
    """The samples of the fold and their logits (N, C)."""
    samples = tuple(sample for sample in rows if sample.split == "test")
    loaded = load_run(run)
    store = ImageStore(samples, loaded.config.data)
    size = loaded.config.train.eval_batch_size
    parts = [
        seen.evidence.logits.double().cpu().numpy()
        for seen in evidence_batches(loaded.model, store, batch_size=size)
    ]
    return samples, np.concatenate(parts)


def _score(logits: Array, results: Sequence[FoldResult], config: Config) -> ValidationMetrics:
    classes = config.data.classes
    labels = np.array([classes.index(s.label) for result in results for s in result.samples])
    return validation_metrics(logits, labels, classes, config.data.negative_class)


def _probabilities(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    shares: Array = powers / powers.sum(1, keepdims=True)
    return shares


def _mean_and_spread(values: Sequence[float | None]) -> dict[str, float | None]:
    """Mean and standard deviation (n - 1) of the values that are defined."""
    known = [value for value in values if value is not None]
    return {
        "mean": float(np.mean(known)) if known else None,
        "spread": float(np.std(known, ddof=1)) if len(known) > 1 else None,
    }


def _line(found: ValidationMetrics) -> str:
    auroc = "undefined" if found.auroc is None else f"{found.auroc:.3f}"
    return f"macro AUROC {auroc}, accuracy {found.accuracy:.3f}"
