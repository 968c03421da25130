"""The evaluation of a run as it stands in evaluation/SPLIT.json. What is undefined is None, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from protopyramid.metrics.auroc import Auroc
from protopyramid.metrics.bootstrap import Interval
from protopyramid.metrics.calibration import Calibration
from protopyramid.metrics.elimination import Elimination
from protopyramid.metrics.localisation import BothScales, PairMean
from protopyramid.prototypes.health import RunHealth, SourcePointing
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.utils import typed_json

PerClass = Mapping[str, float | None]


@dataclass(frozen=True)
class Bootstrap:
    """How intervals were made: resamples of whole units, drawn with a seed."""

    resamples: int
    seed: int
    unit: str


@dataclass(frozen=True)
class AurocOfSplit(Auroc):
    """AUROC among the margin classes, and beside it with the negative class."""

    with_negative: Auroc


@dataclass(frozen=True)
class Grouped:
    """Metrics where the rows of a lesion or patient are averaged into one."""

    n: int
    auroc: AurocOfSplit
    accuracy: float


@dataclass(frozen=True)
class Evaluation:
    """Everything measured of a run on a split.

    `system` is the preset's name, `system_title` what it may be called (config/differences.py).
    `model` and `rows` are digests of what was evaluated; a confusion matrix has a row for each true
    class; `source` is "" where all rows of the split were evaluated, `annotation` what counts as fine
    annotation (`data.annotation`; "" in earlier versions). `health`, `elimination`: None without prototypes.
    `per_lesion`, `per_patient`: None where no group has several rows.
    """

    system: str
    split: str
    manifest: str
    model: str
    rows: str
    leaked: bool
    warnings: tuple[str, ...]
    classes: tuple[str, ...]
    negative_class: str
    n: int
    patients: int
    per_class_n: Mapping[str, int]
    bootstrap: Bootstrap
    auroc: AurocOfSplit
    accuracy: float
    accuracy_ci95: Interval
    confusion_matrix: tuple[tuple[int, ...], ...]
    confusion_matrix_normalised: tuple[tuple[float | None, ...], ...]
    sensitivity: PerClass
    specificity: PerClass
    calibration: Calibration
    activation_precision: BothScales
    pointing_game: Annotated[BothScales, Field(alias="peak_inside")]
    activation_area: PairMean
    source_pointing: Annotated[SourcePointing, Field(alias="prototype_peak_inside")]
    health: RunHealth | None
    elimination: Elimination | None = None
    per_lesion: Grouped | None = None
    per_patient: Grouped | None = None
    system_title: str = ""
    source: str = ""
    annotation: str = ""

    @property
    def title(self) -> str:
        """What the system is called; evaluations of earlier versions only have its preset's name."""
        return self.system_title or self.system

    def to_json(self) -> dict[str, Any]:
        """The content of evaluation/SPLIT.json."""
        content: dict[str, Any] = typed_json.to_json(self)
        return content

    def _repr_html_(self) -> str:
        from protopyramid.evaluation.notebook import evaluation_html

        return evaluation_html(self)

    @classmethod
    def from_json(cls, content: object, place: str | Path = "evaluation") -> Evaluation:
        """The inverse of to_json; UserError that names `place` where the content is damaged."""
        remedy = "evaluate the run again with: protopyramid evaluate RUN"
        return typed_json.from_json(cls, content, place, remedy)


def read_evaluation(folder: RunFolder, split: str = "test", source: str = "") -> Evaluation | None:
    """The stored evaluation of a run on a split, or one source of it; None where there is none."""
    name = layout.evaluation(layout.part(split, source))
    if not (folder / name).is_file():
        return None
    return Evaluation.from_json(folder.read_json(name), folder / name)
