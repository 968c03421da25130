"""`data check`: what a dataset holds, and what is wrong with it, before any training.

A patient, or an image of the same decoded content, in more than one split is an error: test results
would be worthless. Repeated images within a split, and what merely looks odd, are warnings.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.contact_sheet import View, contact_sheet
from protopyramid.data.geometry import clip_box, extent
from protopyramid.data.images import content_hash, read_image, read_mask
from protopyramid.data.manifest import (
    FEW_PATIENTS,
    SPLITS,
    Box,
    Sample,
    parse_manifest,
    shared_patients,
)
from protopyramid.errors import UserError

__all__ = ["Report", "View", "check_manifest", "contact_sheet", "render"]

WORKERS = 4
EMPTY_MASK = "with an empty mask (white is inside)"
NOT_SQUARE = (
    'that are not square (data.fit = "stretch", the default, distorts them; --set data.fit=pad keeps '
    "their shape)"
)
WHOLE_FILM = (
    "whose lesion covers less than 4% of the image (a whole film would be squashed to the model's "
    "input; --set data.crop=lesion cuts the lesions out)"
)
SQUARE_RATIO = 1.05  # of the longer to the shorter side; less distortion does not show
FILM_SHARE = 0.04  # of the image; the lesion in a crop covers a quarter or so
ROWS_NAMED = 5
FINDINGS_SHOWN = 20
DARK = 1 / 8  # an image with no value above this share of its range
NEARLY_ALL = 0.95  # a mask that covers more is probably inverted


@dataclass(frozen=True)
class Report:
    """What `check_manifest` found.

    counts, patients and annotated: numbers by label, then by split. coverage: mean share of the
    image inside its mask (or, without one, its lesion box), by label, of annotated images. sizes:
    number of images by (width, height).
    """

    path: Path
    counts: dict[str, dict[str, int]]
    patients: dict[str, dict[str, int]]
    annotated: dict[str, dict[str, int]]
    coverage: dict[str, float]
    sizes: dict[tuple[int, int], int]
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the dataset can be used: no errors."""
        return not self.errors


@dataclass(frozen=True)
class _Inspection:
    """What one sample's files hold; `oddities` are kinds of warning."""

    sample: Sample
    size: tuple[int, int] | None = None
    content: str = ""
    coverage: float | None = None
    error: str = ""
    oddities: tuple[str, ...] = ()


