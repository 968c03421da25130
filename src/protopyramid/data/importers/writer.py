"""From an import plan to a dataset: crops, masks, manifest.

    images/NAME.png (16-bit grey)  masks/NAME.png (0 and 255)  skipped.csv
    manifest.csv (with the film that each crop comes from and its region there)
    films.csv (the full films with all of their lesions, for `data negatives`)
    import.json (the options)  import.jsonl (the journal: what was made of each image, to resume)

A crop is the square around the lesion box with the margin on each side. It is shifted to stay
inside the image; where it is larger than the image, it is black beyond the edge. An image is read
once for all of its crops. Every write is atomic, so that an import that was stopped at any moment
continues when it is called again, to the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from protopyramid.data.annotations import MaskFile, drawn_mask
from protopyramid.data.cropping import Array, is_coloured, to_16_bits, to_grey
from protopyramid.data.geometry import (
    Box,
    Mask,
    NoCrop,
    Region,
    clipped,
    cut,
    extent,
    square_around,
)
from protopyramid.data.importers.base import NEGATIVE, Crop, ImportPlan, Options, Skipped, Tissue
from protopyramid.data.importers.full_films import TABLE as FILMS
from protopyramid.data.importers.full_films import path_from
from protopyramid.data.importers.full_films import table_text as films_text
from protopyramid.data.io.decoding import read_image, read_marks
from protopyramid.data.io.encoding import png_bytes
from protopyramid.data.manifest import BOX_COLUMNS, KNOWN, SOURCE_COLUMNS, SPLITS
from protopyramid.data.masks import MaskSizeError, resized_mask
from protopyramid.data.negatives.patches import sample_patches
from protopyramid.errors import UserError
from protopyramid.utils.files import (
    check_output_folder,
    holds_anything,
    make_part,
    remove_partial,
    write_bytes,
    write_json,
    write_text,
)
from protopyramid.utils.journal import FileName, Journal, is_file_name
from protopyramid.utils.locks import claimed
from protopyramid.utils.opening import is_file, is_folder, real_path
from protopyramid.utils.processes import in_processes
from protopyramid.utils.tables import csv_text
from protopyramid.utils.typed_json import read_json

VERSION = 1  # of the crops: another one is another result
SETTINGS, JOURNAL = "import.json", "import.jsonl"
MANIFEST, SKIPPED = "manifest.csv", "skipped.csv"
LATER_OPTIONS = {"regions": "only", "margin_column": ""}
COLUMNS = ("image", "label", "split", "mask", "patient_id", *BOX_COLUMNS, *SOURCE_COLUMNS)
PATIENTS_SHOWN = 5
TISSUE_SHARES = (
    1.0,
    0.75,
    0.5,
    0.25,
)  # of the wanted side: sizes that a tissue patch is tried with

BLACK_TOLERANCE = 0.02  # of the range of a film's grey values

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class CropRecord:
    """A crop that was written, with its lesion box in pixels of the crop.

    mask: whether it has one. padded: black beyond the edge of its image. scaled: the mask was resized
    to the image. smaller: a tissue patch smaller than wanted. region: the crop's place in its image.
    """

    name: FileName
    mask: bool
    box: Box | None = None
    padded: bool = False
    scaled: bool = False
    smaller: bool = False
    region: Box | None = None


@dataclass(frozen=True)
class SkippedCrop:
    """A crop that could not be made, and why."""

    name: FileName
    reason: str


@dataclass(frozen=True)
class ImageRecord:
    """What was made of one image: a line of the journal."""

    key: str
    crops: tuple[CropRecord | SkippedCrop, ...]
    warnings: tuple[str, ...]
    coloured: bool


@dataclass(frozen=True)
class ImportResult:
    """The new dataset: its manifest, crops and images, and what was left out."""

    manifest: Path
    counts: Mapping[str, Mapping[str, int]]  # label -> split -> crops
    images: int
    skipped: Sequence[Skipped]
    notes: Sequence[str]
    films: int = 0  # in films.csv


def reasons(skipped: Sequence[Skipped]) -> dict[str, int]:
    """How often each reason was the one, the most frequent first."""
    counts: dict[str, int] = {}
    for each in skipped:
        reason = each.reason.split(": ")[0]
        counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def render(result: ImportResult) -> str:
    """The new dataset in words and a table."""
    splits = [name for name in SPLITS if any(each[name] for each in result.counts.values())]
    total = sum(sum(each.values()) for each in result.counts.values())
    width = max(len(label) for label in result.counts) + 2
    lines = [f"{total} crops from {result.images} images"]
    lines.append("".ljust(width) + "".join(name.rjust(12) for name in splits))
    for label, counts in result.counts.items():
        lines.append(label.ljust(width) + "".join(str(counts[name]).rjust(12) for name in splits))
    if result.skipped:
        lines.append(f"{len(result.skipped)} items skipped, listed in {SKIPPED}")
        lines += [f"{count:6d}  {reason}" for reason, count in reasons(result.skipped).items()]
    if result.films:
        lines.append(f"{FILMS} lists {result.films} full films, for data negatives")
    lines += [f"note: {note}" for note in result.notes]
    return "\n".join(lines)


def check_folder(source: Path, folder: Path, name: str, options: Options) -> None:
    """Refuse a folder that holds anything but this import, complete or not."""
    if not is_folder(source):
        raise UserError(f"{source}: no such folder; give the folder of the download")
    check_output_folder(folder)
    if real_path(folder).is_relative_to(real_path(source)):
        raise UserError(f"{folder}: is inside the download; give a folder outside {source}")
    settings = _settings(name, options)
    path = folder / SETTINGS
    if not is_file(path):
        if holds_anything(folder):
            raise UserError(f"{folder}: is not empty; give another folder")
        return
    try:
        before = read_json(path)
    except (OSError, ValueError):
        raise UserError(f"{path}: was not written by an import; give another folder") from None
    if before != settings:
        raise UserError(f"{folder}: {_difference(before, settings)}; give another folder")


def _settings(name: str, options: Options) -> dict[str, Any]:
    chosen = asdict(options)
    for option, default in LATER_OPTIONS.items():
        if chosen[option] == default:  # imports from before the option existed can be resumed
            del chosen[option]
    return {"version": VERSION, "format": name, "options": chosen}


def _flat(settings: Any) -> dict[str, Any]:
    options = settings.get("options") if isinstance(settings, dict) else None
    return {**settings, **options} if isinstance(options, dict) else {}


def _difference(before: Any, now: Mapping[str, Any]) -> str:
    """The first option that differed in an earlier import."""
    flat = [_flat(each) for each in (before, now)]
    for key, value in flat[1].items():
        if key != "options" and flat[0].get(key) != value:
            return f"was imported with {key} {flat[0].get(key)}, not {value}"
    return "was imported with other options"


def write_dataset(
    plan: ImportPlan,
    source: Path,
    folder: Path,
    name: str,
    options: Options,
    workers: int = 1,
    progress: Progress | None = None,
) -> ImportResult:
    """Make the crops of the plan that are not there yet, then the manifest.

    `name` is that of the format. `progress(done, total)` counts images. The number of workers does
    not change a byte.
    """
    check_folder(source, folder, name, options)
    _check_names(plan.crops)
    with claimed(folder):
        return _write(plan, source, folder, name, options, workers, progress)


def _write(
    plan: ImportPlan,
    source: Path,
    folder: Path,
    name: str,
    options: Options,
    workers: int,
    progress: Progress | None,
) -> ImportResult:
    write_json(folder / SETTINGS, _settings(name, options))  # first: it makes the folder ours
    for part in ("images", "masks"):
        make_part(folder, part)
    jobs = _jobs(plan.crops, source, folder, options.margin)
    journal = Journal(folder / JOURNAL, ImageRecord)
    records = _resume(journal, jobs)
    pending = [job for job in jobs if job.key not in records]
    if pending:
        for table in (MANIFEST, FILMS):  # they may no longer fit the download
            (folder / table).unlink(missing_ok=True)
    _run(pending, workers, records, journal, progress, len(jobs))
    in_order = [records[job.key] for job in jobs]
    journal.replace(in_order)
    return _finish(plan, source, folder, in_order)


def _check_names(crops: Sequence[Crop]) -> None:
    names: dict[str, Crop] = {}
    for crop in crops:
        if not is_file_name(crop.name):
            raise UserError(f"{crop.image}: {crop.name!r} cannot be a file name; rename it")
        other = names.setdefault(crop.name.casefold(), crop)  # some file systems ignore case
        if other is not crop:
            raise UserError(
                f"{crop.image}: its crop would be called {crop.name!r}, like a crop of {other.image}; "
                "rename one of them"
            )
        clash = [column for column in crop.extra if column in (*KNOWN, *SOURCE_COLUMNS)]
        if clash:
            raise UserError(
                f"{crop.image}: column {clash[0]!r} is one of the manifest's own; rename it"
            )


# --- the jobs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """One image with all of its crops. The key changes with anything that changes the result."""

    folder: Path
    image: Path
    crops: tuple[Crop, ...]
    margin: float
    key: str


def _jobs(crops: Sequence[Crop], source: Path, folder: Path, margin: float) -> list[_Job]:
    grouped: dict[Path, list[Crop]] = {}
    for crop in crops:
        grouped.setdefault(crop.image, []).append(crop)
    return [
        _Job(folder, image, tuple(group), margin, _key(image, group, margin, source))
        for image, group in grouped.items()
    ]


def _key(image: Path, crops: Sequence[Crop], margin: float, source: Path) -> str:
    """A digest of the files, by name, size and time, and of what is cut from them."""
    content: list[Any] = [VERSION, margin, _stamp(image, source)]
    for crop in crops:
        shape = crop.annotation
        drawn = _stamp(shape.path, source) if isinstance(shape, MaskFile) else repr(shape)
        content.append(
            [crop.name, drawn, crop.box, repr(crop.tissue), crop.whole, crop.label == NEGATIVE]
        )
        content += [True] * crop.on_tissue
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _stamp(path: Path, source: Path) -> list[Any]:
    name = Path(os.path.relpath(path, source)).as_posix()
    try:
        status = path.stat()
    except OSError:
        return [name]
    return [name, status.st_size, status.st_mtime_ns]


def _resume(journal: Journal[ImageRecord], jobs: Sequence[_Job]) -> dict[str, ImageRecord]:
    """The records of jobs that an earlier call finished, by key; files of other records are removed."""
    folder = journal.path.parent
    names = {job.key: {crop.name for crop in job.crops} for job in jobs}
    before = journal.read()
    fitting = [each for each in before if {crop.name for crop in each.crops} == names.get(each.key)]
    kept = {record.key: record for record in fitting if _complete(folder, record)}
    written = {crop.name for record in kept.values() for crop in record.crops}
    for name in {crop.name for record in before for crop in record.crops} - written:
        for part in ("images", "masks"):
            (folder / part / f"{name}.png").unlink(missing_ok=True)
    journal.replace(kept.values())
    return kept


def _complete(folder: Path, record: ImageRecord) -> bool:
    """Whether all crops of an image are there. What failed is tried again: it may have been mended."""
    for crop in record.crops:
        if isinstance(crop, SkippedCrop) or not (folder / "images" / f"{crop.name}.png").is_file():
            return False
        if crop.mask and not (folder / "masks" / f"{crop.name}.png").is_file():
            return False
    return True


def _run(
    jobs: Sequence[_Job],
    workers: int,
    records: dict[str, ImageRecord],
    journal: Journal[ImageRecord],
    progress: Progress | None,
    total: int,
) -> None:
    """Do the jobs; each is in the journal and the records as soon as its files are there."""
    if progress is not None and total:
        progress(total - len(jobs), total)
    for record in in_processes(_crop_image, jobs, workers):
        journal.append(record)
        records[record.key] = record
        if progress is not None:
            progress(len(records), total)


# --- one image ------------------------------------------------------------------------------------


def _crop_image(job: _Job) -> ImageRecord:
    """Write the crops of one image and record what became of each."""
    coloured = False
    crops: list[CropRecord | SkippedCrop]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            whole = read_image(job.image)
        except UserError as error:
            reason = f"unreadable image: {_without(error, job.image)}"
            crops = [SkippedCrop(crop.name, reason) for crop in job.crops]
        else:
            coloured, image = is_coloured(whole), to_grey(whole)
            crops = [_write_crop(job, crop, image) for crop in job.crops]
    # Only our own warnings, which begin with the path: others may quote what a header holds.
    texts = [str(each.message) for each in caught]
    ours = [_without(text, job.image) for text in texts if text.startswith(f"{job.image}: ")]
    return ImageRecord(job.key, tuple(crops), tuple(ours), coloured)


def _without(message: object, path: Path) -> str:
    return str(message).removeprefix(f"{path}: ")


def _write_crop(job: _Job, crop: Crop, image: Array) -> CropRecord | SkippedCrop:
    try:
        cropped = _cropped(crop, image, job.margin)
    except NoCrop as error:
        return SkippedCrop(crop.name, str(error))
    write_bytes(job.folder / "images" / f"{crop.name}.png", png_bytes(to_16_bits(cropped.image)))
    if cropped.mask is not None:
        mask = cropped.mask.astype(np.uint8) * np.uint8(255)
        write_bytes(job.folder / "masks" / f"{crop.name}.png", png_bytes(mask))
    has_mask = cropped.mask is not None
    flags = (cropped.padded, cropped.scaled, cropped.smaller)
    region = cropped.region or Region.whole(*image.shape)
    return CropRecord(crop.name, has_mask, cropped.box, *flags, region.box)


@dataclass(frozen=True)
class _CroppedImage:
    """A crop (S, S) or whole image (H, W), with its mask and its lesion box in pixels of the crop.

    region: where the crop lies in its image; None if it is all of it.
    """

    image: Array
    mask: Mask | None = None
    box: Box | None = None
    padded: bool = False
    scaled: bool = False
    smaller: bool = False
    region: Region | None = None


def _cropped(crop: Crop, image: Array, margin: float) -> _CroppedImage:
    height, width = image.shape
    if crop.tissue is not None:
        return _tissue_patch(crop.tissue, image)
    if crop.annotation is None and crop.box is None:
        return _CroppedImage(image)
    mask, scaled = _whole_mask(crop, height, width)
    if crop.whole and mask is not None and not mask.any():
        return _CroppedImage(image, None if crop.label == NEGATIVE else mask, scaled=scaled)
    if crop.on_tissue and mask is not None and mask.any() and not _shows_tissue(image, mask):
        raise NoCrop("the outline lies on the background: left and right may be swapped")
    box = _lesion_box(crop, mask, height, width)
    padded, region = False, None
    if not crop.whole:
        region = square_around(box, margin, height, width)
        padded = not region.within(height, width)
        image = np.asarray(cut(image, region), np.float32)
        mask = None if mask is None else np.asarray(cut(mask, region), np.bool_)
        box = region.from_file(box)
    if mask is not None and not mask.any():
        raise NoCrop("the mask is empty")
    if crop.label == NEGATIVE:
        return _CroppedImage(image, padded=padded, region=region)
    return _CroppedImage(image, mask, box, padded, scaled, region=region)


def _shows_tissue(image: Array, mask: Mask) -> bool:
    """Whether at least half of the pixels inside a mask are brighter than the film's black."""
    black = float(image.min()) + BLACK_TOLERANCE * float(np.ptp(image))
    return bool((image[mask] > black).mean() >= 0.5)


