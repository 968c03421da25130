"""One run of a study: its data, its training and its measurement. Done twice, it works once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from protopyramid import api
from protopyramid.config.schema import Config
from protopyramid.data.manifest import Manifest, manifest_text, read_manifest, with_fold, with_test
from protopyramid.data.phantoms import write_phantoms
from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import evaluate_run, model_digest
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run, load_run
from protopyramid.studies.occlusion_control import control_auroc, write_control
from protopyramid.studies.plan import Study, Variant, variant_config
from protopyramid.studies.shift_test import moved_precision, write_moved

PHANTOMS, CONTROL, MOVED, CACHE = "phantoms", "control", "moved", "cache"
MODEL = layout.MODEL
EVALUATION = layout.evaluation("test")
CONTROL_FIGURE, MOVED_FIGURES = "evaluation/control.json", "evaluation/moved.json"
SPLIT_SEED = 0


@dataclass(frozen=True)
class Job:
    """A variant of a study with one seed. `out` is the folder of the study's runs."""

    study: Study
    folder: Path  # of the study's file
    out: Path
    variant: Variant
    seed: int
    data: Path | None = None

    @property
    def place(self) -> Path:
        """The folder of the seed."""
        return self.out / f"seed-{self.seed}"

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.place / self.variant.name


def prepare_data(study: Study, out: Path, seed: int, data: Path | None, workers: int = 1) -> Path:
    """The manifest of a seed; phantoms are drawn where they are not there yet."""
    if study.data == "manifest":
        if data is None:
            raise UserError("this study needs a dataset: give its manifest with --data")
        return _split(study, data, out, seed)
    manifest = out / f"seed-{seed}" / PHANTOMS / "manifest.csv"
    return (
        manifest if manifest.is_file() else write_phantoms(manifest.parent, seed, workers=workers)
    )


def _split(study: Study, data: Path, out: Path, seed: int) -> Path:
    """The manifest with the study's test rows, if it chooses any: one for all seeds, or a fold's."""
    if study.folds:
        fold = with_fold(read_manifest(data), study.folds, seed % study.folds, SPLIT_SEED)
        return _write_split(fold, data, out / f"seed-{seed}" / "manifest.csv")
    if study.holdout:
        held_out = with_test(read_manifest(data), study.holdout, SPLIT_SEED)
        return _write_split(held_out, data, out / "manifest.csv")
    return data


def _write_split(chosen: Manifest, data: Path, target: Path) -> Path:
    """Write a manifest in the study's folder; refused when there is one of other data."""
    text = manifest_text(chosen, target.parent)
    if not target.is_file():
        return RunFolder(target.parent).write_text(target.name, text)
    if target.read_text(encoding="utf-8") != text:
        raise UserError(f"{target}: is of other data; give another folder to --out for {data}")
    return target


def without_labels(manifest: Path, labels: Sequence[str], target: Path) -> Path:
    """A manifest without the rows of some labels, written where `target` says."""
    table = read_manifest(manifest)
    kept = tuple(sample for sample in table.samples if sample.label not in labels)
    text = manifest_text(replace(table, samples=kept), target.parent)
    return RunFolder(target.parent).write_text(target.name, text)


def do(job: Job) -> None:
    """Train and measure; what is there already is left as it is."""
    torch.set_num_threads(job.study.threads)  # also for what is measured beside other runs
    used = _manifest(job)
    config = variant_config(job.study, job.variant, job.seed, job.folder)
    if job.variant.run_of:
        take_run(load_run(job.place / job.variant.run_of), RunFolder(job.run), config)
        api.finish(job.run)
    else:
        source = job.place / job.variant.backbone_from if job.variant.backbone_from else None
        cache = job.place / CACHE if job.study.share_cache else None
        api.train(config, used, job.run, backbone_from=source, resume=True, cache=cache)
    if not job.variant.shown:
        return
    run = load_run(job.run)
    if not _is_measured(run, EVALUATION):
        evaluate_run(run, used, "test")
    if job.variant.control and not _is_measured(run, CONTROL_FIGURE):
        _measure_control(run, write_control(used, job.place / CONTROL))
    if job.variant.moved and not _is_measured(run, MOVED_FIGURES):
        _measure_moved(run, *write_moved(used, job.place / MOVED))


def take_run(source: Run, target: RunFolder, config: Config) -> None:
    """Make a run of the same model with other settings, where it is not there yet."""
    model = (source.folder / MODEL).read_bytes()
    if (target / MODEL).is_file() and (target / MODEL).read_bytes() == model:
        target.write_config(config)
        return
    target.begin(config)
    pictures = sorted((source.folder / "prototypes").glob("*.png"))
    for file in [source.folder / layout.DATA, source.folder / layout.PROTOTYPES, *pictures]:
        target.write_bytes(file.relative_to(source.folder.path).as_posix(), file.read_bytes())
    target.write_bytes(MODEL, model)  # last: now it is a run


def _manifest(job: Job) -> Path:
    """The manifest of a job, without the rows that its variant leaves out."""
    if job.variant.run_of:
        return _manifest(replace(job, variant=job.study.variant(job.variant.run_of)))
    manifest = prepare_data(job.study, job.out, job.seed, job.data)
    if not job.variant.without:
        return manifest
    target = manifest.with_name(f"{job.variant.name}.csv")
    return without_labels(manifest, job.variant.without, target)


def figures(job: Job) -> dict[str, Any] | None:
    """What was measured of a job; None where it is not done."""
    if not (job.run / EVALUATION).is_file():
        return None
    run = load_run(job.run)
    found: dict[str, Any] = run.folder.read_json(EVALUATION)
    near = [record.similarity for record in run.prototypes]
    found["nearest"] = {"mean": sum(near) / len(near), "worst": min(near)} if near else None
    if _is_measured(run, CONTROL_FIGURE):
        found["control"] = run.folder.read_json(CONTROL_FIGURE)["auroc"]
    if _is_measured(run, MOVED_FIGURES):
        found["moved"] = run.folder.read_json(MOVED_FIGURES)
    return found


def _measure_control(run: Run, manifest: Path) -> None:
    content = {"auroc": control_auroc(run, manifest), "model": model_digest(run)}
    run.folder.write_json(CONTROL_FIGURE, content)


def _measure_moved(run: Run, moved: Path, stayed: Path) -> None:
    content = {
        "lesion": moved_precision(run, moved),
        "stayed": moved_precision(run, stayed),
        "model": model_digest(run),
    }
    run.folder.write_json(MOVED_FIGURES, content)


def _is_measured(run: Run, name: str) -> bool:
    if not (run.folder / name).is_file():
        return False
    return bool(run.folder.read_json(name).get("model") == model_digest(run))
