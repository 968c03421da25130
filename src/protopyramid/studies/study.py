"""Running a study and writing its results: NAME.md, NAME.csv and the comparisons of each replicate."""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from protopyramid.config import parse_assignments
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.evaluation.comparison import EvaluatedRun, compare, stored_evaluation
from protopyramid.evaluation.comparison_results import Comparison
from protopyramid.explanations.saliency import METHODS
from protopyramid.metrics.bootstrap import Array
from protopyramid.metrics.paired_test import Difference, Pair, paired_differences
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.studies.by_source import OnSource, on_source, tested_sources
from protopyramid.studies.job import Job, do, measurement, prepare_data
from protopyramid.studies.kept import keep, kept_on_source, kept_run
from protopyramid.studies.plan import (
    CACHE,
    COMPARISON,
    Replicate,
    Study,
    read_study,
    variant_config,
)
from protopyramid.studies.pool import Key, Task, python, run_tasks
from protopyramid.studies.results import Measurement
from protopyramid.studies.source_tables import LEGEND as SOURCE_LEGEND
from protopyramid.studies.source_tables import Tables, render_control, resample_together
from protopyramid.studies.table import Row, cell, differences, make_rows, markdown, values_csv
from protopyramid.utils.files import part_of
from protopyramid.utils.locks import wait_for
from protopyramid.utils.tables import markdown_table, number

SAVING = 30.0  # seconds that a stopped run may take to save
# The tables of a result: heading, columns.
TABLES: dict[str, tuple[str, ...]] = {
    "How well it tells the margins apart": (
        "AUROC",
        "AUROC circumscribed",
        "AUROC indistinct",
        "AUROC spiculated",
        "accuracy",
        "negatives found",
        "control AUROC",
        "elimination",
    ),
    "Where prototypes activate": (
        *("fine", "fine 2", "fine 3", "fine 4", "fine 5"),
        *("lesion", "lesion 2", "lesion 3", "lesion 4", "lesion 5"),
        *("lesion, moved", "lesion, had it stayed", "area"),
    ),
    "By margin": (
        *("fine circumscribed", "fine indistinct", "fine spiculated"),
        *("lesion circumscribed", "lesion indistinct", "lesion spiculated"),
        *("peak inside circumscribed", "peak inside indistinct", "peak inside spiculated"),
        *("area 2", "area 3", "area 4", "area 5"),
        *("nearest patch, mean", "nearest patch, worst"),
    ),
}
DIFFERENCES = ("AUROC", "fine", "lesion", "area", "elimination")
LEGEND = (
    "AUROC: macro average over the margins. Sensitivity, negatives: share of the negative images that are "
    "classified as negative. Fine, lesion: activation precision, the share of a prototype's strongest 5 % "
    "that lies inside the annotation or the lesion box, also by level. Shift test: the same on images "
    "shifted by a quarter of their side, with their boxes; if not followed: the unshifted images against "
    "the shifted boxes. Area: share of the image above half of the map's maximum. Pointing game: share of "
    "prototypes whose own peak lies inside the annotation of their source image. Nearest patch: similarity "
    "of a prototype, just before projection, to the patch that replaces it. Elimination: share of a logit "
    "that comes from negative weights. Occlusion control: with the annotated part of every test image "
    "filled in from its surroundings."
)


@dataclass(frozen=True)
class Place:
    """Where a study is read from and written to, and the data and settings it is given."""

    file: Path
    out: Path
    data: Path | None = None
    settings: tuple[str, ...] = ()  # KEY=VALUE
    kept: Path | None = None  # folder of results without models (kept.py)

    def read(self) -> Study:
        """The study with the settings on top."""
        return read_study(self.file, parse_assignments(self.settings))

    def run(self, replicate: Replicate, variant: str) -> Path:
        """The folder of a run."""
        return self.out / replicate.folder / variant


def jobs_of(study: Study, place: Place) -> list[Job]:
    """Every variant in every replicate, variant by variant.

    So runs in parallel are of several replicates, and none waits for a cache that another builds.
    """
    return [
        Job(study, place.file.parent, place.out, variant, replicate, place.data)
        for variant in study.variants
        for replicate in study.replicates
    ]


def run_study(
    place: Place,
    seeds: Sequence[int] | None = None,
    workers: int = 1,
    say: Callable[[str], None] = lambda line: None,
    variants: Sequence[str] = (),
) -> str:
    """Run what is missing of a study, `workers` runs at a time; returns the Markdown of its result.

    With `variants`, only these, and those that they start from.
    """
    study = place.read()
    if variants:
        study = study.only(variants)
    if seeds:
        study = study.model_copy(update={"seeds": list(seeds)})
    if place.kept is not None and not study.by_source:
        raise UserError("--kept: only results by source can be kept; leave the option out")
    for replicate in study.replicates:
        prepare_data(study, place.out, replicate, place.data, workers)
    jobs = _unkept(study, place)
    tasks = {(job.replicate.label, job.variant.name): _task(job, place) for job in jobs}
    run_tasks(tasks, workers, say, _cache_remover(jobs))
    return write_result(study, place)