def _lesion_box(crop: Crop, mask: Mask | None, height: int, width: int) -> Box:
    if crop.box is not None:
        return clipped(crop.box, height, width)
    assert mask is not None  # a crop has an annotation, or a box, or it is the whole image
    return extent(mask)


def _whole_mask(crop: Crop, height: int, width: int) -> tuple[Mask | None, bool]:
    """The mask of the full image, and whether it was resized to it."""
    if crop.annotation is None:
        return None, False
    if not isinstance(crop.annotation, MaskFile):
        return drawn_mask(crop.annotation, height, width), False
    path = crop.annotation.path
    try:
        mask = read_marks(path)
    except UserError as error:
        raise NoCrop(f"unreadable mask: {_without(error, path)}") from None
    try:
        return resized_mask(mask, (height, width)), mask.shape != (height, width)
    except MaskSizeError as error:
        raise NoCrop(str(error)) from None


def _tissue_patch(tissue: Tissue, image: Array) -> _CroppedImage:
    """A patch of tissue; where none of its size has room, a smaller one."""
    rng = np.random.default_rng(tissue.seed)
    for share in TISSUE_SHARES:
        side = max(1, min(round(tissue.side * share), *image.shape))
        sample = sample_patches(image, [side], 1, [], rng)
        if sample:
            region = Region(*sample[0])
            window = np.asarray(cut(image, region), np.float32)
            return _CroppedImage(window, smaller=side < tissue.side, region=region)
    raise NoCrop(f"no patch of tissue: {sample.unplaced[0].reason}")


