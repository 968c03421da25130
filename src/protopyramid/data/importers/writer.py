"""From what a finder found to a dataset: crops, masks, manifest.

    images/NAME.png (16-bit grey)  masks/NAME.png (0 and 255)  skipped.csv
    manifest.csv (with the film that each crop comes from and its region there)
    films.csv (the full films with all of their lesions, for `data negatives`)
    import.json (the options)  import.jsonl (what was made of each image, to go on after a stop)

A crop is the square around the lesion box with the margin on each side. It is shifted to stay
inside the image; where it is larger than the image, it is black beyond the edge. An image is read
once for all of its crops. Every write is atomic, so that an import that is stopped at any moment
goes on when it is called again, to the same bytes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from protopyramid.data.cropping import (
    Array,
    drawn_mask,
    is_coloured,
    scaled_mask,
    to_16_bits,
    to_grey,
)
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
from protopyramid.data.importers.base import (
    NEGATIVE,
    Crop,
    ImportPlan,
    MaskFile,
    Options,
    Skipped,
    Tissue,
)
from protopyramid.data.importers.full_films import TABLE as FILMS
from protopyramid.data.importers.full_films import lines as film_lines
from protopyramid.data.importers.full_films import path_from
from protopyramid.data.io.decoding import read_image, read_marks
from protopyramid.data.io.encoding import png_bytes
from protopyramid.data.manifest import BOX_COLUMNS, KNOWN, SOURCE_COLUMNS, SPLITS
from protopyramid.data.negatives.patches import sample_squares
from protopyramid.errors import UserError
from protopyramid.utils.files import TEMPORARY, remove_partial, write_bytes
from protopyramid.utils.processes import in_processes

VERSION = 1  # of the crops: another one is another result
SETTINGS, JOURNAL = "import.json", "import.jsonl"
MANIFEST, SKIPPED = "manifest.csv", "skipped.csv"
COLUMNS = ("image", "label", "split", "mask", "patient_id", *BOX_COLUMNS, *SOURCE_COLUMNS)
PATIENTS_SHOWN = 5
TISSUE_SHARES = (1.0, 0.75, 0.5, 0.25)  # sizes that a square of tissue is tried with

Progress = Callable[[int, int], None]
Record = dict[str, Any]


@dataclass(frozen=True)
class Imported:
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


def render(imported: Imported) -> str:
    """The new dataset in words and a table."""
    splits = [name for name in SPLITS if any(each[name] for each in imported.counts.values())]
    total = sum(sum(each.values()) for each in imported.counts.values())
    width = max(len(label) for label in imported.counts) + 2
    lines = [f"{total} crops from {imported.images} images"]
    lines.append("".ljust(width) + "".join(name.rjust(12) for name in splits))
    for label, counts in imported.counts.items():
        lines.append(label.ljust(width) + "".join(str(counts[name]).rjust(12) for name in splits))
    if imported.skipped:
        lines.append(f"{len(imported.skipped)} items skipped, listed in {SKIPPED}")
        lines += [f"{count:6d}  {reason}" for reason, count in reasons(imported.skipped).items()]
    if imported.films:
        lines.append(f"{FILMS} names {imported.films} full films, for data negatives")
    lines += [f"note: {note}" for note in imported.notes]
    return "\n".join(lines)


def check_folder(source: Path, folder: Path, name: str, options: Options) -> None:
    """Refuse a folder that holds something else than this import, whole or in part."""
    if not source.is_dir():
        raise UserError(f"{source}: no such folder; give the folder of the download")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; give a folder to write to")
    if folder.resolve().is_relative_to(source.resolve()):
        raise UserError(f"{folder}: is inside the download; give a folder outside {source}")
    settings = _settings(name, options)
    path = folder / SETTINGS
    if not path.is_file():
        if folder.is_dir() and any(
            not each.name.startswith(TEMPORARY) for each in folder.iterdir()
        ):
            raise UserError(f"{folder}: is not empty; give another folder")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{path}: is not the file of an import; give another folder") from None
    if before != settings:
        raise UserError(f"{folder}: {_difference(before, settings)}; give another folder")


def _settings(name: str, options: Options) -> dict[str, Any]:
    return {"version": VERSION, "format": name, "options": asdict(options)}


def _difference(before: Any, now: Mapping[str, Any]) -> str:
    """The first thing that an earlier import did otherwise."""
    flat = [
        {**each, **each.get("options", {})} if isinstance(each, dict) else {}
        for each in (before, now)
    ]
    for key, value in flat[1].items():
        if key != "options" and flat[0].get(key) != value:
            return f"was imported with {key} {flat[0].get(key)}, not {value}"
    return "was imported with other options"


def write_dataset(
    found: ImportPlan,
    source: Path,
    folder: Path,
    name: str,
    options: Options,
    workers: int = 1,
    progress: Progress | None = None,
) -> Imported:
    """Make the crops that were found and are not there yet, then the manifest.

    `name` is that of the format. `progress(done, total)` counts images. The number of workers does
    not change a byte.
    """
    check_folder(source, folder, name, options)
    _check_names(found.crops)
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(
        folder / SETTINGS, _json(_settings(name, options))
    )  # first: it makes the folder ours
    for part in ("images", "masks"):
        (folder / part).mkdir(exist_ok=True)
    jobs = _jobs(found.crops, source, folder, options.margin)
    records = _made_before(folder, jobs)
    pending = [job for job in jobs if job.key not in records]
    if pending:
        for table in (MANIFEST, FILMS):  # they may not fit the download meanwhile
            (folder / table).unlink(missing_ok=True)
    _run(pending, workers, records, folder / JOURNAL, progress, len(jobs))
    return _finish(found, source, folder, [records[job.key] for job in jobs])


def _check_names(crops: Sequence[Crop]) -> None:
    names: dict[str, Crop] = {}
    for crop in crops:
        if not crop.name or crop.name.startswith(".") or any(each in crop.name for each in "/\\\0"):
            raise UserError(f"{crop.image}: {crop.name!r} cannot be the name of a file; rename it")
        other = names.setdefault(crop.name.casefold(), crop)  # some file systems ignore case
        if other is not crop:
            raise UserError(
                f"{crop.image}: its crop would be called {crop.name!r}, as one of {other.image}; "
                "rename one of them"
            )
        clash = [column for column in crop.extra if column in (*KNOWN, *SOURCE_COLUMNS)]
        if clash:
            raise UserError(
                f"{crop.image}: column {clash[0]!r} has a meaning of its own; rename it"
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
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _stamp(path: Path, source: Path) -> list[Any]:
    name = Path(os.path.relpath(path, source)).as_posix()
    try:
        status = path.stat()
    except OSError:
        return [name]
    return [name, status.st_size, status.st_mtime_ns]


def _made_before(folder: Path, jobs: Sequence[_Job]) -> dict[str, Record]:
    """The records of the jobs that an earlier call did; files of others are removed."""
    keys = {job.key for job in jobs}
    records: dict[str, Record] = {}
    for record in _read_journal(folder / JOURNAL):
        if record["key"] in keys and _complete(folder, record):
            records[record["key"]] = record
        else:
            for entry in record["crops"]:
                for part in ("images", "masks"):
                    (folder / part / f"{entry['name']}.png").unlink(missing_ok=True)
    write_bytes(folder / JOURNAL, b"".join(_line(record) for record in records.values()))
    return records


def _read_journal(path: Path) -> list[Record]:
    """The whole lines of the journal; a last line that was cut short is nothing."""
    if not path.is_file():
        return []
    records = []
    for line in path.read_bytes().splitlines():
        with suppress(ValueError):
            records.append(json.loads(line))
    return records


def _complete(folder: Path, record: Record) -> bool:
    """Whether all crops of an image are there. What failed is tried again: it may have been mended."""
    for entry in record["crops"]:
        if "skipped" in entry or not (folder / "images" / f"{entry['name']}.png").is_file():
            return False
        if entry["mask"] and not (folder / "masks" / f"{entry['name']}.png").is_file():
            return False
    return True


def _run(
    jobs: Sequence[_Job],
    workers: int,
    records: dict[str, Record],
    journal: Path,
    progress: Progress | None,
    total: int,
) -> None:
    """Do the jobs and note each in the journal and the records as soon as its files are there."""
    if progress is not None and total:
        progress(total - len(jobs), total)
    with journal.open("ab") as file:
        for record in in_processes(_crop_image, jobs, workers):
            file.write(_line(record))
            file.flush()
            records[record["key"]] = record
            if progress is not None:
                progress(len(records), total)


# --- one image ------------------------------------------------------------------------------------


def _crop_image(job: _Job) -> Record:
    """Write the crops of one image and say what became of each."""
    coloured = False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            whole = read_image(job.image)
        except UserError as error:
            reason = f"unreadable image: {_without(error, job.image)}"
            entries = [{"name": crop.name, "skipped": reason} for crop in job.crops]
        else:
            coloured, image = is_coloured(whole), to_grey(whole)
            entries = [_crop_lesion(job, crop, image) for crop in job.crops]
    # Only our own warnings, which begin with the path: others may quote what a header holds.
    texts = [str(each.message) for each in caught]
    said = [_without(text, job.image) for text in texts if text.startswith(f"{job.image}: ")]
    return {"key": job.key, "crops": entries, "said": said, "coloured": coloured}


def _without(message: object, path: Path) -> str:
    return str(message).removeprefix(f"{path}: ")


def _crop_lesion(job: _Job, crop: Crop, image: Array) -> Record:
    try:
        made = _make(crop, image, job.margin)
    except NoCrop as error:
        return {"name": crop.name, "skipped": str(error)}
    write_bytes(job.folder / "images" / f"{crop.name}.png", png_bytes(to_16_bits(made.image)))
    if made.mask is not None:
        mask = made.mask.astype(np.uint8) * np.uint8(255)
        write_bytes(job.folder / "masks" / f"{crop.name}.png", png_bytes(mask))
    return {
        "name": crop.name,
        "mask": made.mask is not None,
        "box": made.box,
        "padded": made.padded,
        "scaled": made.scaled,
        "smaller": made.smaller,
        "region": list((made.region or Region.whole(*image.shape)).box),
    }


@dataclass(frozen=True)
class _Made:
    """A crop (S, S), or whole image (H, W), its mask and its lesion box in pixels of the crop.

    region: where the crop lies in its image; None when it is all of it.
    """

    image: Array
    mask: Mask | None = None
    box: Box | None = None
    padded: bool = False
    scaled: bool = False
    smaller: bool = False
    region: Region | None = None


def _make(crop: Crop, image: Array, margin: float) -> _Made:
    height, width = image.shape
    if crop.tissue is not None:
        return _draw_tissue(crop.tissue, image)
    if crop.annotation is None and crop.box is None:
        return _Made(image)
    mask, scaled = _whole_mask(crop, height, width)
    if crop.whole and mask is not None and not mask.any():
        return _Made(image, None if crop.label == NEGATIVE else mask, scaled=scaled)
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
        return _Made(image, padded=padded, region=region)
    return _Made(image, mask, box, padded, scaled, region=region)


def _lesion_box(crop: Crop, mask: Mask | None, height: int, width: int) -> Box:
    if crop.box is not None:
        return clipped(crop.box, height, width)
    assert mask is not None  # a crop has an annotation, or a box, or it is the whole image
    return extent(mask)


def _whole_mask(crop: Crop, height: int, width: int) -> tuple[Mask | None, bool]:
    """The mask of the full image, and whether it was scaled to it."""
    if crop.annotation is None:
        return None, False
    if not isinstance(crop.annotation, MaskFile):
        return drawn_mask(crop.annotation, height, width), False
    path = crop.annotation.path
    try:
        mask = read_marks(path)
    except UserError as error:
        raise NoCrop(f"unreadable mask: {_without(error, path)}") from None
    return scaled_mask(mask, height, width), mask.shape != (height, width)


def _draw_tissue(tissue: Tissue, image: Array) -> _Made:
    """A square of tissue; where none of its size has room, a smaller one."""
    rng = np.random.default_rng(tissue.seed)
    for share in TISSUE_SHARES:
        side = max(1, min(round(tissue.side * share), *image.shape))
        found = sample_squares(image, [side], 1, [], rng)
        if found:
            region = Region(*found[0])
            window = np.asarray(cut(image, region), np.float32)
            return _Made(window, smaller=side < tissue.side, region=region)
    raise NoCrop(f"no square of tissue: {found.missed[0].reason}")


# --- the folder -----------------------------------------------------------------------------------


def _finish(found: ImportPlan, source: Path, folder: Path, records: Sequence[Record]) -> Imported:
    """Write the tables, the manifest last; the journal in the order of the images."""
    made = {entry["name"]: entry for record in records for entry in record["crops"]}
    kept = [crop for crop in found.crops if "skipped" not in made[crop.name]]
    failed = [
        Skipped(crop.name, made[crop.name]["skipped"])
        for crop in found.crops
        if "skipped" in made[crop.name]
    ]
    not_imported = [*found.skipped, *failed]
    skipped = [*not_imported, *found.films_left_out]
    lines = [("item", "reason"), *((each.item, each.reason) for each in skipped)]
    write_bytes(folder / SKIPPED, _csv(lines))
    write_bytes(folder / JOURNAL, b"".join(_line(record) for record in records))
    remove_partial(folder)
    if not kept:
        for table in (MANIFEST, FILMS):
            (folder / table).unlink(missing_ok=True)
        raise UserError(_nothing(source, folder, not_imported))
    if found.films:
        write_bytes(folder / FILMS, _csv(film_lines(found.films, folder)))
    else:
        (folder / FILMS).unlink(missing_ok=True)
    columns = list(dict.fromkeys([*COLUMNS, *(column for crop in kept for column in crop.extra)]))
    rows = [_row(crop, made[crop.name], columns, folder) for crop in kept]
    write_bytes(folder / MANIFEST, _csv([columns, *rows]))
    counts: dict[str, dict[str, int]] = {}
    for crop in kept:
        splits = counts.setdefault(crop.label, dict.fromkeys(SPLITS, 0))
        splits[crop.split] += 1
    images = len({crop.image for crop in kept})
    notes = [*found.notes, *_notes(kept, made, records)]
    films = len({row.image for row in found.films})
    return Imported(folder / MANIFEST, counts, images, skipped, notes, films)


def _nothing(source: Path, folder: Path, skipped: Sequence[Skipped]) -> str:
    if not skipped:
        return f"{source}: nothing to import was found; is it the right format and folder?"
    kind, count = next(iter(reasons(skipped).items()))
    example = next(each.reason for each in skipped if each.reason.startswith(kind))
    return (
        f"{folder}: nothing could be imported; {len(skipped)} items are in {SKIPPED}, "
        f"{count} of them because: {example}"
    )


def _row(crop: Crop, entry: Record, columns: Sequence[str], folder: Path) -> list[str]:
    box = entry["box"] if entry.get("box") else [""] * 4
    region = entry.get("region") or [""] * 4
    values = {
        **crop.extra,
        "image": f"images/{crop.name}.png",
        "label": crop.label,
        "split": crop.split,
        "mask": f"masks/{crop.name}.png" if entry["mask"] else "",
        "patient_id": crop.patient_id,
        **{
            column: f"{round(edge, 3):g}" if edge != "" else ""
            for column, edge in zip(BOX_COLUMNS, box, strict=True)
        },
        "source_image": path_from(folder, crop.image),
        **{
            column: f"{edge:.0f}" if edge != "" else ""
            for column, edge in zip(SOURCE_COLUMNS[1:], region, strict=True)
        },
    }
    return [values.get(column, "") for column in columns]


def _notes(
    crops: Sequence[Crop], made: Mapping[str, Record], records: Sequence[Record]
) -> Iterator[str]:
    """What the user should know of the crops."""
    padded = sum(made[crop.name]["padded"] for crop in crops)
    scaled = sum(made[crop.name]["scaled"] for crop in crops)
    smaller = sum(made[crop.name]["smaller"] for crop in crops)
    coloured = sum(record["coloured"] for record in records)
    if smaller:
        yield f"{smaller} squares of tissue are smaller than drawn, for want of room in the breast"
    if padded:
        yield f"{padded} crops are larger than their image and black beyond its edge"
    if scaled:
        yield f"{scaled} masks had another size than their image and were scaled to it"
    if coloured:
        yield f"{coloured} colour images were made grey"
    said: dict[str, int] = {}
    for record in records:
        for message in record["said"]:
            said[message] = said.get(message, 0) + 1
    yield from (f"{count} images: {message}" for message, count in said.items())
    splits: dict[str, set[str]] = {}
    for crop in crops:
        if crop.patient_id:
            splits.setdefault(crop.patient_id, set()).add(crop.split)
    shared = [patient for patient, names in splits.items() if len(names) > 1]
    if shared:
        more = f" and {len(shared) - PATIENTS_SHOWN} more" if len(shared) > PATIENTS_SHOWN else ""
        yield (
            f"warning: {len(shared)} patients are in more than one split, a leak: "
            f"{', '.join(shared[:PATIENTS_SHOWN])}{more}"
        )


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def _line(record: Record) -> bytes:
    return (json.dumps(record) + "\n").encode()


def _csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
