"""CMMD with the annotations of TOMPEI-CMMD: digital mammograms, margins and hand-drawn outlines.

    SRC/.../D1-0001/.../1-1.dcm                  the films of a patient (CMMD)
    SRC/.../D1-0001_MLO_R_AnnotationFile.json    outlines on a film (TOMPEI-CMMD): a list of objects with
                                                 cgPoints [{x, y}, ...] and label ("mass", "calc", ...)
    SRC/.../TOMPEI-CMMD_clinical_data_*.xlsx     "Imaging Diagnosis Details Sheet": a row for each breast

Only oblique films are outlined. An outline file names patient, view and side; the film with that view
and side in its DICOM header is the one. Where the table says that left and right were reversed, the film
is skipped, and so is an outline that lies on the black background.

A breast has one margin for its main mass and may have one for an additional mass. No table says which
outline is which: a mass is taken where the film has one outline of a mass and the breast one margin; with
the option regions "all", every mass outline of a breast whose margins are the same. CMMD has no films
that are known to be free of lesions, so there are no negatives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protopyramid.data.annotations import Outline, Polygons, outline_bounds
from protopyramid.data.importers.base import Crop, ImportPlan, Options, Skipped
from protopyramid.data.importers.full_films import Films
from protopyramid.data.importers.margin_words import margin_label
from protopyramid.data.importers.outlines import as_outline
from protopyramid.data.importers.reading import (
    Unusable,
    only_file,
    read_bytes,
    relative,
    short,
    walk,
)
from protopyramid.data.importers.splits import with_splits
from protopyramid.data.importers.spreadsheets import SUFFIX, read_sheets
from protopyramid.data.io.decoding import is_dicom, read_size, read_view
from protopyramid.errors import UserError, printable
from protopyramid.utils.csv_files import Record, read_table
from protopyramid.utils.typed_json import parse_json

SOURCE = "cmmd"
PATIENT = re.compile(r"D[12]-\d{4}")
OUTLINES = re.compile(r"(D[12]-\d{4})_(MLO|CC)_([LR])_AnnotationFile\.json")
SHEET, TABLE = "imaging diagnosis details sheet", "tompei cmmd clinical data"
EXAMPLE = "TOMPEI-CMMD_clinical_data_v01_20250121.xlsx"
MASS = "mass"
MOST_LESIONS = 1000  # of a film
REVERSED = re.compile(
    r"revers\w*\W+(left|right|side)|left\W+(and\W+)?right\W+revers", re.IGNORECASE
)
LEFT_OUT_CLASSES = {
    "exclusion": "excluded by the annotators",
    "invisible": "its lesion is not visible",
}
APPLE = "__MACOSX"  # copies that an archive from a Mac holds beside its files

Key = tuple[str, str]  # patient, side


@dataclass(frozen=True)
class _Breast:
    """A row of the table: the margins of the main and of additional masses, as they are written."""

    line: int
    margins: tuple[str, ...]
    shape: str
    classification: str
    assessment: str
    reversed: bool


@dataclass(frozen=True)
class _OutlineFile:
    """The outlines of one film."""

    path: Path
    patient: str
    view: str
    side: str


def find(source: Path, options: Options) -> ImportPlan:
    """The outlined masses with a margin."""
    files, skipped = walk(source)
    files = [path for path in files if APPLE not in path.parts]
    skipped = [each for each in skipped if APPLE not in each.item]
    outlines = _outline_files(source, files)
    table = _table_path(source, files)
    breasts = _breasts(table, options, skipped)
    folders = _patients(source, files)
    films = Films()
    crops: list[Crop] = []
    for drawn in outlines:
        try:
            film = _film(drawn, folders)
            crops += _crops(drawn, film, breasts, films, options)
        except Unusable as error:
            skipped.append(Skipped(relative(drawn.path, source), str(error)))
    crops, split_notes = with_splits(crops, options)
    notes = [
        "CMMD has no films that are known to be free of lesions; `data negatives` can cut tissue from the "
        "outlined ones",
        "series (D1, D2) and margin go together in CMMD: compare results within a series too",
    ]
    splits = {crop.patient_id: crop.split for crop in crops}
    left_out = films.left_out(source)
    return ImportPlan(crops, skipped, notes + split_notes, films.table(splits), left_out)


# --- the files ------------------------------------------------------------------------------------


def _outline_files(source: Path, files: Sequence[Path]) -> list[_OutlineFile]:
    found = [
        _OutlineFile(path, match[1], match[2], match[3])
        for path in files
        if (match := OUTLINES.fullmatch(path.name))
    ]
    if not found:
        raise UserError(
            f"{source}: no outlines (D1-0001_MLO_R_AnnotationFile.json and so on) in it; unpack those of "
            "TOMPEI-CMMD beside the films of CMMD"
        )
    return found


def _table_path(source: Path, files: Sequence[Path]) -> Path:
    found = [
        path
        for path in files
        if path.suffix.lower() in (SUFFIX, ".csv")
        and re.sub(r"[\s_-]+", " ", path.stem).lower().startswith(TABLE)
    ]
    return only_file(found, source, EXAMPLE, "put the table of TOMPEI-CMMD there")


def _patients(source: Path, files: Sequence[Path]) -> dict[str, list[Path]]:
    """The files below each patient's folder; the folder that is deepest counts."""
    found: dict[str, list[Path]] = {}
    for path in files:
        above = [part for part in path.relative_to(source).parts[:-1] if PATIENT.fullmatch(part)]
        if above and path.suffix.lower() != ".json":
            found.setdefault(above[-1], []).append(path)
    return found