def check_manifest(path: str | Path, classes: Sequence[str] | None = None) -> Report:
    """Read a manifest and every file that it names; any class names are accepted by default."""
    manifest, problems = parse_manifest(path, classes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool:
            inspections = list(pool.map(_inspect, manifest.samples))
    samples = manifest.samples
    errors = problems + [each.error for each in inspections if each.error]
    errors += [
        f"patient {patient!r} is in splits {' and '.join(splits)}; keep a patient in one split"
        for patient, splits in shared_patients(samples).items()
    ]
    leaks, repeats = _identical(inspections)
    return Report(
        path=manifest.path,
        counts=_table(samples, {sample.name for sample in samples}),
        patients=_patients(samples),
        annotated=_table(samples, {s.name for s in samples if s.mask or s.box}),
        coverage=_coverage(inspections),
        sizes=_sizes(inspections),
        errors=errors + leaks,
        warnings=[
            *repeats,
            *_oddities(inspections),
            *_imbalances(samples),
            *_confounded(samples),
            *dict.fromkeys(str(warning.message) for warning in caught),
        ],
    )


def _inspect(sample: Sample) -> _Inspection:
    try:
        image = read_image(sample.image)
        height, width = image.shape[:2]
        mask = None if sample.mask is None else read_mask(sample.mask, (height, width))
    except UserError as error:
        return _Inspection(sample, error=f"row {sample.row}: {error}")
    found = _Inspection(sample, (width, height), content_hash(image))
    oddities = [*_value_oddities(image), *_shape_oddities(height, width)]
    box = None if sample.box is None else clip_box(sample.box, height, width)
    if sample.box is not None and box is None:
        where = f"row {sample.row}, lesion box: outside its image of {width} x {height} pixels"
        found = replace(found, error=f"{where}; give pixels of the image file")
    if sample.box is not None and box is not None:
        found = replace(found, coverage=_area(box) / (height * width))
        if np.abs(np.subtract(box, sample.box)).max() > 1:
            oddities.append("with a lesion box that reaches beyond the image (it is clipped)")
    if mask is not None:
        found = replace(found, coverage=float(mask.mean()))
        oddities += _mask_oddities(float(mask.mean()))
        box = box or (extent(mask) if mask.any() else None)
    if box is not None and _area(box) < FILM_SHARE * height * width:
        oddities.append(WHOLE_FILM)
    return replace(found, oddities=tuple(oddities))


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _shape_oddities(height: int, width: int) -> list[str]:
    return [NOT_SQUARE] if max(height, width) > SQUARE_RATIO * min(height, width) else []


def _value_oddities(image: NDArray[np.float32]) -> tuple[str, ...]:
    low, high = float(image.min()), float(image.max())
    if low == high:
        return ("of one grey value",)
    if high < DARK:
        return ("that use only the darkest eighth of their range (are 12 bits of 16 used?)",)
    return ()


def _mask_oddities(coverage: float) -> list[str]:
    if coverage == 0:
        return [EMPTY_MASK]
    if coverage > NEARLY_ALL:
        return ["with a mask that covers nearly the whole image (white is inside; is it inverted?)"]
    return []


def _identical(inspections: Iterable[_Inspection]) -> tuple[list[str], list[str]]:
    """Groups of images with the same content: those across splits, and those within one."""
    groups: dict[str, list[Sample]] = {}
    for each in inspections:
        if each.content and each.sample.lesion == 1:  # further lesions of a film are not repeats
            groups.setdefault(each.content, []).append(each.sample)
    leaks, repeats = [], []
    for group in groups.values():
        if len(group) == 1:
            continue
        splits = [name for name in SPLITS if any(sample.split == name for sample in group)]
        what = f"{_rows(group)} are the same image"
        if len({sample.label for sample in group}) > 1:
            what += f" with labels {' and '.join(sorted({s.label for s in group}))}"
        if len(splits) > 1:
            leaks.append(f"{what} in splits {' and '.join(splits)}; keep it in one split")
        else:
            repeats.append(f"{what} in split {splits[0]}")
    return leaks, repeats


def _rows(samples: Sequence[Sample]) -> str:
    rows = ", ".join(str(sample.row) for sample in samples[:ROWS_NAMED])
    more = len(samples) - ROWS_NAMED
    return ("rows " if len(samples) > 1 else "row ") + rows + (f" and {more} more" * (more > 0))


def _oddities(inspections: Iterable[_Inspection]) -> list[str]:
    kinds: dict[str, list[Sample]] = {}
    inspections = list(inspections)
    lesions = {each.sample.label for each in inspections if each.coverage}
    for each in inspections:
        for kind in each.oddities:
            if kind == EMPTY_MASK and each.sample.label not in lesions:
                continue  # a class without lesions, whose masks are empty as they should be
            kinds.setdefault(kind, []).append(each.sample)
    return [f"{len(found)} image(s) {kind}: {_rows(found)}" for kind, found in kinds.items()]


def _imbalances(samples: Sequence[Sample]) -> list[str]:
    """Splits and classes that are missing or thin."""
    found = []
    splits = [name for name in SPLITS if any(sample.split == name for sample in samples)]
    if samples and "train" not in splits:
        found.append("no row has split train")
    for label, by_split in _patients(samples).items():
        absent = [name for name in splits if not by_split[name]]
        if absent:
            found.append(f"class {label!r} has no rows in split {' and '.join(absent)}")
        if 0 < by_split["train"] < FEW_PATIENTS:
            found.append(f"class {label!r} has only {by_split['train']} training patient(s)")
    unnamed = [sample for sample in samples if not sample.patient_id]
    if unnamed:
        found.append(
            f"{len(unnamed)} of {len(samples)} rows have no patient_id: each counts as a patient of its "
            "own, and leaks between splits cannot be detected"
        )
    return found


def _confounded(samples: Sequence[Sample]) -> list[str]:
    """Classes that the source alone tells, in a manifest of several sources."""
    sources: dict[str, set[str]] = {}
    for sample in samples:
        sources.setdefault(sample.label, set()).add(sample.source or "(none)")
    if len(set().union(*sources.values())) < 2:
        return []
    return [
        f"class {label!r} is in source {next(iter(found))!r} only: a model may learn the source instead"
        for label, found in sources.items()
        if len(found) == 1
    ]


def _table(samples: Sequence[Sample], names: set[str]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for sample in samples:
        row = table.setdefault(sample.label, dict.fromkeys(SPLITS, 0))
        row[sample.split] += sample.name in names
    return table


def _patients(samples: Sequence[Sample]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, set[str]]] = {}
    for sample in samples:
        row = found.setdefault(sample.label, {name: set() for name in SPLITS})
        row[sample.split].add(sample.patient)
    return {
        label: {name: len(patients) for name, patients in row.items()}
        for label, row in found.items()
    }


def _coverage(inspections: Sequence[_Inspection]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for each in inspections:
        if each.coverage is not None:
            values.setdefault(each.sample.label, []).append(each.coverage)
    return {label: float(np.mean(found)) for label, found in values.items()}


def _sizes(inspections: Sequence[_Inspection]) -> dict[tuple[int, int], int]:
    sizes: dict[tuple[int, int], int] = {}
    for each in inspections:
        if each.size is not None:
            sizes[each.size] = sizes.get(each.size, 0) + 1
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def render(report: Report, width: int = 100) -> str:
    """The report as plain text: a table, then the errors and the warnings."""
    from rich.console import Console
    from rich.table import Table

    splits = [name for name in SPLITS if any(row[name] for row in report.counts.values())]
    table = Table(title=None)
    table.add_column("class")
    for name in (*splits, "annotated", "coverage"):
        table.add_column(name, justify="right")
    for label, row in report.counts.items():
        images = [f"{row[name]} ({report.patients[label][name]})" for name in splits]
        share = report.coverage.get(label)
        annotated = sum(report.annotated[label].values())
        coverage = "-" if share is None else f"{share:.0%}"
        table.add_row(label, *images, str(annotated), coverage)
    text = io.StringIO()
    console = Console(file=text, width=width, highlight=False, markup=False, emoji=False)
    if report.counts:
        console.print(table)
        console.print("Images (patients) in each split; coverage: mean share inside mask or box.")
    console.print(_sizes_in_words(report.sizes))
    for title, findings in (("error", report.errors), ("warning", report.warnings)):
        for finding in findings[:FINDINGS_SHOWN]:
            console.print(f"{title}: {finding}", soft_wrap=True)
        if len(findings) > FINDINGS_SHOWN:
            console.print(f"{title}: and {len(findings) - FINDINGS_SHOWN} more")
    return text.getvalue()


def _sizes_in_words(sizes: dict[tuple[int, int], int]) -> str:
    if not sizes:
        return "No image could be read."
    (width, height), count = next(iter(sizes.items()))
    words = f"{count} of {sum(sizes.values())} images are {width} x {height} pixels"
    if len(sizes) == 1:
        return f"{words}."
    widths, heights = [size[0] for size in sizes], [size[1] for size in sizes]
    return (
        f"{words}; widths are {min(widths)} to {max(widths)}, heights {min(heights)} to "
        f"{max(heights)}."
    )
