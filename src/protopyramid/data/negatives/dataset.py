"""The negative class: squares of tissue without lesions, cut from full mammograms.

The paper: "5,000 image-mask pairs ... sampling the full-size mammogram images and cropping to a section
without any of the lesion region of interest". Ours: squares as large as the lesion crops are, evenly
spread over patients and films, each at least nine tenths tissue. Negatives have no annotation, so that
their mask column is empty, which training takes as the paper's fully negative mask.

    images/negative-NNNNN.png (16-bit grey)  manifest.csv  skipped.csv  negatives.json (the settings)
    combined.csv (the lesions and the negatives, when a manifest of lesions is given)

Each square has a number, which decides its file; a film's squares depend on the seed and the film's
name alone. So the number of processes changes nothing. Squares that find no place on their film are
tried on others. negatives.jsonl holds what was done of each film: a command that was stopped goes on
where it was when it is given again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from protopyramid.data.io.decoding import read_image
from protopyramid.data.manifest import SPLITS, Manifest
from protopyramid.data.negatives.patches import Limits, Sampled, sample_squares
from protopyramid.data.negatives.sampling import (
    Progress,
    Record,
    Work,
    allot,
    crop_path,
    line,
    read_journal,
)
from protopyramid.data.negatives.sources import Film
from protopyramid.data.negatives.tissue import tissue_mask
from protopyramid.errors import UserError
from protopyramid.utils.files import remove_partial, write_bytes

__all__ = [
    "Limits",
    "Negatives",
    "Sampled",
    "allot",
    "lesion_sides",
    "match_sides",
    "render",
    "sample_squares",
    "tissue_mask",
    "with_splits",
    "write_negatives",
]

LABEL = "negative"
COUNT = 5000  # in the paper
CROP_MARGIN = 0.5  # around a lesion box, as a share of its longer side: what `data import` crops
TEST_SHARE = 0.2  # of patients whose split nothing tells
SETTINGS, JOURNAL = "negatives.json", "negatives.jsonl"
MANIFEST, COMBINED, SKIPPED = "manifest.csv", "combined.csv", "skipped.csv"
COLUMNS = ("image", "label", "split", "mask", "patient_id", "film")
FILM_COLUMNS = ("film_x0", "film_y0", "film_x1", "film_y1")
# Streams of random numbers that must not be the same.
_SIDES, _SPLITS = 1, 3  # those of dealing.py are others


@dataclass(frozen=True)
class Negatives:
    """What was written, and what could not be had: films or squares, and why."""

    manifest: Path
    combined: Path | None
    asked: int
    counts: Mapping[str, int]  # split -> squares
    films: int
    patients: int
    skipped: Sequence[tuple[str, int, str]]  # film, squares, reason
    notes: Sequence[str] = field(default_factory=list)

    @property
    def written(self) -> int:
        """The number of squares."""
        return sum(self.counts.values())


def render(made: Negatives) -> str:
    """The summary in plain lines."""
    splits = ", ".join(f"{count} {split}" for split, count in made.counts.items() if count)
    lines = [
        f"{made.written} negatives ({splits}) from {made.films} films of {made.patients} patients"
    ]
    if made.written < made.asked:
        lines.append(f"{made.asked - made.written} of {made.asked} could not be had")
    reasons: dict[str, int] = {}
    for _, _, reason in made.skipped:
        reason = reason.split(": ")[0].split(" as ")[0]
        reasons[reason] = reasons.get(reason, 0) + 1
    lines += [f"  {count} film(s): {reason}" for reason, count in reasons.items()]
    if reasons:
        lines.append(f"  each is named in {made.manifest.parent / SKIPPED}")
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
        raise UserError(f"{where} to take the sizes from; give a manifest of crops with --lesions")
    return sides


def _size(path: Path) -> tuple[int, int]:
    """Width and height of an image, from its header where that can be had."""
    with suppress(Exception), Image.open(path) as image:
        return image.size
    height, width = read_image(path).shape[:2]
    return width, height


def match_sides(known: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
    """`count` sides, in random order, whose distribution is that of the known ones.

    One side is drawn from each of `count` equal parts of the sorted known ones, so that every
    quantile fits, and small and large squares are not a matter of luck.
    """
    places = (np.arange(count) + rng.random(count)) / count * len(known)
    chosen = np.sort(np.asarray(known))[np.minimum(places.astype(int), len(known) - 1)]
    return [int(side) for side in rng.permutation(chosen)]


def with_splits(films: Sequence[Film], lesions: Manifest | None, seed: int) -> list[str]:
    """The split of every film: that of its patient among the lesions, or in the table, or drawn.

    Patients whose split nothing tells are put into the splits in the proportions of the lesions'
    patients (without them, one fifth into test).
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
                f"patient {patient!r} is in splits {known[patient]} and {split}, counting the "
                "lesions and the films together; keep a patient in one split"
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
    """Cut `count` squares of tissue from the films and write their manifest.

    The number of workers does not change a byte. `progress(done, total)` counts films.
    """
    limits = limits or Limits()
    known = lesion_sides(lesions, films)
    splits = with_splits(films, lesions, seed)
    sides = match_sides(known, count, np.random.default_rng([_SIDES, seed]))
    settings = {"count": count, "seed": seed, **asdict(limits)}
    settings["inputs"] = _digest([sides, [_told(film) for film in films], splits])
    _open(folder, settings)
    work = Work(
        films, sides, folder, seed, limits, read_journal(folder / JOURNAL), workers, progress
    )
    with (folder / JOURNAL).open("ab") as journal:
        work.run(journal)
    notes = [*_notes(films, lesions, known), *_said(work.records)]
    return _finish(work, splits, lesions, notes)


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _told(film: Film) -> list[object]:
    return [film.name, film.patient_id, film.boxes, [mask.name for mask in film.masks]]