def run_variant(
    place: Place, name: str, seeds: Sequence[int] | None = None, fold: int | None = None
) -> None:
    """Train and measure one variant, with some seeds or all, and one fold of them or all."""
    study = place.read()
    variant = study.variant(name)
    if seeds:
        study = study.model_copy(update={"seeds": list(seeds)})
    replicates = [each for each in study.replicates if fold is None or each.fold == fold]
    if not replicates:
        raise UserError(f"--fold {fold}: no such fold with these seeds in {place.file}")
    for replicate in replicates:
        job = Job(study, place.file.parent, place.out, variant, replicate, place.data)
        wait_for(job.run, SAVING)  # a run whose study was killed is still being saved
        do(job)


# -- results -------------------------------------------------------------------------------------
def write_result(study: Study, place: Place) -> str:
    """Write the tables of a study whose runs are done; returns their Markdown."""
    if study.by_source:
        return write_result_by_source(study, place)
    found: dict[str, list[Measurement]] = {}
    for job in jobs_of(study, place):
        if not job.variant.shown:
            continue
        measured = measurement(job)
        if measured is None:
            raise UserError(f"{job.run}: is not finished; run the study again without --only")
        found.setdefault(job.variant.name, []).append(measured)
    rows = make_rows(study, found)
    text = render(study, rows)
    if study.compare:
        comparisons = compare_replicates(study, place)
        text += "\n" + render_comparisons(study, comparisons, over_replicates(study, place))
    folder = RunFolder(place.out)
    folder.write_text(f"{place.file.stem}.csv", values_csv(study, rows))
    folder.write_text(f"{place.file.stem}.md", text)
    return text


def write_result_by_source(study: Study, place: Place) -> str:
    """Write the tables of a study whose runs were tested on each source; returns their Markdown."""
    manifests = [
        read_manifest(prepare_data(study, place.out, replicate, place.data))
        for replicate in study.replicates
    ]
    sources = tested_sources(manifests[0].path)
    found: dict[str, dict[str, list[OnSource]]] = {}
    for job in jobs_of(study, place):
        if job.variant.shown:
            for source in sources:
                each = found.setdefault(job.variant.name, {}).setdefault(source, [])
                each.append(_measured_on(job, place, source))
            if place.kept is not None and (job.run / layout.MODEL).is_file():
                keep(RunFolder(job.run), _kept(job, place.kept), sources)
    tables = Tables(study.shown, sources, found)
    negative = tables.negative_class()
    control = render_control(
        manifests, study.controls, [*tables.every_margin(), negative], negative
    )
    text = "\n".join(
        [
            f"# {study.title}\n",
            f"{_replicates_text(study)} {SOURCE_LEGEND}\n",
            "## How well the source alone tells the class (AUROC)\n",
            f"{control}\n",
            tables.markdown(),
        ]
    )
    folder = RunFolder(place.out)
    folder.write_text(f"{place.file.stem}.csv", tables.csv())
    folder.write_text(f"{place.file.stem}.md", text)
    return text


def _measured_on(job: Job, place: Place, source: str) -> OnSource:
    measured = None
    if (job.run / layout.MODEL).is_file():
        measured = on_source(load_run(job.run), job.variant.name, source)
    elif place.kept is not None:
        measured = _kept_on(job, place.kept, source)
    if measured is None:
        raise UserError(f"{job.run}: is not finished; run the study again without --only")
    return measured


def _unkept(study: Study, place: Place) -> list[Job]:
    """The jobs that are to be done: those whose results are not kept, and those that they start from."""
    jobs = jobs_of(study, place)
    if place.kept is None:
        return jobs
    todo: list[Job] = []
    for job in reversed(jobs):  # those that a variant starts from come before it
        needed = any(
            (job.replicate, job.variant.name) == (other.replicate, other.variant.after)
            for other in todo
        )
        if needed or (job.run / layout.MODEL).is_file() or not _is_kept(job, place):
            todo.insert(0, job)
    return todo


def _is_kept(job: Job, place: Place) -> bool:
    sources = tested_sources(prepare_data(job.study, job.out, job.replicate, job.data))
    assert place.kept is not None
    return all(_kept_on(job, place.kept, source) is not None for source in sources)


def _kept_on(job: Job, root: Path, source: str) -> OnSource | None:
    config = variant_config(job.study, job.variant, job.replicate.seed, job.folder)
    return kept_on_source(_kept(job, root), config, job.variant.name, source)


def _kept(job: Job, root: Path) -> RunFolder:
    return kept_run(root, job.replicate.folder, job.variant.name)