def _film(drawn: _OutlineFile, folders: Mapping[str, Sequence[Path]]) -> Path:
    """The film that an outline file names; two that could be it are not told apart."""
    paths = folders.get(drawn.patient, [])
    if not paths:
        raise Unusable(f"film is missing: no folder {drawn.patient}")
    wanted = (drawn.side, drawn.view)
    found = [path for path in paths if is_dicom(path) and read_view(path) == wanted]
    if not found:
        raise Unusable(
            f"film is missing: no {drawn.view} of side {drawn.side} by the DICOM headers"
        )
    if len(found) > 1:
        names = ", ".join(path.name for path in found[:4])
        raise Unusable(f"several films: {printable(names)} have this view and side")
    return found[0]


# --- the table ------------------------------------------------------------------------------------


def _breasts(path: Path, options: Options, skipped: list[Skipped]) -> dict[Key, _Breast]:
    """The rows of the table by patient and side."""
    records = _records(path)
    first = next((n for n, row in enumerate(records) if _patient_in(row)), None)
    if first is None:
        raise UserError(f"{path}: no row with a patient such as D1-0001; is it the right table?")
    header = [" ".join(parts).strip() for parts in _header(records[:first])]
    patient = _column(path, header, "ID", r"id1?|patient ?id")
    side = _column(path, header, "LeftRight", r"left ?right|laterality|side")
    margins = _margin_columns(path, header, options)
    kind, shape = _optional(header, r"classification"), _optional(header, r".*\bshape")
    birads = _optional(header, r".*\bbi ?rads\b.*")
    found: dict[Key, _Breast] = {}
    for line, fields in records[first:]:
        name, breast = fields[patient].strip(), fields[side].strip().upper()[:1]
        if not PATIENT.fullmatch(name) or breast not in ("L", "R"):
            if name:
                reason = f"no patient and side: {short(name)!r}, {short(fields[side])!r}"
                skipped.append(Skipped(f"{path.name} row {line}", reason))
            continue
        value = _Breast(
            line,
            tuple(text for column in margins if (text := fields[column].strip())),
            _field(fields, shape),
            _field(fields, kind),
            _field(fields, birads),
            any(REVERSED.search(text) for text in fields),
        )
        if found.setdefault((name, breast), value) is not value:
            reason = f"duplicate breast: same as row {found[name, breast].line}"
            skipped.append(Skipped(f"{path.name} row {line}", reason))
    return found


def _field(fields: Sequence[str], column: int | None) -> str:
    return "" if column is None else fields[column].strip()


def _records(path: Path) -> list[Record]:
    if path.suffix.lower() != SUFFIX:
        records = read_table(path, lenient=True)
        width = max(len(row.fields) for row in records)
        return [Record(line, fields + [""] * (width - len(fields))) for line, fields in records]
    sheets = {name.strip().lower(): rows for name, rows in read_sheets(path).items()}
    if SHEET not in sheets:
        raise UserError(f"{path}: no sheet {SHEET!r}; sheets found: {', '.join(sheets)}")
    return sheets[SHEET]


def _patient_in(row: Record) -> bool:
    return any(PATIENT.fullmatch(value.strip()) for value in row.fields[:3])


def _header(records: Sequence[Record]) -> list[list[str]]:
    """The header cells above each column, the upper first."""
    width = len(records[0].fields) if records else 0
    return [[row.fields[column].strip() for row in records] for column in range(width)]


def _plain(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text).strip().lower()


def _column(path: Path, header: Sequence[str], what: str, pattern: str) -> int:
    found = _optional(header, pattern)
    if found is None:
        names = ", ".join(name for name in header[:20] if name)
        raise UserError(f"{path}: no column {what}; columns found: {printable(names)}")
    return found


def _optional(header: Sequence[str], pattern: str) -> int | None:
    return next((n for n, name in enumerate(header) if re.fullmatch(pattern, _plain(name))), None)


