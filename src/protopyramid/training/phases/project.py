"""The project phase: every prototype becomes its nearest training patch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from protopyramid.metrics.validation import ValidationMetrics
from protopyramid.training.distributed import gather, to_device
from protopyramid.training.keeping import Keeper
from protopyramid.training.passes import Passes
from protopyramid.training.projection import (
    CandidateCollector,
    ProjectionReport,
    merge_candidates,
    project,
)
from protopyramid.training.schedule import Phase
from protopyramid.training.state import Position, PrototypeSource
from protopyramid.utils.faults import reached
from protopyramid.utils.progress import metrics_text


def run_project(phase: Phase, passes: Passes, keeper: Keeper) -> None:
    """Project the prototypes, measure the model before and after, record and save."""
    classes, reporter = passes.config.data.classes, passes.reporter
    before = passes.validate()
    report = project_prototypes(passes)
    after = passes.validate()
    keeper.state.records = source_records(report, passes.train.names, classes)
    reporter.say(report.summary(classes))
    if report.advice:
        reporter.say_once("projection", report.advice)
    reporter.say(
        f"projection: accuracy {before.accuracy:.3f} -> {after.accuracy:.3f}, "
        f"{metrics_text(asdict(after))}"
    )
    position = Position(phase.number + 1)
    keeper.record(position, _record(report, before, after))
    keeper.save(position)


def project_prototypes(passes: Passes) -> ProjectionReport:
    """Search the training images for the nearest patch of every prototype, and move it there."""
    prototypes, settings = passes.model.prototypes, passes.config.projection
    assert prototypes is not None
    data = passes.config.data
    negative = data.classes.index(data.negative_class) if data.negative_class else None
    collector = CandidateCollector(prototypes, settings, negative)
    for batch in passes.training_batches("searching nearest patches"):
        reached("project-batch")
        collector.update(batch)
    parts = to_device(gather(passes.fabric, collector.result()), passes.fabric.device)
    reached("project")
    return project(prototypes, merge_candidates(parts), settings, data.classes)


def source_records(
    report: ProjectionReport, names: Sequence[str], classes: Sequence[str]
) -> list[PrototypeSource]:
    """Where each prototype comes from, in the words of prototypes.json."""
    return [
        {
            "index": entry.index,
            "class": classes[entry.class_number],
            "level": entry.level,
            "image": names[entry.image],
            "row": entry.row,
            "col": entry.col,
            "similarity": entry.similarity,
        }
        for entry in report.prototypes
    ]


def _record(
    report: ProjectionReport, before: ValidationMetrics, after: ValidationMetrics
) -> dict[str, Any]:
    return {
        "kind": "project",
        "nearest_similarity": {"mean": report.mean_nearest, "worst": report.worst_nearest},
        "second_choices": [entry.index for entry in report.prototypes if entry.second_choice],
        "moved": [entry.moved for entry in report.prototypes],
        "before": asdict(before),
        "validation": asdict(after),
    }
