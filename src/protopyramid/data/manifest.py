"""The manifest: the CSV table of a dataset, read, checked and split by patient.

Required columns `image, label, split`; optional `mask`, `patient_id` and the lesion box
`lesion_x0, lesion_y0, lesion_x1, lesion_y1` in pixels of the image file; any other column is kept, among
them `source`, the dataset that a row comes from.
Paths are relative to the manifest.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from protopyramid.data.geometry import Box as Box
from protopyramid.data.geometry import Region
from protopyramid.errors import UserError
from protopyramid.utils.arguments import as_path
from protopyramid.utils.csv_files import Record, read_table
from protopyramid.utils.opening import is_file, real_path
from protopyramid.utils.tables import csv_text

SPLITS = ("train", "validation", "test")
REQUIRED = ("image", "label", "split")
BOX_COLUMNS = ("lesion_x0", "lesion_y0", "lesion_x1", "lesion_y1")
# Of a crop: the film that it was cut from, and its region there in pixels of the film's file.
SOURCE_COLUMNS = ("source_image", "region_x0", "region_y0", "region_x1", "region_y1")
SOURCE = "source"  # the dataset of a row, in a manifest of several
KNOWN = (*REQUIRED, "mask", "patient_id", *BOX_COLUMNS)
PROBLEMS_SHOWN = 20
FEW_PATIENTS = 5


@dataclass(frozen=True)
class Sample:
    """One row of a manifest.

    `row` is the line of the CSV on which the row starts (the header is line 1), `name` the image
    field with "/" between folders: the sample's id in all outputs. `box` is x0, y0, x1, y1. A second
    lesion of the same image has `lesion` 2 and "#2" after its name, and so on. `region` is the part of
    the image that the model is to see, where someone has marked it; a manifest has none.
    """

    row: int
    name: str
    image: Path
    label: str
    split: str
    mask: Path | None = None
    patient_id: str = ""
    box: Box | None = None
    extra: Mapping[str, str] = field(default_factory=dict, hash=False)
    lesion: int = 1
    region: Region | None = None

    @property
    def patient(self) -> str:
        """What the sample is grouped by: its patient, or its image when no patient is given."""
        if self.patient_id:
            return f"patient {self.patient_id}"
        return f"image {self.name.removesuffix(f'#{self.lesion}')}"

    @property
    def source(self) -> str:
        """The dataset that the sample comes from, by the column `source`; "" if it is not given."""
        return self.extra.get(SOURCE, "").strip()


@dataclass(frozen=True)
class Manifest:
    """A dataset: its rows in the order of the file."""

    path: Path
    samples: tuple[Sample, ...]
    columns: tuple[str, ...]

    def split(self, name: str) -> tuple[Sample, ...]:
        """The samples of one split: train, validation or test."""
        if name not in SPLITS:
            raise UserError(f'no split "{name}"; the splits are {", ".join(SPLITS)}')
        return tuple(sample for sample in self.samples if sample.split == name)

    def labels(self) -> list[str]:
        """The labels, each once, in order of appearance."""
        return list(dict.fromkeys(sample.label for sample in self.samples))


def read_manifest(path: str | Path, classes: Sequence[str] | None = None) -> Manifest:
    """Read a manifest; everything wrong with it is reported at once, in one UserError."""
    manifest, problems = parse_manifest(path, classes)
    if problems:
        raise UserError(f"{path}: {_listed(problems)}")
    return manifest


def parse_manifest(
    path: str | Path, classes: Sequence[str] | None = None
) -> tuple[Manifest, list[str]]:
    """The rows of a manifest that can be used, and what is wrong with the others.

    Only a file that is not a table with the required columns raises UserError.
    """
    path = as_path(path, "manifest")
    table = read_table(path, "manifest")
    columns = _read_header(path, table[0])
    samples: list[Sample] = []
    problems: list[str] = []
    for line, fields in table[1:]:
        sample, found = _read_row(path.parent, line, columns, fields)
        problems += found
        if sample is not None:
            samples.append(sample)
    samples, repeated = _numbered(samples)
    problems += repeated + _unknown_labels(samples, classes)
    if len(table) == 1:
        problems.append("has a header but no rows; add one row per image")
    return Manifest(path, tuple(samples), columns), problems


def read_images(path: str | Path, places: bool = False) -> Manifest:
    """The images of a table that may lack labels and splits: what can be predicted and explained.

    Only the column `image` is needed. Label, split and patient are kept as they are written, "" where
    there are none. Masks, lesion boxes and further columns are read with `places` only.
    """
    path = Path(path)
    table = read_table(path, "manifest")
    columns = tuple(name.strip() for name in table[0].fields)
    if columns.count("image") != 1:
        found = ", ".join(repr(name) for name in columns[:PROBLEMS_SHOWN])
        raise UserError(
            f"{path}: the header needs one column 'image', separated from others by commas "
            f"(columns found: {found})"
        )
    samples: list[Sample] = []
    problems: list[str] = []
    for line, fields in table[1:]:
        values = dict(zip(columns, map(str.strip, fields), strict=False))
        image = existing_file(path.parent, line, "image", values.get("image", ""), problems)
        if image is None:
            problems.append(f"row {line}, image: is empty; give the path of the image file")
            continue
        label, split, patient = (values.get(each, "") for each in ("label", "split", "patient_id"))
        name = _slashed(values["image"])
        sample = Sample(line, name, image, label, split, patient_id=patient)
        samples.append(_placed(sample, path.parent, values, problems) if places else sample)
    if len(table) == 1:
        problems.append("has a header but no rows; add one row per image")
    if problems:
        raise UserError(f"{path}: {_listed(problems)}")
    return Manifest(path, tuple(_numbered(samples)[0] if places else samples), columns)


def _placed(sample: Sample, folder: Path, values: Mapping[str, str], problems: list[str]) -> Sample:
    """A sample with the mask, the lesion box and the further columns of its row."""
    mask = existing_file(folder, sample.row, "mask", values.get("mask", ""), problems)
    box = read_box(sample.row, [values.get(name, "") for name in BOX_COLUMNS], problems)
    return replace(sample, mask=mask, box=box, extra=_further(values))


def _further(values: Mapping[str, str]) -> dict[str, str]:
    """The columns of a row that mean nothing to the manifest itself; they are kept."""
    return {name: value for name, value in values.items() if name and name not in KNOWN}


def shared_patients(samples: Sequence[Sample]) -> dict[str, list[str]]:
    """Patient ids that are in more than one split, with those splits: a leak."""
    splits: dict[str, set[str]] = {}
    for sample in samples:
        if sample.patient_id:
            splits.setdefault(sample.patient_id, set()).add(sample.split)
    return {
        patient: [name for name in SPLITS if name in found]
        for patient, found in splits.items()
        if len(found) > 1
    }


def with_validation(manifest: Manifest, fraction: float, seed: int) -> Manifest:
    """The manifest itself if it has validation rows, else one with a part of train held out.

    Whole patients are held out, about `fraction` of the training samples of every class.
    """
    train = manifest.split("train")
    if manifest.split("validation"):
        return manifest
    if not train:
        raise UserError(f"{manifest.path}: no row has split train; add some to learn from")
    if len({sample.patient for sample in train}) == 1:
        raise UserError(
            f"{manifest.path}: all train rows belong to one patient, so none can be held out; "
            "add rows with split validation"
        )
    _warn_of_few_patients(manifest.path, train)
    part = patient_parts(train, [1 - fraction, fraction], seed)
    held_out = {sample.name for sample, number in zip(train, part, strict=True) if number}
    samples = (
        replace(sample, split="validation")
        if sample.split == "train" and sample.name in held_out
        else sample
        for sample in manifest.samples
    )
    return replace(manifest, samples=tuple(samples))


def with_test(manifest: Manifest, fraction: float, seed: int) -> Manifest:
    """The manifest itself if it has test rows, else one with whole patients held out as test rows.

    The rows that are held out come from train and validation, about `fraction` of every class.
    """
    if manifest.split("test"):
        return manifest
    part = patient_parts(manifest.samples, [1 - fraction, fraction], seed)
    samples = (
        replace(sample, split="test") if number else sample
        for sample, number in zip(manifest.samples, part, strict=True)
    )
    return replace(manifest, samples=tuple(samples))


def with_fold(manifest: Manifest, folds: int, fold: int, seed: int) -> Manifest:
    """The manifest with one of its folds as test rows and the others as train rows.

    Whole patients are assigned to folds. Rows of the manifest's own test split are left out.
    """
    samples = [sample for sample in manifest.samples if sample.split != "test"]
    if not samples:
        raise UserError(f"{manifest.path}: all rows are test rows; add rows with split train")
    numbers = patient_folds(samples, folds, seed)
    assigned = (
        replace(sample, split="test" if number == fold else "train")
        for sample, number in zip(samples, numbers, strict=True)
    )
    return replace(manifest, samples=tuple(assigned))


def manifest_text(manifest: Manifest, folder: Path) -> str:
    """The manifest as CSV, with paths relative to the folder that it will lie in."""
    extra = [name for name in manifest.columns if name and name not in KNOWN]
    rows = []
    for sample in manifest.samples:
        mask = "" if sample.mask is None else relative_path(sample.mask, folder)
        box = ["", "", "", ""] if sample.box is None else [repr(value) for value in sample.box]
        image = relative_path(sample.image, folder)
        facts = [image, sample.label, sample.split, mask, sample.patient_id, *box]
        rows.append([*facts, *(sample.extra.get(name, "") for name in extra)])
    return csv_text([*KNOWN, *extra], rows)


def relative_path(path: Path, folder: Path) -> str:
    """A path as a manifest in `folder` names it."""
    return Path(os.path.relpath(real_path(path), real_path(folder))).as_posix()


def patient_folds(samples: Sequence[Sample], folds: int, seed: int) -> list[int]:
    """Number of the fold, 0 to folds - 1, of each sample: patient-grouped and class-stratified."""
    patients = len({sample.patient for sample in samples})
    if not 2 <= folds <= patients:
        raise UserError(
            f"{folds} folds of {patients} patients; folds must be from 2 to the number of patients"
        )
    return patient_parts(samples, [1 / folds] * folds, seed)


def patient_parts(samples: Sequence[Sample], shares: Sequence[float], seed: int) -> list[int]:
    """Put whole patients into parts, so that each part gets its share of every class.

    In a manifest of several sources, that is of every class of every source. Patients with much of a
    class go first (equal ones in random order), each to the part that lacks most, relative to its share.
    So a class of two patients is in two parts, not one.
    """
    labels = sorted({(sample.label, sample.source) for sample in samples})
    patients = sorted({sample.patient for sample in samples})
    rows = {patient: number for number, patient in enumerate(patients)}
    counts = np.zeros((len(patients), len(labels)))
    for sample in samples:
        counts[rows[sample.patient], labels.index((sample.label, sample.source))] += 1
    counts /= counts.sum(0)
    shuffled = np.random.default_rng(seed).permutation(len(patients))
    order = shuffled[np.argsort(-counts[shuffled].sum(1).round(9), kind="stable")]
    filled = np.zeros((len(shares), len(labels)))
    target = np.asarray(shares)[:, None]
    part = np.zeros(len(patients), dtype=int)
    for patient in order:
        lack = ((1 - filled / target) * counts[patient]).sum(1).round(9)
        room = (1 - filled / target).sum(1)
        part[patient] = max(range(len(shares)), key=lambda number: (lack[number], room[number]))
        filled[part[patient]] += counts[patient]
    return [int(part[rows[sample.patient]]) for sample in samples]


def _warn_of_few_patients(path: Path, samples: Sequence[Sample]) -> None:
    patients: dict[str, set[str]] = {}
    for sample in samples:
        patients.setdefault(sample.label, set()).add(sample.patient)
    for label, found in patients.items():
        if len(found) < FEW_PATIENTS:
            warnings.warn(
                f"{path}: class {label!r} has {len(found)} training patient(s); with fewer than "
                f"{FEW_PATIENTS}, its validation figures mean little",
                stacklevel=3,
            )


def _listed(problems: Sequence[str]) -> str:
    shown = "; ".join(problems[:PROBLEMS_SHOWN])
    more = len(problems) - PROBLEMS_SHOWN
    count = f"{len(problems)} problems: " if len(problems) > 1 else ""
    return f"{count}{shown}" + (f"; and {more} more" if more > 0 else "")


def _read_header(path: Path, header: Record) -> tuple[str, ...]:
    columns = tuple(name.strip() for name in header.fields)
    if len(columns) == 1 and (";" in columns[0] or "\t" in columns[0]):
        raise UserError(f"{path}: the header has no commas; save the manifest separated by commas")
    problems = [
        f"no column {name!r}; add it to the header" for name in REQUIRED if name not in columns
    ]
    for name in dict.fromkeys(columns):
        if name and columns.count(name) > 1:
            problems.append(f"column {name!r} occurs {columns.count(name)} times; keep one")
    boxed = [name for name in BOX_COLUMNS if name in columns]
    if boxed and len(boxed) < len(BOX_COLUMNS):
        missing = ", ".join(name for name in BOX_COLUMNS if name not in columns)
        problems.append(f"a lesion box needs all of its columns; add {missing}")
    if problems:
        found = ", ".join(repr(name) for name in columns[:PROBLEMS_SHOWN])
        raise UserError(f"{path}: {_listed(problems)} (columns found: {found})")
    return columns


def _read_row(
    folder: Path, line: int, columns: tuple[str, ...], fields: list[str]
) -> tuple[Sample | None, list[str]]:
    """The sample of one record, or None when something is wrong with it, and what is wrong."""
    if len(fields) != len(columns):
        return None, [
            f"row {line}: has {len(fields)} fields but the header has {len(columns)}; "
            "put quotation marks around a field with a comma"
        ]
    values = dict(zip(columns, fields, strict=True))
    known = {name: values.get(name, "").strip() for name in KNOWN}
    problems = _missing_values(line, known)
    image = existing_file(folder, line, "image", known["image"], problems)
    mask = existing_file(folder, line, "mask", known["mask"], problems)
    box = read_box(line, [known[name] for name in BOX_COLUMNS], problems)
    if problems or image is None:
        return None, problems
    sample = Sample(
        row=line,
        name=_slashed(known["image"]),
        image=image,
        label=known["label"],
        split=known["split"],
        mask=mask,
        patient_id=known["patient_id"],
        box=box,
        extra=_further(values),
    )
    return sample, problems


def _missing_values(line: int, known: Mapping[str, str]) -> list[str]:
    problems = []
    if not known["image"]:
        problems.append(f"row {line}, image: is empty; give the path of the image file")
    if not known["label"]:
        problems.append(f"row {line}, label: is empty; give the class of the image")
    if known["split"] not in SPLITS:
        problems.append(f"row {line}, split: {known['split']!r} must be train, validation or test")
    return problems


def _slashed(name: str) -> str:
    return name.replace("\\", "/")


def existing_file(
    folder: Path, line: int, column: str, name: str, problems: list[str]
) -> Path | None:
    """The path of a file that the manifest names; a problem when there is none."""
    if not name:
        return None
    path = folder / _slashed(name)
    if not is_file(path):
        problems.append(
            f"row {line}, {column}: no file {name!r}; paths are relative to the manifest's folder"
        )
    return path


def read_box(line: int, values: Sequence[str], problems: list[str]) -> Box | None:
    if not any(values):
        return None
    columns = f"row {line}, {BOX_COLUMNS[0]} to {BOX_COLUMNS[3]}:"
    if not all(values):
        problems.append(f"{columns} the box is incomplete; give all four numbers or none")
        return None
    try:
        x0, y0, x1, y1 = (float(value) for value in values)
    except ValueError:
        problems.append(f"{columns} {', '.join(map(repr, values))} must be numbers, as in 12.5")
        return None
    if not all(math.isfinite(value) for value in (x0, y0, x1, y1)):
        problems.append(f"{columns} the box is not finite; give pixels of the image file")
    elif x1 <= x0 or y1 <= y0:
        problems.append(f"{columns} the box is empty or inverted; x1 > x0 and y1 > y0 are needed")
    elif x1 <= 0 or y1 <= 0:
        problems.append(f"{columns} the box is outside the image; give pixels of the image file")
    else:
        return x0, y0, x1, y1
    return None


def _numbered(samples: Sequence[Sample]) -> tuple[list[Sample], list[str]]:
    """The samples, further lesions of an image numbered, and what is wrong with repeated images.

    The same lesion in two rows is a mistake, and so is one image in two splits.
    """
    problems: list[str] = []
    numbered: list[Sample] = []
    groups: dict[Path, list[Sample]] = {}
    for sample in samples:
        others = groups.setdefault(sample.image, [])
        problem = _repetition(sample, others)
        if problem:
            problems.append(
                f"row {sample.row}, image: {sample.name!r} {problem}; keep one of the rows"
            )
        others.append(sample)
        number = len(others)
        again = number > 1 and not problem
        numbered.append(
            replace(sample, name=f"{sample.name}#{number}", lesion=number) if again else sample
        )
    return numbered, problems


def _repetition(sample: Sample, others: Sequence[Sample]) -> str:
    """What is wrong with another row of an image that earlier rows have; "" for another lesion."""
    for other in others:
        if other.split != sample.split:
            return f"is in split {other.split} on row {other.row} and in split {sample.split} here"
        place, known = (sample.mask, sample.box), (other.mask, other.box)
        if place == known or (None, None) in (place, known):
            return f"is on row {other.row} already"
    return ""


def check_one_lesion(manifest: Manifest, crop: str) -> None:
    """Refuse several lesions of one image where the model would see all of it for each of them."""
    again = [sample for sample in manifest.samples if sample.lesion > 1]
    if again and crop == "none":
        raise UserError(
            f"{manifest.path}: {len(again)} rows are further lesions of an image that has a row already, "
            f"first row {again[0].row}; cut the lesions from their films with --set data.crop=lesion, or "
            "keep one row per image"
        )


def _unknown_labels(samples: Sequence[Sample], classes: Sequence[str] | None) -> list[str]:
    if classes is None:
        return []
    unknown = [sample for sample in samples if sample.label not in classes]
    if not unknown:
        return []
    labels = list(dict.fromkeys(sample.label for sample in samples))
    listed = "[" + ", ".join(f'"{label}"' for label in labels) + "]"
    problems = [
        f"row {sample.row}, label: {sample.label!r} is not one of the classes {', '.join(classes)}"
        for sample in unknown
    ]
    problems[0] += (
        f"; correct it, or train on the labels as they are: --set 'data.classes={listed}'"
    )
    return problems