# --- the folder -----------------------------------------------------------------------------------


def _finish(
    plan: ImportPlan, source: Path, folder: Path, records: Sequence[ImageRecord]
) -> ImportResult:
    """Write the tables, the manifest last."""
    entries = {entry.name: entry for record in records for entry in record.crops}
    made = {name: entry for name, entry in entries.items() if isinstance(entry, CropRecord)}
    kept = [crop for crop in plan.crops if crop.name in made]
    failed = [
        Skipped(entry.name, entry.reason)
        for crop in plan.crops
        if isinstance(entry := entries[crop.name], SkippedCrop)
    ]
    not_imported = [*plan.skipped, *failed]
    skipped = [*not_imported, *plan.films_left_out]
    rows = [(each.item, each.reason) for each in skipped]
    write_text(folder / SKIPPED, csv_text(("item", "reason"), rows))
    remove_partial(folder)
    if not kept:
        for table in (MANIFEST, FILMS):
            (folder / table).unlink(missing_ok=True)
        raise UserError(_nothing(source, folder, not_imported))
    if plan.films:
        write_text(folder / FILMS, films_text(plan.films, folder))
    else:
        (folder / FILMS).unlink(missing_ok=True)
    columns = list(dict.fromkeys([*COLUMNS, *(column for crop in kept for column in crop.extra)]))
    table_rows = [_row(crop, made[crop.name], columns, folder) for crop in kept]
    write_text(folder / MANIFEST, csv_text(columns, table_rows))
    counts: dict[str, dict[str, int]] = {}
    for crop in kept:
        splits = counts.setdefault(crop.label, dict.fromkeys(SPLITS, 0))
        splits[crop.split] += 1
    images = len({crop.image for crop in kept})
    notes = [*plan.notes, *_notes(kept, made, records)]
    films = len({row.image for row in plan.films})
    return ImportResult(folder / MANIFEST, counts, images, skipped, notes, films)


