"""Running a study and writing what it found: NAME.md, NAME.csv and the comparisons of each seed."""

from __future__ import annotations

import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protopyramid.config import parse_assignments
from protopyramid.errors import UserError
from protopyramid.evaluation.comparison import (
    Comparison,
    compare,
    number,
    stored_evaluation,
)
from protopyramid.evaluation.evaluate import RESAMPLES
from protopyramid.explain.saliency import METHODS
from protopyramid.metrics import classification as metrics
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.studies.job import CACHE, Job, figures, prepare_data
from protopyramid.studies.plan import Study, read_study
from protopyramid.studies.pool import Key, Task, python, run_tasks
from protopyramid.studies.table import Row, cell, csv_text, differences, make_rows, markdown

# The tables of a result: heading, columns.
ACCURACY = "How well it tells the margins apart"
TABLES: dict[str, tuple[str, ...]] = {
    ACCURACY: (
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
    "AUROC: macro over the margins. negatives found: share of the negative images that are called "
    "negative. fine, lesion: activation precision, the share of a prototype's strongest 5 % that lies "
    "inside the annotation or the lesion box, and by level. moved: the same on images moved by a "
    "quarter of their side, with their boxes; had it stayed: the images as they were, against the moved "
    "boxes. area: share of the image above half of the map's maximum. peak inside: share of prototypes "
    "whose own peak lies inside the annotation of their source image. nearest patch: similarity of a "
    "prototype to the patch that it became, just before. elimination: share of a logit that comes from "
    "negative weights. control AUROC: with the annotated part of every test image replaced by its "
    "surroundings."
)


@dataclass(frozen=True)
class Place:
    """Where a study is read from and written to, and the data and settings it is given."""

    file: Path
    out: Path
    data: Path | None = None
    settings: tuple[str, ...] = ()  # KEY=VALUE

    def read(self) -> Study:
        """The study with the settings on top."""
        return read_study(self.file, parse_assignments(self.settings))


def jobs_of(study: Study, place: Place, seeds: Sequence[int]) -> list[Job]:
    """Every variant with every seed, variant by variant.

    So runs side by side are of several seeds, and none waits for a cache that another builds.
    """
    return [
        Job(study, place.file.parent, place.out, variant, seed, place.data)
        for variant in study.variants
        for seed in seeds
    ]


def run_study(
    place: Place,
    seeds: Sequence[int] | None = None,
    workers: int = 1,
    say: Callable[[str], None] = lambda line: None,
) -> str:
    """Do what is missing of a study, `workers` runs at a time; gives the Markdown of its result."""
    study = place.read()
    if seeds:
        study = study.model_copy(update={"seeds": list(seeds)})
    for seed in study.seeds:
        prepare_data(study, place.out, seed, place.data, workers)
    jobs = jobs_of(study, place, study.seeds)
    tasks = {(job.seed, job.variant.name): _task(job, place) for job in jobs}
    run_tasks(tasks, workers, say, _cache_remover(jobs))
    return write_result(study, place)


def write_result(study: Study, place: Place) -> str:
    """Write the tables of a study whose runs are done; gives their Markdown."""
    found: dict[str, list[dict[str, Any]]] = {}
    for job in jobs_of(study, place, study.seeds):
        if not job.variant.shown:
            continue
        measured = figures(job)
        if measured is None:
            raise UserError(f"{job.run}: is not done; run the study again without --only")
        found.setdefault(job.variant.name, []).append(measured)
    rows = make_rows(study, found)
    text = render(study, rows)
    if study.compare:
        found_by_seed = compare_seeds(study, place)
        text += "\n" + render_comparisons(study, found_by_seed, over_seeds(study, place))
    folder = RunFolder(place.out)
    folder.write_text(f"{place.file.stem}.csv", csv_text(study, rows))
    folder.write_text(f"{place.file.stem}.md", text)
    return text


def render(study: Study, rows: Sequence[Row]) -> str:
    """The Markdown of a result: tables, then differences from the first row."""
    seeds = ", ".join(str(seed) for seed in study.seeds)
    over = f"Mean ± standard deviation over {study.each}s; test split."
    parts = [f"# {study.title}\n", f"{study.each.capitalize()}s {seeds}. {over} {LEGEND}\n"]
    for heading, columns in TABLES.items():
        parts += [f"## {heading}\n", markdown(study, rows, columns)]
    if len(rows) > 1:
        parts += [
            f"## Difference from {rows[0].name}, {study.each} by {study.each}\n",
            markdown(study, differences(rows), DIFFERENCES),
        ]
    return "\n".join(parts)


def compare_seeds(study: Study, place: Place) -> list[Comparison]:
    """The variants of each seed side by side, with the paired test and saliency methods."""
    found = []
    for seed in study.seeds:
        runs = [load_run(place.out / f"seed-{seed}/{variant.name}") for variant in study.shown]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # all was said when they were evaluated
            comparison = compare(runs, methods=METHODS if study.saliency else {})
        comparison.write(place.out / f"seed-{seed}/comparison")
        found.append(comparison)
    return found


def over_seeds(study: Study, place: Place) -> list[dict[str, Any]] | None:
    """The paired test of each variant but the first, of the mean over seeds or folds.

    None where seeds draw their own phantoms, where there is one seed, or where the variants were
    not tested on the same images.
    """
    if len(study.seeds) < 2 or study.data != "manifest":
        return None
    found = []
    for variant in study.shown:
        runs = [load_run(place.out / f"seed-{seed}/{variant.name}") for seed in study.seeds]
        found.append([stored_evaluation(run, run.name, None, "test") for run in runs])
    images = [[each.figures["rows"] for each in runs] for runs in found]
    if any(each != images[0] for each in images):
        return None
    weights = resample_together([each.patients for each in found[0]])
    figures = found[0][0].figures
    tests = []
    for evaluations in found[1:]:
        pairs = [
            metrics.Pair(ours.probabilities, theirs.probabilities, ours.class_numbers, drawn)
            for ours, theirs, drawn in zip(found[0], evaluations, weights, strict=True)
        ]
        test = metrics.mean_paired_differences(pairs, figures["classes"], figures["negative_class"])
        tests.append(test["mean"])
    return tests


def resample_together(patients: Sequence[Sequence[str]]) -> list[metrics.Array]:
    """How often each row of several test splits is drawn, (R, N) each, when patients are drawn.

    All patients are drawn at once, so one who is in several splits is drawn as often in each.
    """
    names = sorted({name for split in patients for name in split})
    drawn = metrics.resample_weights(names, RESAMPLES, 0)
    place = {name: column for column, name in enumerate(names)}
    return [drawn[:, [place[name] for name in split]] for split in patients]


def render_comparisons(
    study: Study, found: Sequence[Comparison], over: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """The paired differences of each seed, and localisation with saliency methods over seeds."""
    seeds = [f"{study.each} {seed}" for seed in study.seeds]
    if over is not None:
        seeds.append(f"mean of the {study.each}s")
    lines = [
        "## AUROC minus that of the first, 95 % intervals by paired bootstrap over patients\n",
        f"| | {' | '.join(seeds)} |",
        "|---" * (len(seeds) + 1) + "|",
    ]
    for index, row in enumerate(found[0].rows[1:], start=1):
        tests = [each.rows[index]["against_first"]["mean"] for each in found]
        if over is not None:
            tests.append(over[index - 1])
        cells = [number(test["difference"], test["ci95"]) for test in tests]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    lines += ["", "## Prototypes and saliency maps\n"]
    lines += ["| | fine | lesion | area |", "|---|---|---|---|"]
    by_method = [{row["method"]: row for row in each.localisation} for each in found]
    for row in found[0].localisation:
        measured = [methods.get(row["method"], {}) for methods in by_method]  # images may be gone
        values = [
            cell([each.get(name) for each in measured]) for name in ("fine", "lesion", "area")
        ]
        lines.append(f"| {row['method']} | {' | '.join(values)} |")
    return "\n".join(lines) + "\n"


def _cache_remover(jobs: Sequence[Job]) -> Callable[[Key], None]:
    """What deletes the cache that the runs of a seed share, after the last of them."""
    left = Counter(job.seed for job in jobs)
    caches = {job.seed: job.place / CACHE for job in jobs}

    def finished(key: Key) -> None:
        left[key[0]] -= 1
        if not left[key[0]]:
            shutil.rmtree(caches[key[0]], ignore_errors=True)

    return finished


def _task(job: Job, place: Place) -> Task:
    command = [*python(), "study", str(place.file), "--out", str(place.out)]
    command += ["--only", job.variant.name, "--seeds", str(job.seed)]
    if place.data is not None:
        command += ["--data", str(place.data)]
    for setting in place.settings:
        command += ["--set", setting]
    before = (job.seed, job.variant.after) if job.variant.after else None
    return Task(command, job.place / f"{job.variant.name}.log", before)
