"""What studies and cross-validation measure, as it stands in their JSON files. Undefined is None."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from protopyramid.evaluation.results import Evaluation
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.utils import typed_json

AGAIN = "delete the file and run the study again"
T = TypeVar("T")


@dataclass(frozen=True)
class OcclusionControl:
    """Macro AUROC with the annotated part of every image occluded; `model`: the digest of the model."""

    auroc: float | None
    model: str


@dataclass(frozen=True)
class ShiftTest:
    """Lesion precision on shifted images, and what prototypes that do not follow would have."""

    lesion: float | None
    stayed: float | None
    model: str


@dataclass(frozen=True)
class NearestPatch:
    """Similarity of prototypes to their nearest patch just before projection: mean and worst."""

    mean: float
    worst: float


@dataclass(frozen=True)
class Measurement:
    """Everything measured of one run of a study; None where it was not measured."""

    evaluation: Evaluation
    nearest: NearestPatch | None = None
    occlusion_control: OcclusionControl | None = None
    shift_test: ShiftTest | None = None


@dataclass(frozen=True)
class MeanAndSpread:
    """Mean and standard deviation (n - 1) of the values that are defined."""

    mean: float | None
    spread: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> MeanAndSpread:
        """The mean and spread of values.

        >>> MeanAndSpread.of([0.5, None, 0.7]).mean, MeanAndSpread.of([0.5]).spread
        (0.6, None)
        """
        known = [value for value in values if value is not None]
        return cls(
            mean=float(np.mean(known)) if known else None,
            spread=float(np.std(known, ddof=1)) if len(known) > 1 else None,
        )


@dataclass(frozen=True)
class SeedMetrics:
    """The metrics of all folds of a seed together."""

    seed: int
    auroc: float | None
    accuracy: float
    cross_entropy: float


@dataclass(frozen=True)
class FoldMetrics:
    """The metrics of one run of a cross-validation."""

    seed: int
    fold: int
    images: int
    auroc: float | None
    accuracy: float
    cross_entropy: float


@dataclass(frozen=True)
class CrossValidation:
    """The metrics of a cross-validation: over its runs, over its seeds, and of each of them."""

    system: str
    classes: tuple[str, ...]
    folds: int
    seeds: tuple[int, ...]
    auroc: MeanAndSpread
    accuracy: MeanAndSpread
    pooled_auroc: MeanAndSpread
    per_seed: tuple[SeedMetrics, ...]
    runs: tuple[FoldMetrics, ...]

    def to_json(self) -> dict[str, Any]:
        """The content of crossval.json."""
        content: dict[str, Any] = typed_json.to_json(self)
        return content

    @classmethod
    def from_json(cls, content: object, place: str | Path = "crossval.json") -> CrossValidation:
        """The inverse of to_json; UserError that names `place` where the content is damaged."""
        return typed_json.from_json(cls, content, place, "run the cross-validation again")


def read_occlusion_control(folder: RunFolder) -> OcclusionControl | None:
    """The occlusion control of a run, if it was measured."""
    return _read(OcclusionControl, folder, layout.OCCLUSION_CONTROL)


def read_shift_test(folder: RunFolder) -> ShiftTest | None:
    """The shift test of a run, if it was measured."""
    return _read(ShiftTest, folder, layout.SHIFT_TEST)


def _read(kind: type[T], folder: RunFolder, name: str) -> T | None:
    if not (folder / name).is_file():
        return None
    return typed_json.from_json(kind, folder.read_json(name), folder / name, AGAIN)
