"""Which images are evaluated, and whether the run saw them in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protopyramid.data.images import hash_files
from protopyramid.data.manifest import Manifest, Sample, check_one_lesion, read_manifest
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.provenance import find_manifest, split_samples

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

WORKERS = 4
LESION_COLUMNS = ("lesion_id", "lesion")
ABNORMALITY_COLUMNS = ("abnormality_id", "abnormality id", "abnormality")


@dataclass(frozen=True)
class EvaluatedSplit:
    """The rows that a run is evaluated on: samples, their content hashes, and warnings.

    `source`: the dataset that they are of, in a manifest of several; "" where all rows are meant.
    """

    name: str
    manifest: Manifest
    samples: tuple[Sample, ...]
    hashes: tuple[str, ...]
    leaked: bool
    warnings: tuple[str, ...]
    source: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each sample."""
        return tuple(sample.label for sample in self.samples)

    @property
    def key(self) -> str:
        """What the files of its evaluation are called: the split, and its source if one was chosen."""
        return layout.part(self.name, self.source)


def evaluated_split(
    run: Run, given: str | Path | None, split: str, force: bool = False, source: str = ""
) -> EvaluatedSplit:
    """The rows of a split; refused when the run has trained on any of them, unless forced.

    With `source`, only the rows of that dataset.
    """
    path = find_manifest(run, given)
    manifest = read_manifest(path)
    check_one_lesion(manifest, run.config.data.crop)
    splits = run.provenance.splits
    samples = split_samples(manifest, split, splits)
    if source:
        samples = _of_source(path, samples, split, source)
    _check_labels(path, samples, run.config.data.classes)
    hashes = hash_images(samples)
    leaks = find_leaks(hashes, splits, split)
    if leaks and not force:
        first = samples[leaks[0]]
        raise UserError(
            f"{path}: {len(leaks)} of the {len(samples)} images of split {split} were used in "
            f"training {run.folder.path}, first {first.name!r} (row {first.row}); evaluate on "
            "images it has not seen, or use --force to get a result marked as leaked"
        )
    return EvaluatedSplit(
        split,
        manifest,
        samples,
        tuple(hashes),
        bool(leaks),
        tuple(_patient_warnings(manifest, samples, splits, split)),
        source,
    )


def _of_source(
    path: Path, samples: Sequence[Sample], split: str, source: str
) -> tuple[Sample, ...]:
    found = tuple(sample for sample in samples if sample.source == source)
    if not found:
        sources = ", ".join(dict.fromkeys(sample.source or "(none)" for sample in samples))
        raise UserError(
            f"{path}: no row of split {split} has source {source!r}; its sources are {sources}"
        )
    return found


def hash_images(samples: Sequence[Sample]) -> list[str]:
    """The content hashes of the samples' images."""
    return hash_files([sample.image for sample in samples], WORKERS)


def find_leaks(
    hashes: Sequence[str], splits: Mapping[str, Mapping[str, str]], split: str
) -> list[int]:
    """Indices of images that the run learned from, or was selected on when another split is judged."""
    used = set(splits.get("train", {}).values())
    if split != "validation":
        used |= set(splits.get("validation", {}).values())
    return [index for index, found in enumerate(hashes) if found in used]


def patients(samples: Sequence[Sample]) -> list[str]:
    """The patient of each sample, or the image itself where none is given."""
    return [sample.patient for sample in samples]


def lesions(samples: Sequence[Sample]) -> list[str] | None:
    """The lesion of each sample: by a lesion column, or by patient, side and abnormality; else None."""
    columns = set(samples[0].extra) if samples else set()
    for name in LESION_COLUMNS:
        if name in columns:
            return [f"{each.patient}/{each.extra[name] or each.name}" for each in samples]
    abnormality = next((name for name in ABNORMALITY_COLUMNS if name in columns), None)
    if abnormality is None or "laterality" not in columns:
        return None
    return [
        f"{each.patient}/{each.extra['laterality']}/{each.extra[abnormality]}" for each in samples
    ]


def _check_labels(path: Path, samples: Sequence[Sample], classes: Sequence[str]) -> None:
    unknown = [sample for sample in samples if sample.label not in classes]
    if unknown:
        first = unknown[0]
        raise UserError(
            f"{path}: {len(unknown)} rows of split {first.split} have labels that the run does not "
            f"know, first {first.label!r} in row {first.row}; its classes are {', '.join(classes)}"
        )


def _patient_warnings(
    manifest: Manifest, samples: Sequence[Sample], splits: Mapping[str, Any], split: str
) -> list[str]:
    """Patients with images on both sides: not the same image, but not independent either."""
    trained = splits.get("train", {})
    known = {each.patient_id for each in manifest.samples if each.name in trained}
    shared = sorted({each.patient_id for each in samples} & known - {""})
    found = []
    if shared and split != "train":
        found.append(
            f"{len(shared)} patients of split {split} are also in train, first {shared[0]!r}; "
            "the metrics are optimistic"
        )
    if split == "validation":
        found.append("the model was selected on this split; the metrics are optimistic")
    return found