def _margin_columns(path: Path, header: Sequence[str], options: Options) -> list[int]:
    """The columns of mass margins: of the main mass first, then of additional ones."""
    wanted = options.margin_column.strip()
    if wanted:
        named = [n for n, name in enumerate(header) if _plain(name) == _plain(wanted)]
        number = _by_letters(wanted)
        if not named and not 0 <= number < len(header):
            raise UserError(
                f"{path}: no column {short(wanted)!r}; give --margin-column a letter or a name"
            )
        return named[:1] or [number]
    found = [n for n, name in enumerate(header) if re.search(r"\bmargins?\b", _plain(name))]
    if not found:
        names = ", ".join(name for name in header if name)
        raise UserError(
            f"{path}: no column of mass margins; name it with --margin-column (a letter or a name). "
            f"Columns found: {short(names)}"
        )
    return found


def _by_letters(text: str) -> int:
    if not re.fullmatch(r"[A-Za-z]{1,3}", text):
        return -1
    number = 0
    for letter in text.upper():
        number = 26 * number + ord(letter) - 64
    return number - 1


# --- the crops ------------------------------------------------------------------------------------


def _crops(
    drawn: _OutlineFile,
    film: Path,
    breasts: Mapping[Key, _Breast],
    films: Films,
    options: Options,
) -> list[Crop]:
    films.add(film, drawn.patient)
    try:
        lesions = _lesions(drawn.path, film)
    except Unusable as error:
        films.refuse(film, str(error))
        raise
    for _, outline in lesions:
        films.add(film, drawn.patient, box=outline_bounds([outline]))
    if not lesions:
        films.refuse(film, "nothing is drawn on it")
        raise Unusable("no lesion is drawn on the film")
    breast = breasts.get((drawn.patient, drawn.side))
    if breast is None:
        raise Unusable(f"the table has no row for {drawn.patient}, side {drawn.side}")
    if breast.reversed:
        films.refuse(film, "left and right are said to be reversed")
        raise Unusable("left and right are said to be reversed")
    reason = LEFT_OUT_CLASSES.get(breast.classification.lower())
    if reason:
        raise Unusable(reason)
    masses = [outline for label, outline in lesions if label == MASS]
    if not masses:
        kinds = ", ".join(dict.fromkeys(label or "unnamed" for label, _ in lesions))
        raise Unusable(f"not a mass, but {printable(kinds)}")
    label = _margin(breast, masses, options)
    return [_crop(drawn, film, breast, label, masses, number) for number in range(len(masses))]


def _margin(breast: _Breast, masses: Sequence[Outline], options: Options) -> str:
    if not breast.margins:
        raise Unusable("unknown margin")
    labels = list(dict.fromkeys(margin_label(text, options) for text in breast.margins))
    if len(labels) > 1:
        raise Unusable(f"several masses with different margins: {', '.join(labels)}")
    if options.regions == "only" and (len(masses) > 1 or len(breast.margins) > 1):
        raise Unusable(
            f"several masses: {len(masses)} outline(s) and {len(breast.margins)} margin(s), and no table "
            "says which is which (see --regions)"
        )
    return labels[0]


def _crop(
    drawn: _OutlineFile,
    film: Path,
    breast: _Breast,
    label: str,
    masses: Sequence[Outline],
    number: int,
) -> Crop:
    return Crop(
        name=f"{drawn.patient}_{drawn.view}_{drawn.side}_{number + 1}",
        image=film,
        label=label,
        split="",
        patient_id=drawn.patient,
        annotation=Polygons((masses[number],)),
        extra={
            "source": SOURCE,
            "series": drawn.patient[:2],
            "laterality": drawn.side,
            "view": drawn.view,
            "pathology": breast.classification.upper(),
            "assessment": breast.assessment.removesuffix(".0"),
            "shape": breast.shape if len(masses) == 1 else "",
            "region_choice": "only region" if len(masses) == 1 else "one of several regions",
            "regions_in_film": str(len(masses)),
        },
        on_tissue=True,
    )


def _lesions(path: Path, film: Path) -> list[tuple[str, Outline]]:
    """Labels in lower case and outlines of a file; one that cannot be used spoils all of them."""
    try:
        content = parse_json(read_bytes(path).decode("utf-8-sig"))
    except ValueError as error:
        raise Unusable(f"not JSON: {printable(str(error).partition(':')[0])}") from None
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise Unusable("not a list of outlines")
    if len(content) > MOST_LESIONS:
        raise Unusable(f"too many outlines: {len(content)}, the limit is {MOST_LESIONS}")
    size = read_size(film)
    shape = None if size is None else (float(size[1]), float(size[0]))
    return [
        (short(each.get("label", "")).strip().lower(), as_outline(_points(each), shape))
        for each in content
    ]


def _points(lesion: Mapping[str, Any]) -> list[tuple[object, object]]:
    points = lesion.get("cgPoints")
    if not isinstance(points, list) or not all(isinstance(each, dict) for each in points):
        raise Unusable("unusable outline: cgPoints is not a list of points")
    return [(each.get("x"), each.get("y")) for each in points]
