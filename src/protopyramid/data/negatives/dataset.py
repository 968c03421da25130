"""The negative class: patches of tissue without lesions, sampled from full mammograms.

The paper: "5,000 image-mask pairs ... sampling the full-size mammogram images and cropping to a section
without any of the lesion region of interest". Ours: square patches as large as the lesion crops, evenly
spread over patients and films, each at least nine tenths tissue. Negatives have no annotation, so that
their mask column is empty, which training takes as the paper's fully negative mask.

    images/negative-NNNNN.png (16-bit grey)  manifest.csv  skipped.csv  negatives.json (the settings)
    combined.csv (the lesions and the negatives, when a manifest of lesions is given)

Each patch has a number, which decides its file; a film's patches depend on the seed and the film's
name alone. So the number of processes changes nothing. Patches that find no place on their film are
tried on others. negatives.jsonl is the journal: a command that was stopped continues where it left off when
it is called again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from protopyramid.data.io.decoding import read_image, read_size
from protopyramid.data.manifest import SOURCE, SPLITS, Manifest
from protopyramid.data.negatives.patches import Limits as Limits
from protopyramid.data.negatives.sampling import FilmRecord, PatchSampler, Progress, patch_path
from protopyramid.data.negatives.sources import Film
from protopyramid.errors import UserError
from protopyramid.utils.csv_files import read_table
from protopyramid.utils.files import (
    check_output_folder,
    holds_anything,
    make_part,
    remove_partial,
    write_json,
    write_text,
)
from protopyramid.utils.journal import Journal
from protopyramid.utils.locks import claimed
from protopyramid.utils.opening import is_file
from protopyramid.utils.tables import csv_text
from protopyramid.utils.typed_json import read_json

LABEL = "negative"
COUNT = 5000  # in the paper
CROP_MARGIN = 0.5  # around a lesion box, as a share of its longer side: what `data import` crops
TEST_SHARE = 0.2  # of patients whose split is not given
SETTINGS, JOURNAL = "negatives.json", "negatives.jsonl"
MANIFEST, COMBINED, SKIPPED = "manifest.csv", "combined.csv", "skipped.csv"
COLUMNS = ("image", "label", "split", "mask", "patient_id", "film")
FILM_COLUMNS = ("film_x0", "film_y0", "film_x1", "film_y1")
SKIPPED_COLUMNS = ("film", "squares", "reason")
# Streams of random numbers that must differ, also from those of sampling.py.
_SIDES, _SPLITS = 1, 3


@dataclass(frozen=True)
class Negatives:
    """What was written, and what is missing: films or patches, and why."""

    manifest: Path
    combined: Path | None
    asked: int
    counts: Mapping[str, int]  # split -> patches
    films: int
    patients: int
    skipped: Sequence[tuple[str, int, str]]  # film, patches, reason
    notes: Sequence[str] = field(default_factory=list)

    @property
    def written(self) -> int:
        """The number of patches."""
        return sum(self.counts.values())


def render(made: Negatives) -> str:
    """The summary in plain lines."""
    splits = ", ".join(f"{count} {split}" for split, count in made.counts.items() if count)
    lines = [
        f"{made.written} negatives ({splits}) from {made.films} films of {made.patients} patients"
    ]
    if made.written < made.asked:
        lines.append(f"{made.asked - made.written} of {made.asked} could not be sampled")
    reasons: dict[str, int] = {}
    for _, _, reason in made.skipped:
        reason = reason.split(": ")[0].split(" as ")[0]
        reasons[reason] = reasons.get(reason, 0) + 1
    lines += [f"  {count} film(s): {reason}" for reason, count in reasons.items()]
    if reasons:
        lines.append(f"  all are listed in {made.manifest.parent / SKIPPED}")
    return "\n".join([*lines, *(f"note: {note}" for note in made.notes)])


# --- how many, how large, where -------------------------------------------------------------------


def lesion_sides(lesions: Manifest | None, films: Sequence[Film]) -> list[int]:
    """The longer sides of the lesion crops of a manifest; without one, of crops around the boxes."""
    if lesions is not None:
        sides = [max(_size(each.image)) for each in lesions.samples if each.label != LABEL]
        where = f"{lesions.path}: has no lesions"
    else:
        boxes = [box for film in films for box in film.boxes]
        longer = [max(x1 - x0, y1 - y0) for x0, y0, x1, y1 in boxes]
        sides = [max(1, round(each * (1 + 2 * CROP_MARGIN))) for each in longer]
        where = "the films have no lesion boxes"
    if not sides:
        raise UserError(f"{where} to take sizes from; give a manifest of crops with --lesions")
    return sides


def _size(path: Path) -> tuple[int, int]:
    """Width and height of an image, from its header where possible."""
    height, width = read_size(path) or read_image(path).shape[:2]
    return width, height


def match_sides(known: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
    """`count` sides, in random order, whose distribution is that of the known ones.

    One side is drawn from each of `count` equal parts of the sorted known ones, so that every
    quantile fits, and small and large patches are not a matter of luck.
    """
    places = (np.arange(count) + rng.random(count)) / count * len(known)
    chosen = np.sort(np.asarray(known))[np.minimum(places.astype(int), len(known) - 1)]
    return [int(side) for side in rng.permutation(chosen)]


def with_splits(films: Sequence[Film], lesions: Manifest | None, seed: int) -> list[str]:
    """The split of every film: that of its patient among the lesions, or in the table, or drawn.

    Patients without a known split are assigned to the splits in the proportions of the lesions'
    patients (without lesions, one fifth to test).
    """
    known = _known_splits(films, lesions)
    unknown = sorted({film.patient_id for film in films} - known.keys())
    shares = _shares(lesions)
    order = np.random.default_rng([_SPLITS, seed]).permutation(len(unknown))
    ends = np.rint(np.cumsum(shares) / sum(shares) * len(unknown)).astype(int)
    for rank, number in enumerate(order):
        known[unknown[number]] = SPLITS[int(np.searchsorted(ends, rank, side="right"))]
    return [known[film.patient_id] for film in films]


def _known_splits(films: Sequence[Film], lesions: Manifest | None) -> dict[str, str]:
    known: dict[str, str] = {}
    given = [] if lesions is None else [(each.patient_id, each.split) for each in lesions.samples]
    for patient, split in [*given, *((film.patient_id, film.split) for film in films)]:
        if not (patient and split):
            continue
        if known.setdefault(patient, split) != split:
            raise UserError(
                f"patient {patient!r} is in splits {known[patient]} and {split} of the lesions and "
                "films together; keep each patient in one split"
            )
    return known


def _shares(lesions: Manifest | None) -> list[float]:
    if lesions is None:
        return [1 - TEST_SHARE, 0, TEST_SHARE]
    patients = {each.patient: each.split for each in lesions.samples}
    return [float(list(patients.values()).count(split)) for split in SPLITS]


# --- the folder -----------------------------------------------------------------------------------


def write_negatives(
    films: Sequence[Film],
    folder: Path,
    lesions: Manifest | None = None,
    count: int = COUNT,
    seed: int = 0,
    limits: Limits | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> Negatives:
    """Sample `count` patches of tissue from the films and write their manifest.

    The number of workers does not change a byte. `progress(done, total)` counts films.
    """
    limits = limits or Limits()
    known = lesion_sides(lesions, films)
    splits = with_splits(films, lesions, seed)
    sides = match_sides(known, count, np.random.default_rng([_SIDES, seed]))
    settings = {"count": count, "seed": seed, **asdict(limits)}
    settings["inputs"] = _digest([sides, [_facts(film) for film in films], splits])
    check_output_folder(folder)
    with claimed(folder):
        _open(folder, settings)
        sampler = PatchSampler(films, sides, folder, seed, limits, workers, progress)
        sampler.run(Journal(folder / JOURNAL, FilmRecord))
        notes = [*_notes(films, lesions, known), *_reading_notes(sampler.records)]
        return _finish(sampler, splits, lesions, notes)


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _facts(film: Film) -> list[object]:
    return [film.name, film.patient_id, film.boxes, [mask.name for mask in film.masks]]


def _open(folder: Path, settings: Mapping[str, object]) -> None:
    """Start in a new folder, or continue in one that was started with the same settings."""
    path = folder / SETTINGS
    if is_file(path):
        before: Any = None
        with suppress(OSError, ValueError):
            before = read_json(path)
        before = before if isinstance(before, dict) else {}
        for key, value in settings.items():
            if before.get(key) != value:
                what = "other films or lesions" if key == "inputs" else f"{key} {before.get(key)}"
                raise UserError(f"{folder}: was started with {what}; give another folder")
    elif holds_anything(folder):
        raise UserError(f"{folder}: is not empty; give another folder")
    write_json(path, settings)  # first: it makes the folder ours
    make_part(folder, "images")


# --- the tables -----------------------------------------------------------------------------------


def _notes(films: Sequence[Film], lesions: Manifest | None, known: Sequence[int]) -> list[str]:
    notes = []
    free = sum(not (film.boxes or film.masks) for film in films)
    if free:
        notes.append(
            f"{free} of {len(films)} films are listed without a lesion, so none is avoided there"
        )
    if len(known) > 1 and len(set(known)) == 1:
        notes.append(
            f"all lesion crops are {known[0]} pixels wide, and so are the negatives; if the crops "
            "were resized, the negatives show tissue at another scale"
        )
    if lesions is not None:
        ids = {each.patient_id for each in lesions.samples}
        if not ids & {film.patient_id for film in films}:
            notes.append(
                "no patient of the films is among the lesions; if some are the same person, give them "
                "the same id (--patient takes it from the names of films)"
            )
    return notes


def _reading_notes(records: Sequence[FilmRecord]) -> list[str]:
    """What reading the films warned of, each warning once."""
    films: dict[str, set[str]] = {}
    for record in records:
        for message in record.warnings:
            films.setdefault(message, set()).add(record.film)
    return [f"{len(names)} film(s), e.g. {min(names)}: {text}" for text, names in films.items()]


def _finish(
    sampler: PatchSampler, splits: Sequence[str], lesions: Manifest | None, notes: list[str]
) -> Negatives:
    """Write the tables, the manifest last."""
    folder, films = sampler.folder, sampler.films
    rows, counts = [], dict.fromkeys(SPLITS, 0)
    for number, (film, patch) in sorted(sampler.placed.items()):
        row = dict.fromkeys(COLUMNS, "")
        row |= {"image": patch_path(Path(), number).as_posix(), "label": LABEL}
        row |= {"split": splits[film], "patient_id": films[film].patient_id}
        row |= {"film": films[film].name}
        rows.append(row | dict(zip(FILM_COLUMNS, map(str, patch), strict=True)))
        counts[splits[film]] += 1
    skipped = _skipped(sampler)
    write_text(folder / SKIPPED, csv_text(SKIPPED_COLUMNS, skipped))
    remove_partial(folder)
    if not rows:
        raise UserError(f"{folder}: no patch could be sampled; its {SKIPPED} says why")
    combined = None
    if lesions is not None:
        combined = write_text(folder / COMBINED, _combined(lesions, rows, folder))
    columns = [*COLUMNS, *FILM_COLUMNS]
    table = csv_text(columns, ([row[column] for column in columns] for row in rows))
    manifest = write_text(folder / MANIFEST, table)
    used = {film for film, _ in sampler.placed.values()}
    patients = len({films[film].patient_id for film in used})
    return Negatives(
        manifest, combined, len(sampler.sides), counts, len(used), patients, skipped, notes
    )


def _skipped(sampler: PatchSampler) -> list[tuple[str, int, str]]:
    """Films that give nothing, and those on which patches found no place: name, patches, why."""
    rows = []
    for film, each in enumerate(sampler.films):
        if film in sampler.refused:
            rows.append((each.name, 0, sampler.refused[film]))
        elif film in sampler.full:
            for reason, count in Counter(sampler.full[film]).items():
                rows.append((each.name, count, reason))
    return rows


def _combined(lesions: Manifest, negatives: Sequence[Mapping[str, str]], folder: Path) -> str:
    """The rows of the lesions, their paths made relative to the new folder, then the negatives."""
    header, *records = read_table(lesions.path, "manifest")
    columns = [name.strip() for name in header.fields]
    all_columns = [
        *columns,
        *(name for name in (*COLUMNS, *FILM_COLUMNS) if name not in columns),
    ]
    rows = []
    for record in records:
        row = dict(zip(columns, record.fields, strict=True))
        for column in ("image", "mask"):
            name = row.get(column, "").strip().replace("\\", "/")
            if name:
                moved = os.path.relpath(lesions.path.parent / name, folder)
                row[column] = Path(moved).as_posix()
        rows.append(row)
    if SOURCE in columns:  # that of the patient's lesions; of other patients it is not known
        sources = {each.patient_id: each.source for each in lesions.samples if each.patient_id}
        negatives = [{**row, SOURCE: sources.get(row["patient_id"], "")} for row in negatives]
    return csv_text(
        all_columns,
        ([row.get(column, "") for column in all_columns] for row in (*rows, *negatives)),
    )