def render(study: Study, rows: Sequence[Row]) -> str:
    """The Markdown of a result: tables, then differences from the first row."""
    over = f"Mean ± standard deviation over {study.each}s; test split."
    parts = [f"# {study.title}\n", f"{_replicates_text(study)} {over} {LEGEND}\n"]
    for heading, columns in TABLES.items():
        parts += [f"## {heading}\n", markdown(rows, columns)]
    if len(rows) > 1:
        parts += [
            f"## Difference from {rows[0].name}, {study.each} by {study.each}\n",
            markdown(differences(rows), DIFFERENCES),
        ]
    return "\n".join(parts)


def _replicates_text(study: Study) -> str:
    seeds = ", ".join(str(seed) for seed in study.seeds)
    if study.dealing == 2:
        return f"{study.folds} folds of each seed: {seeds}."
    return f"{study.each.capitalize()}s {seeds}."


def compare_replicates(study: Study, place: Place) -> list[Comparison]:
    """The variants of each replicate side by side, with the paired test and saliency methods."""
    found = []
    for replicate in study.replicates:
        runs = [load_run(place.run(replicate, variant.name)) for variant in study.shown]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were shown when the runs were evaluated
            comparison = compare(runs, methods=METHODS if study.saliency else {})
        comparison.write(part_of(place.out, f"{replicate.folder}/{COMPARISON}"))
        found.append(comparison)
    return found


def over_replicates(study: Study, place: Place) -> list[Difference] | None:
    """The paired test of each variant but the first, of the mean over seeds or folds.

    None where seeds have their own phantoms, where there is one replicate, or where the variants were
    not tested on the same images.
    """
    if len(study.replicates) < 2 or study.data != "manifest":
        return None
    found = []
    for variant in study.shown:
        runs = [load_run(place.run(replicate, variant.name)) for replicate in study.replicates]
        found.append([stored_evaluation(run, run.name, None, "test") for run in runs])
    images = [[each.evaluation.rows for each in runs] for runs in found]
    if any(each != images[0] for each in images):
        return None
    weights = resample_together([each.patients for each in found[0]])
    return [_mean_difference(found[0], other, weights) for other in found[1:]]


def _mean_difference(
    first: Sequence[EvaluatedRun], second: Sequence[EvaluatedRun], weights: Sequence[Array]
) -> Difference:
    """The paired test of the mean AUROC over replicates."""
    pairs = [
        Pair(ours.probabilities, theirs.probabilities, ours.class_numbers, drawn)
        for ours, theirs, drawn in zip(first, second, weights, strict=True)
    ]
    evaluation = first[0].evaluation
    return paired_differences(pairs, evaluation.classes, evaluation.negative_class)["mean"]


def render_comparisons(
    study: Study, found: Sequence[Comparison], over: Sequence[Difference] | None = None
) -> str:
    """The paired differences of each replicate, and localisation with saliency methods."""
    header = ["", *(replicate.label for replicate in study.replicates)]
    if over is not None:
        header.append(f"mean over {study.each}s")
    tested = []
    for index, row in enumerate(found[0].rows[1:], start=1):
        tests = [test["mean"] for each in found if (test := each.rows[index].against_first)]
        if over is not None:
            tests.append(over[index - 1])
        tested.append([row.name, *(number(test.difference, test.ci95) for test in tests)])
    # The images of some replicates may no longer be available: then a method has no mean.
    by_method = [{row.method: row for row in each.localisation} for each in found]
    localised = []
    for method in by_method[0]:
        measured = [methods.get(method) for methods in by_method]
        fine = [None if row is None else row.fine for row in measured]
        lesion = [None if row is None else row.lesion for row in measured]
        area = [None if row is None else row.area for row in measured]
        localised.append([method, cell(fine), cell(lesion), cell(area)])
    return "\n".join(
        [
            f"## AUROC minus that of {found[0].rows[0].name}\n",
            "95 % intervals by paired bootstrap over patients.\n",
            markdown_table(header, tested),
            "\n## Prototypes and saliency maps\n",
            markdown_table(["", "fine", "lesion", "area"], localised) + "\n",
        ]
    )


# -- processes -----------------------------------------------------------------------------------
def _cache_remover(jobs: Sequence[Job]) -> Callable[[Key], None]:
    """A function that deletes the cache shared by the runs of a replicate, after the last of them."""
    left = Counter(job.replicate.label for job in jobs)
    caches = {job.replicate.label: job.place / CACHE for job in jobs}

    def finished(key: Key) -> None:
        left[key[0]] -= 1
        if not left[key[0]]:
            shutil.rmtree(caches[key[0]], ignore_errors=True)

    return finished


def _task(job: Job, place: Place) -> Task:
    replicate = job.replicate
    command = [*python(), "study", str(place.file), "--out", str(place.out)]
    command += ["--only", job.variant.name, "--seeds", str(replicate.seed)]
    if replicate.fold is not None and job.study.dealing == 2:
        command += ["--fold", str(replicate.fold)]
    if place.data is not None:
        command += ["--data", str(place.data)]
    for setting in place.settings:
        command += ["--set", setting]
    before = (replicate.label, job.variant.after) if job.variant.after else None
    return Task(command, job.place / f"{job.variant.name}.log", before)
