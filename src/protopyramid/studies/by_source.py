"""What is measured of a run on each source of a manifest of several datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from protopyramid.data.manifest import read_manifest
from protopyramid.evaluation.comparison import EvaluatedRun, read_rows, saliency_localisation
from protopyramid.evaluation.evaluate import evaluate_split, model_digest
from protopyramid.evaluation.results import Evaluation, read_evaluation
from protopyramid.evaluation.split import evaluated_split
from protopyramid.explanations.saliency import METHODS
from protopyramid.metrics.localisation import BothScales
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run
from protopyramid.studies.results import AGAIN
from protopyramid.utils import typed_json

SPLIT = "test"


@dataclass(frozen=True)
class SaliencyPrecision:
    """Activation precision of saliency methods on the images of an evaluation.

    `model` and `rows`: digests of what was measured, as in the evaluation.
    """

    methods: Mapping[str, BothScales]
    model: str
    rows: str


@dataclass(frozen=True)
class OnSource:
    """A run on the test rows of one source; `saliency` has the methods of a run without prototypes."""

    rows: EvaluatedRun
    saliency: Mapping[str, BothScales]

    @property
    def evaluation(self) -> Evaluation:
        """Its metrics."""
        return self.rows.evaluation


def tested_sources(manifest: Path) -> list[str]:
    """The sources of the test rows of a manifest, in order of appearance."""
    return list(dict.fromkeys(sample.source for sample in read_manifest(manifest).split(SPLIT)))


def measure_by_source(run: Run, manifest: Path) -> None:
    """Evaluate a run on the test rows of each source, unless that was done for this model already."""
    for source in tested_sources(manifest):
        if _is_measured(run, source):
            continue
        chosen = evaluated_split(run, manifest, SPLIT, source=source)
        if run.model.prototypes is None:
            methods = {
                name: saliency_localisation(run, method, chosen).activation_precision
                for name, method in METHODS.items()
            }
        else:
            methods = {}
        found = evaluate_split(run, chosen, pictures=False)
        saliency = SaliencyPrecision(methods, found.model, found.rows)
        # Last: where it is, all else is.
        run.folder.write_json(layout.saliency(chosen.key), typed_json.to_json(saliency))


def on_source(run: Run, name: str, source: str) -> OnSource | None:
    """What was measured of a run on a source; None where its model has not been measured there."""
    if not _is_measured(run, source):
        return None
    part = layout.part(SPLIT, source)
    evaluation, saliency = (
        read_evaluation(run.folder, SPLIT, source),
        read_saliency(run.folder, part),
    )
    assert evaluation is not None and saliency is not None
    table = run.folder / layout.evaluation(part, "csv")
    return OnSource(read_rows(table, name, evaluation), saliency.methods)


def _is_measured(run: Run, source: str) -> bool:
    evaluation = read_evaluation(run.folder, SPLIT, source)
    saliency = read_saliency(run.folder, layout.part(SPLIT, source))
    if evaluation is None or saliency is None:
        return False
    return (
        evaluation.model == saliency.model == model_digest(run) and evaluation.rows == saliency.rows
    )


def read_saliency(folder: RunFolder, part: str) -> SaliencyPrecision | None:
    """Where saliency maps of a run activate on a part of its test rows; None where that is unknown."""
    path = folder / layout.saliency(part)
    if not path.is_file():
        return None
    content = folder.read_json(layout.saliency(part))
    return typed_json.from_json(SaliencyPrecision, content, path, AGAIN)