def _nothing(source: Path, folder: Path, skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return f"{source}: nothing to import was found; is it the right format and folder?"
    kind, count = next(iter(reasons(skipped).items()))
    example = next(each.reason for each in skipped if each.reason.startswith(kind))
    return (
        f"{folder}: nothing could be imported; {len(skipped)} items are in {SKIPPED}, "
        f"{count} of them because: {example}"
    )


def _row(crop: Crop, entry: CropRecord, columns: Sequence[str], folder: Path) -> list[str]:
    box = [""] * 4 if entry.box is None else [f"{round(edge, 3):g}" for edge in entry.box]
    region = [""] * 4 if entry.region is None else [f"{edge:.0f}" for edge in entry.region]
    values = {
        **crop.extra,
        "image": f"images/{crop.name}.png",
        "label": crop.label,
        "split": crop.split,
        "mask": f"masks/{crop.name}.png" if entry.mask else "",
        "patient_id": crop.patient_id,
        **dict(zip(BOX_COLUMNS, box, strict=True)),
        "source_image": path_from(folder, crop.image),
        **dict(zip(SOURCE_COLUMNS[1:], region, strict=True)),
    }
    return [values.get(column, "") for column in columns]


def _notes(
    crops: Sequence[Crop], made: Mapping[str, CropRecord], records: Sequence[ImageRecord]
) -> Iterator[str]:
    """What the user should know about the crops."""
    padded = sum(made[crop.name].padded for crop in crops)
    scaled = sum(made[crop.name].scaled for crop in crops)
    smaller = sum(made[crop.name].smaller for crop in crops)
    coloured = sum(record.coloured for record in records)
    if smaller:
        yield f"{smaller} tissue patches are smaller than wanted, since the breast has no room"
    if padded:
        yield f"{padded} crops are larger than their image and black beyond its edge"
    if scaled:
        yield f"{scaled} masks had another size than their image and were resized to it"
    if coloured:
        yield f"{coloured} colour images were converted to grey"
    messages = Counter(message for record in records for message in record.warnings)
    yield from (f"{count} images: {message}" for message, count in messages.items())
    splits: dict[str, set[str]] = {}
    for crop in crops:
        if crop.patient_id:
            splits.setdefault(crop.patient_id, set()).add(crop.split)
    shared = [patient for patient, names in splits.items() if len(names) > 1]
    if shared:
        more = f" and {len(shared) - PATIENTS_SHOWN} more" if len(shared) > PATIENTS_SHOWN else ""
        yield (
            f"warning: {len(shared)} patients are in more than one split, so test data leaks into "
            f"training: {', '.join(shared[:PATIENTS_SHOWN])}{more}"
        )
