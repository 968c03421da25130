"""One run of a study: its data, its training and its measurement. What is done is not done again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from protopyramid import api
from protopyramid.config.schema import Config
from protopyramid.data.manifest import Manifest, manifest_text, read_manifest, with_fold, with_test
from protopyramid.data.phantoms import write_phantoms
from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import evaluate_run, model_digest
from protopyramid.evaluation.results import read_evaluation
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run, load_run
from protopyramid.studies.by_source import measure_by_source
from protopyramid.studies.occlusion_control import occluded_auroc, write_occluded
from protopyramid.studies.plan import (
    CACHE,
    OCCLUDED,
    PARTITION_SEED,
    PHANTOMS,
    SHIFTED,
    Replicate,
    Study,
    Variant,
    variant_config,
)
from protopyramid.studies.results import (
    Measurement,
    NearestPatch,
    OcclusionControl,
    ShiftTest,
    read_occlusion_control,
    read_shift_test,
)
from protopyramid.studies.shift_test import shifted_precision, write_shifted
from protopyramid.utils import typed_json
from protopyramid.utils.files import part_of, write_text
from protopyramid.utils.opening import IMAGE, TABLE, WEIGHTS, is_file, read_file


@dataclass(frozen=True)
class Job:
    """A variant of a study in one replicate. `out` is the folder of the study's runs."""

    study: Study
    folder: Path  # of the study's file
    out: Path
    variant: Variant
    replicate: Replicate
    data: Path | None = None

    @property
    def place(self) -> Path:
        """The folder of the replicate."""
        return part_of(self.out, self.replicate.folder)

    @property
    def run(self) -> Path:
        """The run's folder."""
        return part_of(self.place, self.variant.name)


# -- data ----------------------------------------------------------------------------------------
def prepare_data(
    study: Study, out: Path, replicate: Replicate, data: Path | None, workers: int = 1
) -> Path:
    """The manifest of a replicate; phantoms are drawn unless they exist already."""
    if study.data == "manifest":
        if data is None:
            raise UserError("this study needs a dataset: give its manifest with --data")
        return _split(study, data, out, replicate)
    manifest = part_of(out, f"{replicate.folder}/{PHANTOMS}") / "manifest.csv"
    if manifest.is_file():
        return manifest
    return write_phantoms(manifest.parent, replicate.seed, workers=workers)


def _split(study: Study, data: Path, out: Path, replicate: Replicate) -> Path:
    """The manifest with the study's test rows, if it chooses any: a fold's, or one for all seeds."""
    if replicate.fold is not None:
        fold = with_fold(read_manifest(data), study.folds, replicate.fold, replicate.partition)
        return _write_split(fold, data, part_of(out, replicate.folder) / "manifest.csv")
    if study.holdout:
        held_out = with_test(read_manifest(data), study.holdout, PARTITION_SEED)
        return _write_split(held_out, data, out / "manifest.csv")
    return data


def _write_split(chosen: Manifest, data: Path, target: Path) -> Path:
    """Write a manifest in the study's folder; refused where another one exists."""
    text = manifest_text(chosen, target.parent)
    if not target.is_file():
        return write_text(target, text)
    if read_file(target, TABLE) != text.encode():
        raise UserError(
            f"{target}: was created from a different dataset or split; "
            f"give another folder to --out for {data}"
        )
    return target


def without_labels(manifest: Path, labels: Sequence[str], target: Path) -> Path:
    """A manifest without the rows of some labels, written to `target`."""
    table = read_manifest(manifest)
    kept = tuple(sample for sample in table.samples if sample.label not in labels)
    text = manifest_text(replace(table, samples=kept), target.parent)
    return write_text(target, text)


def trained_on_sources(manifest: Path, sources: Sequence[str], target: Path) -> Path:
    """A manifest in which rows of other sources than these are test rows, written to `target`."""
    table = read_manifest(manifest)
    found = {sample.source for sample in table.samples}
    if missing := [name for name in sources if name not in found]:
        raise UserError(
            f"{manifest}: no row has source {missing[0]!r}; its sources are {', '.join(sorted(found))}"
        )
    rows = (
        sample if sample.source in sources else replace(sample, split="test")
        for sample in table.samples
    )
    return write_text(target, manifest_text(replace(table, samples=tuple(rows)), target.parent))


