"""The scores of a run's training and validation images, kept with the run (scores.safetensors).

With everything but the head fixed, these scores are all that the head's problem knows of the images. A run
that keeps them can be edited without its images: prototypes removed or required, the head fitted again, its
cost on validation told, and the out-of-distribution limits computed for what is left. The file holds numbers
only. Images are given by their place in data.json, patients by a number without a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from protopyramid.data.manifest import Sample
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.inference.batches import evidence_batches
from protopyramid.inference.ood import (
    Limits,
    OodFeatures,
    fit_limits,
    image_statistics,
    limits_digest,
    model_features,
)
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run

Progress = Callable[[int, int], None]
DIGEST = "digest"  # key of the file's metadata


@dataclass(frozen=True)
class SplitScores:
    """The images of a split: names (n), class numbers (n,) and scores (n, m)."""

    names: tuple[str, ...]
    labels: Tensor
    scores: Tensor

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class ScoreTable:
    """The scores that the head is fitted to (train) and judged by (validation).

    Training images are those of the head fit, without test-time augmentation, as in training; validation
    images are scored as in a prediction. Also of validation images: closeness (n, m), looks (n, q) (see
    inference/ood.py) and the number of the patient (n,).
    """

    train: SplitScores
    validation: SplitScores
    closeness: Tensor
    looks: Tensor
    patients: Tensor

    def columns(self, kept: Sequence[int]) -> ScoreTable:
        """The table of these prototypes alone, in this order."""
        index = torch.tensor(list(kept), dtype=torch.long)
        return replace(
            self,
            train=replace(self.train, scores=self.train.scores[:, index]),
            validation=replace(self.validation, scores=self.validation.scores[:, index]),
            closeness=self.closeness[:, index],
        )

    def limits(self) -> Limits | None:
        """The out-of-distribution limits of these validation images; None where there are too few."""
        features = OodFeatures(model_features(self.validation.scores, self.closeness), self.looks)
        return fit_limits(features, [str(number) for number in self.patients.tolist()])


def measure_scores(
    run: Run,
    train: Sequence[Sample],
    validation: Sequence[Sample],
    progress: Progress = lambda done, total: None,
) -> ScoreTable:
    """One pass over the training images of the head fit and the validation images."""
    total = len(train) + len(validation)
    progress(0, total)
    size = run.config.train.eval_batch_size
    m = run.model.score_count
    scores, seen = [torch.empty(0, m)], 0
    store = ImageStore(train, run.config.data)
    for batch in evidence_batches(run.model, store, batch_size=size, tta=False):
        scores.append(batch.evidence.scores.float().cpu())
        seen += len(batch.images)
        progress(seen, total)
    predicted, closeness, looks = [torch.empty(0, m)], [torch.empty(0, m)], []
    store = ImageStore(validation, run.config.data)
    for batch in evidence_batches(run.model, store, batch_size=size):
        predicted.append(batch.evidence.scores.float().cpu())
        closeness.append(batch.evidence.closeness.float().cpu())
        looks.append(image_statistics(batch.loaded.images.cpu()))
        seen += len(batch.images)
        progress(seen, total)
    return ScoreTable(
        _split(run, train, torch.cat(scores)),
        _split(run, validation, torch.cat(predicted)),
        torch.cat(closeness),
        torch.cat(looks) if looks else torch.empty(0, 0),
        _patient_numbers(validation),
    )


def _split(run: Run, samples: Sequence[Sample], scores: Tensor) -> SplitScores:
    classes = run.config.data.classes
    labels = torch.tensor([classes.index(sample.label) for sample in samples], dtype=torch.long)
    return SplitScores(tuple(sample.name for sample in samples), labels, scores)


def _patient_numbers(samples: Sequence[Sample]) -> Tensor:
    order = {name: n for n, name in enumerate(dict.fromkeys(each.patient for each in samples))}
    return torch.tensor([order[each.patient] for each in samples], dtype=torch.long)


# -- the file ------------------------------------------------------------------------------------
def write_scores(
    folder: RunFolder,
    table: ScoreTable,
    digest: str,
    splits: Mapping[str, Mapping[str, str]],
) -> None:
    """Write scores.safetensors; `splits` are the images in data.json, `digest` what the scores hold for."""
    tensors = {
        "validation.closeness": table.closeness,
        "validation.looks": table.looks,
        "validation.patients": table.patients,
    }
    for name, part in (("train", table.train), ("validation", table.validation)):
        order = {image: place for place, image in enumerate(splits.get(name, {}))}
        places = torch.tensor([order.get(image, -1) for image in part.names], dtype=torch.long)
        tensors |= {
            f"{name}.images": places,
            f"{name}.labels": part.labels,
            f"{name}.scores": part.scores,
        }
    folder.write_tensors(layout.SCORES, tensors, {DIGEST: digest})


def read_scores(run: Run) -> ScoreTable | None:
    """The stored scores; None where there are none, or those of another model or other settings."""
    if not (run.folder / layout.SCORES).is_file():
        return None
    tensors, facts = run.folder.read_tensors(layout.SCORES)
    if facts.get(DIGEST) != limits_digest(run):
        return None
    try:
        train, validation = (_read_split(run, tensors, each) for each in ("train", "validation"))
        others = (tensors[f"validation.{each}"] for each in ("closeness", "looks", "patients"))
        return ScoreTable(train, validation, *others)
    except (KeyError, ValueError) as error:
        raise UserError(
            f"{run.folder / layout.SCORES}: damaged ({error}); delete it, and it is computed again"
        ) from None


def _read_split(run: Run, tensors: Mapping[str, Tensor], name: str) -> SplitScores:
    images, labels, scores = (tensors[f"{name}.{each}"] for each in ("images", "labels", "scores"))
    if scores.shape != (len(images), run.model.score_count) or len(labels) != len(images):
        raise ValueError(f"sizes of {name}")
    recorded = (run.folder / layout.DATA).is_file()
    known = list(run.provenance.splits.get(name, {})) if recorded else []
    names = [
        known[place] if 0 <= place < len(known) else f"{name} image {number}"
        for number, place in enumerate(images.tolist())
    ]
    return SplitScores(tuple(names), labels, scores)