def _open(folder: Path, settings: Mapping[str, object]) -> None:
    """Begin in a new folder, or go on in one that was begun with the same settings."""
    path = folder / SETTINGS
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file; give a folder to write to")
    if path.is_file():
        before: Any = None
        with suppress(ValueError):
            before = json.loads(path.read_text(encoding="utf-8"))
        before = before if isinstance(before, dict) else {}
        for key, value in settings.items():
            if before.get(key) != value:
                what = "other films or lesions" if key == "inputs" else f"{key} {before.get(key)}"
                raise UserError(f"{folder}: was begun with {what}; give another folder")
    elif folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{folder}: is not empty; give another folder")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    write_bytes(path, (json.dumps(settings, indent=2) + "\n").encode())


# --- the tables -----------------------------------------------------------------------------------


def _notes(films: Sequence[Film], lesions: Manifest | None, known: Sequence[int]) -> list[str]:
    notes = []
    free = sum(not (film.boxes or film.masks) for film in films)
    if free:
        notes.append(
            f"{free} of {len(films)} films are said to show no lesion, and none is avoided"
        )
    if len(known) > 1 and len(set(known)) == 1:
        notes.append(
            f"all lesion crops are {known[0]} pixels long, and so are the negatives; if the crops "
            "were resized, the negatives show tissue at another scale"
        )
    if lesions is not None:
        ids = {each.patient_id for each in lesions.samples}
        if not ids & {film.patient_id for film in films}:
            notes.append(
                "no patient of the films is among the lesions; if some are the same person, their "
                "ids must be equal (--patient takes them from the names of films)"
            )
    return notes


def _said(records: Sequence[Record]) -> list[str]:
    """What reading the films warned of, each warning once."""
    films: dict[str, set[str]] = {}
    for record in records:
        for message in record["said"]:
            films.setdefault(message, set()).add(record["film"])
    return [
        f"{len(names)} film(s), {min(names)} among them: {text}" for text, names in films.items()
    ]


def _finish(
    work: Work, splits: Sequence[str], lesions: Manifest | None, notes: list[str]
) -> Negatives:
    """Write the tables, the manifest last."""
    rows, counts = [], dict.fromkeys(SPLITS, 0)
    for number, (film, square) in sorted(work.placed.items()):
        row = dict.fromkeys(COLUMNS, "")
        row |= {"image": crop_path(Path(), number).as_posix(), "label": LABEL}
        row |= {"split": splits[film], "patient_id": work.films[film].patient_id}
        row |= {"film": work.films[film].name}
        rows.append(row | dict(zip(FILM_COLUMNS, map(str, square), strict=True)))
        counts[splits[film]] += 1
    skipped = _skipped(work)
    table = [("film", "squares", "reason"), *skipped]
    write_bytes(work.folder / SKIPPED, _csv(table))
    if not rows:
        raise UserError(f"{work.folder}: no square could be cut; {SKIPPED} in it says why")
    combined = None
    if lesions is not None:
        combined = work.folder / COMBINED
        write_bytes(combined, _csv(_combined(lesions, rows, work.folder)))
    columns = [*COLUMNS, *FILM_COLUMNS]
    write_bytes(
        work.folder / MANIFEST, _csv([columns, *([row[c] for c in columns] for row in rows)])
    )
    write_bytes(work.folder / JOURNAL, b"".join(map(line, work.records)))
    remove_partial(work.folder)
    used = {film for film, _ in work.placed.values()}
    patients = len({work.films[film].patient_id for film in used})
    shown = [(film, int(squares), reason) for film, squares, reason in skipped]
    return Negatives(
        work.folder / MANIFEST, combined, len(work.sides), counts, len(used), patients, shown, notes
    )


def _skipped(work: Work) -> list[tuple[str, str, str]]:
    """Films that give nothing, and those on which squares found no place: name, squares, why."""
    rows = []
    for film, each in enumerate(work.films):
        if film in work.refused:
            rows.append((each.name, "0", work.refused[film]))
        elif film in work.full:
            for reason in dict.fromkeys(work.full[film]):
                rows.append((each.name, str(work.full[film].count(reason)), reason))
    return rows


def _combined(
    lesions: Manifest, negatives: Sequence[Mapping[str, str]], folder: Path
) -> list[list[str]]:
    """The rows of the lesions, their paths made relative to the new folder, then the negatives."""
    with lesions.path.open(encoding="utf-8-sig", newline="") as file:
        table = [row for row in csv.reader(file) if any(value.strip() for value in row)]
    columns = [name.strip() for name in table[0]]
    new = [name for name in (*COLUMNS, *FILM_COLUMNS) if name not in columns]
    rows = [[*columns, *new]]
    for fields in table[1:]:
        row = dict(zip(columns, fields, strict=True))
        for column in ("image", "mask"):
            name = row.get(column, "").strip().replace("\\", "/")
            if name:
                moved = os.path.relpath(lesions.path.parent / name, folder)
                row[column] = Path(moved).as_posix()
        rows.append([row.get(column, "") for column in rows[0]])
    return rows + [[row.get(column, "") for column in rows[0]] for row in negatives]


def _csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()