def manifest_of(job: Job) -> Path:
    """The manifest of a job: rows that its variant leaves out are gone, other sources are test rows."""
    if job.variant.run_of:
        return manifest_of(replace(job, variant=job.study.variant(job.variant.run_of)))
    manifest = prepare_data(job.study, job.out, job.replicate, job.data)
    target = part_of(job.place, f"{job.variant.name}.csv")
    if job.variant.without:
        manifest = without_labels(manifest, job.variant.without, target)
    if job.variant.sources:
        manifest = trained_on_sources(manifest, job.variant.sources, target)
    return manifest


# -- work ----------------------------------------------------------------------------------------
def do(job: Job) -> None:
    """Train and measure; what exists already is left as it is."""
    torch.set_num_threads(job.study.threads)  # also for measuring beside other runs
    used = manifest_of(job)
    config = variant_config(job.study, job.variant, job.replicate.seed, job.folder)
    if job.variant.run_of:
        reuse_run(load_run(job.place / job.variant.run_of), RunFolder(job.run), config)
        api.finish(job.run)
    else:
        source = job.place / job.variant.backbone_from if job.variant.backbone_from else None
        cache = job.place / CACHE if job.study.share_cache else None
        api.train(config, used, job.run, backbone_from=source, resume=True, cache=cache)
    if job.variant.shown and job.study.by_source:
        measure_by_source(load_run(job.run), used)
    elif job.variant.shown:
        _measure(job, load_run(job.run), used)


def reuse_run(source: Run, target: RunFolder, config: Config) -> None:
    """Make a run of the same model with other settings, unless it exists already."""
    model = read_file(source.folder / layout.MODEL, WEIGHTS)
    if is_file(target / layout.MODEL) and read_file(target / layout.MODEL, WEIGHTS) == model:
        target.write_config(config)
        return
    target.begin(config)
    pictures = sorted((source.folder / layout.PICTURES).glob("*.png"))
    for file in [source.folder / layout.DATA, source.folder / layout.PROTOTYPES, *pictures]:
        target.write_bytes(file.relative_to(source.folder.path).as_posix(), read_file(file, IMAGE))
    target.write_bytes(layout.MODEL, model)  # last: now it is a run


def _measure(job: Job, run: Run, manifest: Path) -> None:
    """Measure what has not been measured of this model yet."""
    if measured(run) is None:
        evaluate_run(run, manifest, "test")
    digest, found = model_digest(run), measured(run)
    assert found is not None
    if job.variant.occlusion_control and found.occlusion_control is None:
        occluded = write_occluded(manifest, part_of(job.place, OCCLUDED))
        control = OcclusionControl(occluded_auroc(run, occluded), digest)
        run.folder.write_json(layout.OCCLUSION_CONTROL, typed_json.to_json(control))
    if job.variant.shift_test and found.shift_test is None:
        shifted, stayed = write_shifted(manifest, part_of(job.place, SHIFTED))
        precision = (shifted_precision(run, shifted), shifted_precision(run, stayed))
        run.folder.write_json(layout.SHIFT_TEST, typed_json.to_json(ShiftTest(*precision, digest)))


def measured(run: Run) -> Measurement | None:
    """What was measured of a run; None where its model has not been evaluated."""
    digest, evaluation = model_digest(run), read_evaluation(run.folder)
    if evaluation is None or evaluation.model != digest:
        return None
    near = [record.similarity for record in run.prototypes]
    control, shift = read_occlusion_control(run.folder), read_shift_test(run.folder)
    return Measurement(
        evaluation=evaluation,
        nearest=NearestPatch(sum(near) / len(near), min(near)) if near else None,
        occlusion_control=control if control is not None and control.model == digest else None,
        shift_test=shift if shift is not None and shift.model == digest else None,
    )


def measurement(job: Job) -> Measurement | None:
    """What was measured of a job; None where it is not done."""
    if not (job.run / layout.MODEL).is_file():
        return None
    return measured(load_run(job.run))
