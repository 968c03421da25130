"""The plan of a reader study: its cases, its model, the order in which each reader meets the cases."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.run import Run

STAGES = ("unaided", "aided")
BIRADS = ("0", "1", "2", "3", "4A", "4B", "4C", "5", "6")


class StudyCase(BaseModel):
    """A case as results name it; "" where the manifest gives no label or patient."""

    model_config = ConfigDict(frozen=True, strict=True)

    name: str
    label: str
    patient: str


class StudyPlan(BaseModel):
    """What a study asks: it never changes once the first reader has begun.

    `model` is a digest of the run's weights, so that half of a study is not read with another model.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    run: str
    model: str
    classes: tuple[str, ...]
    negative: str
    cases: tuple[StudyCase, ...]
    seed: int

    def order(self, reader: str) -> list[int]:
        """The numbers of the cases in the order in which a reader meets them: each reader has their own."""
        digest = hashlib.sha256(f"{self.seed}\n{reader.casefold()}".encode()).digest()
        generator = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        found: list[int] = generator.permutation(len(self.cases)).tolist()
        return found


def study_samples(samples: Sequence[Sample]) -> list[Sample]:
    """The rows that are read: those of the split test, or all where the manifest has none.

    A model knows its training images by heart; what readers do with it there says nothing.
    """
    test = [sample for sample in samples if sample.split == "test"]
    return test or list(samples)


def make_plan(run: Run, name: str, samples: Sequence[Sample], seed: int) -> StudyPlan:
    """The plan of a study of these cases with a run called `name`."""
    if not samples:
        raise UserError("--readings: a reader study needs cases; give their manifest with --data")
    classes = run.config.data.classes
    strange = next((each for each in samples if each.label and each.label not in classes), None)
    if strange is not None:
        raise UserError(
            f"{strange.name}: its label {strange.label!r} is not a class of the run "
            f"({', '.join(classes)}); readers could not answer right; correct or remove the row"
        )
    cases = tuple(StudyCase(name=s.name, label=s.label, patient=s.patient) for s in samples)
    return StudyPlan(
        run=name,
        model=hashlib.sha256((run.folder / layout.MODEL).read_bytes()).hexdigest(),
        classes=tuple(classes),
        negative=run.config.data.negative_class,
        cases=cases,
        seed=seed,
    )
