"""CDD-CESM as distributed: contrast mammograms with outlines drawn by radiologists.

    SRC/.../Low energy images of CDD-CESM/P1_L_DM_MLO.jpg     what a usual digital mammogram shows
    SRC/.../Subtracted images of CDD-CESM/P1_L_CM_MLO.jpg     left out: contrast agent, not tissue
    SRC/Radiology_hand_drawn_segmentations_v2.csv             regions, exported by the VGG Image Annotator
    SRC/Radiology manual annotations.xlsx                     sheets `all` and `mass_description`

The sheets may also be CSV files whose names begin with "Radiology manual annotations" or
"mass_description". A mass has its margin from `Mass margin` of `mass_description`, where the film is
listed there, else from the text of `Findings`; "$" separates several findings of a film.

No table says which outline belongs to which finding. So a mass is taken where its film has one outline
and one margin; with the option regions "all", every outline of a film whose masses all have the same
margin. A film whose pathology is "Normal", with BI-RADS 1 and without outlines, gives a tissue patch of
the class negative.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from protopyramid.data.annotations import bounds
from protopyramid.data.importers.base import NEGATIVE, Crop, ImportPlan, Options, Skipped, Tissue
from protopyramid.data.importers.full_films import Films
from protopyramid.data.importers.margin_words import margin_label, margins_in
from protopyramid.data.importers.reading import (
    Row,
    Unusable,
    only_file,
    read_rows,
    relative,
    table_rows,
    walk,
)
from protopyramid.data.importers.splits import with_splits
from protopyramid.data.importers.spreadsheets import SUFFIX, read_sheets
from protopyramid.data.importers.via import Region, read_regions
from protopyramid.errors import UserError, printable

SOURCE = "cdd-cesm"
FILM_NAME = re.compile(r"(P\d{1,6})_([LR])_(DM|CM)_(CC|MLO)\d?", re.IGNORECASE)
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
OUTLINES, ANNOTATIONS = "radiology hand drawn segmentations", "radiology manual annotations"
ALL, MASSES = "all", "mass_description"
NAME, FINDINGS, MARGIN, SHAPE = "Image_name", "Findings", "Mass margin", "Mass shape"
BIRADS, DENSITY, PATHOLOGY = "BIRADS", "Breast density (ACR)", "Pathology Classification/ Follow up"
SEPARATOR = "$"  # of the findings of one film
TYPICAL_SIDE = 300.0  # pixels of a lesion, where the download has none to go by
ONLY, SEVERAL = "only region", "one of several regions"


@dataclass(frozen=True)
class _Film:
    """A low-energy image by its file name."""

    path: Path
    name: str
    patient: str
    laterality: str
    view: str


@dataclass(frozen=True)
class _Tables:
    """Rows of the annotation sheets by film, in upper case."""

    films: Mapping[str, Row]
    masses: Mapping[str, Sequence[Row]]
    names: Mapping[str, str]  # of the tables, for messages


def find(source: Path, options: Options) -> ImportPlan:
    """The outlined masses with a margin, and the normal films."""
    files, skipped = walk(source)
    films, subtracted = _films(source, files, skipped)
    outlines = _one(source, files, OUTLINES, (".csv",), "Radiology_hand_drawn_segmentations_v2.csv")
    drawn, malformed = read_regions(outlines)
    skipped += malformed
    regions = _by_film(drawn, films, outlines.name, skipped)
    tables = _tables(source, files, skipped)
    crops: list[Crop] = []
    table = Films()
    for film in films.values():
        found = regions.get(film.name, [])
        try:
            crops += _crops(film, found, tables, options, skipped)
        except Unusable as error:
            skipped.append(Skipped(relative(film.path, source), str(error)))
        _add_film(table, film, found, tables.films.get(film.name))
    crops = _with_tissue(crops, options)
    skipped += [
        Skipped(
            f"{tables.names[ALL]} row {row.line}", f"film is missing: {printable(row[NAME])}.jpg"
        )
        for name, row in tables.films.items()
        if name not in films and "_DM_" in name
    ]
    notes = _notes(subtracted, crops)
    crops, split_notes = with_splits(crops, options)
    splits = {crop.patient_id: crop.split for crop in crops}
    left_out = table.left_out(source)
    return ImportPlan(crops, skipped, notes + split_notes, table.table(splits), left_out)


def _notes(subtracted: int, crops: Sequence[Crop]) -> list[str]:
    notes = []
    if subtracted:
        notes.append(
            f"{subtracted} subtracted image(s) are left out: only low-energy ones are imported"
        )
    lesions = [crop for crop in crops if crop.label != NEGATIVE]
    kinds = {crop.extra["outline"] for crop in lesions}
    if len(kinds) > 1:
        notes.append(
            "the kind of an outline (polygon, ellipse, circle) goes with the margin: never use the column "
            "outline as an input"
        )
    several = sum(crop.extra["region_choice"] == SEVERAL for crop in lesions)
    if several:
        notes.append(
            f"{several} crops are of films with several outlines, some of which may not show the mass"
        )
    return notes


# --- the files ------------------------------------------------------------------------------------


def _films(
    source: Path, files: Iterable[Path], skipped: list[Skipped]
) -> tuple[dict[str, _Film], int]:
    """The low-energy images by name, and the number of subtracted ones."""
    films: dict[str, _Film] = {}
    subtracted = 0
    for path in files:
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            continue
        match = FILM_NAME.fullmatch(path.stem.strip())
        if match is None:
            reason = "not named like a film: P1_L_DM_MLO.jpg is expected"
            skipped.append(Skipped(relative(path, source), reason))
            continue
        name = match[0].upper()
        if match[3].upper() == "CM":
            subtracted += 1
        elif name in films:
            reason = f"duplicate film: also as {relative(films[name].path, source)}"
            skipped.append(Skipped(relative(path, source), reason))
        else:
            side, view = match[2].upper(), match[4].upper()
            films[name] = _Film(path, name, match[1].upper(), side, view)
    if not films:
        raise UserError(
            f"{source}: no low-energy images (P1_L_DM_MLO.jpg and so on) in it; give the folder of CDD-CESM"
        )
    return films, subtracted


def _plain(path: Path) -> str:
    return re.sub(r"[\s_-]+", " ", path.stem).strip().lower()


def _one(
    source: Path, files: Iterable[Path], start: str, suffixes: Sequence[str], example: str
) -> Path:
    """The file whose name begins so; of several, the user is to leave one."""
    found = [
        path for path in files if path.suffix.lower() in suffixes and _plain(path).startswith(start)
    ]
    return only_file(found, source, example, "put it beside the images")


def _by_film(
    drawn: Mapping[str, Sequence[Region]],
    films: Mapping[str, _Film],
    table: str,
    skipped: list[Skipped],
) -> dict[str, list[Region]]:
    """The regions of each film; those of subtracted images are not needed."""
    found: dict[str, list[Region]] = {}
    for file, regions in drawn.items():
        stem = re.sub(r"\.[A-Za-z]+$", "", file).strip()
        match = FILM_NAME.fullmatch(stem)
        if match is None:
            reason = "not named like a film: P1_L_DM_MLO.jpg is expected"
        elif match[3].upper() == "CM":
            continue
        elif stem.upper() not in films:
            reason = "film is missing"
        else:
            found.setdefault(stem.upper(), []).extend(regions)
            continue
        skipped += [
            Skipped(f"{table} row {region.row} ({printable(file)})", reason) for region in regions
        ]
    return found


def _tables(source: Path, files: Sequence[Path], skipped: list[Skipped]) -> _Tables:
    """The sheets, from the workbook or from CSV files."""
    books = [
        path
        for path in files
        if path.suffix.lower() == SUFFIX and _plain(path).startswith(ANNOTATIONS)
    ]
    required = {ALL: (NAME, FINDINGS, BIRADS, PATHOLOGY), MASSES: (NAME, MARGIN)}
    rows: dict[str, list[Row]] = {MASSES: []}
    names: dict[str, str] = {}
    if books:
        book = _one(source, books, ANNOTATIONS, (SUFFIX,), "Radiology manual annotations.xlsx")
        sheets = {name.strip().lower(): records for name, records in read_sheets(book).items()}
        for sheet, columns in required.items():
            if sheet not in sheets:
                raise UserError(f"{book}: no sheet {sheet!r}; sheets found: {', '.join(sheets)}")
            names[sheet] = f"{book.name} {sheet}"
            rows[sheet], malformed = table_rows(book, sheets[sheet], columns, names[sheet])
            skipped += malformed
    else:
        starts = {ALL: ANNOTATIONS, MASSES: _plain(Path(MASSES))}
        for sheet, columns in required.items():
            if sheet == MASSES and not any(
                _plain(path).startswith(starts[sheet]) for path in files
            ):
                continue  # margins then come from the findings
            path = _one(source, files, starts[sheet], (".csv",), f"{starts[sheet]} (.xlsx or .csv)")
            names[sheet] = path.name
            rows[sheet], malformed = read_rows(path, columns)
            skipped += malformed
    films: dict[str, Row] = {}
    for row in rows[ALL]:
        first = films.setdefault(row[NAME].upper(), row)
        if first is not row:
            reason = f"duplicate film: same as row {first.line}"
            skipped.append(Skipped(f"{names[ALL]} row {row.line}", reason))
    masses: dict[str, list[Row]] = {}
    for row in rows[MASSES]:
        masses.setdefault(row[NAME].upper(), []).append(row)
    return _Tables(films, masses, names)


# --- the crops ------------------------------------------------------------------------------------


def _crops(
    film: _Film,
    regions: Sequence[Region],
    tables: _Tables,
    options: Options,
    skipped: list[Skipped],
) -> list[Crop]:
    row = tables.films.get(film.name)
    if row is None:
        raise Unusable("the table does not name this film")
    if not regions:
        if not _is_normal(row):
            raise Unusable("no outline is drawn on the film")
        return [_crop(film, row, NEGATIVE, {"outline": "", "shape": ""}, 0, 0)]
    masses = tables.masses.get(film.name, [])
    label, shape = _margin(row, masses, options)
    if len(regions) > 1 and options.regions == "only":
        raise Unusable(
            f"several outlines: {len(regions)}, and no table says which is of the mass (see --regions)"
        )
    crops = []
    for number, region in enumerate(regions):
        try:
            annotation = region.annotation()
        except Unusable as error:
            if len(regions) == 1:
                raise
            skipped.append(Skipped(f"{film.name} region {number + 1}", str(error)))
            continue
        described = {"outline": region.kind, "shape": shape}
        crop = _crop(film, row, label, described, len(regions), number)
        crops.append(replace(crop, annotation=annotation))
    if not crops:
        raise Unusable("unusable outlines: none of them encloses anything")
    return crops


def _crop(
    film: _Film, row: Row, label: str, extra: Mapping[str, str], regions: int, number: int
) -> Crop:
    choice = "" if not regions else ONLY if regions == 1 else SEVERAL
    return Crop(
        name=film.name if regions <= 1 else f"{film.name}_{number + 1}",
        image=film.path,
        label=label,
        split="",
        patient_id=film.patient,
        extra={
            "source": SOURCE,
            "laterality": film.laterality,
            "view": film.view,
            "pathology": row[PATHOLOGY].upper(),
            "assessment": row[BIRADS].removesuffix(".0"),
            "density": row[DENSITY].strip("_"),
            **extra,
            "region_choice": choice,
            "regions_in_film": str(regions),
        },
    )


def _is_normal(row: Row) -> bool:
    return row[PATHOLOGY].lower() == "normal" and row[BIRADS].removesuffix(".0") == "1"


def _margin(row: Row, masses: Sequence[Row], options: Options) -> tuple[str, str]:
    """The margin of all masses of a film, and their shape; masses that differ cannot be told apart."""
    texts = [part for mass in masses for part in mass[MARGIN].split(SEPARATOR) if part.strip()]
    shapes = {mass[SHAPE] for mass in masses}
    if not masses:
        parts = [part for part in row[FINDINGS].split(SEPARATOR) if part.strip()]
        texts = [part for part in parts if margins_in(part)]
        if not texts:
            raise Unusable("no margin is described")
    if not texts:
        raise Unusable("unknown margin")
    labels = list(dict.fromkeys(margin_label(text, options) for text in texts))
    if len(labels) > 1:
        raise Unusable(f"several masses with different margins: {', '.join(labels)}")
    if len(texts) > 1 and options.regions == "only":
        raise Unusable(f"several masses: {len(texts)} with the margin {labels[0]} (see --regions)")
    return labels[0], shapes.pop() if len(shapes) == 1 else ""


def _with_tissue(crops: Sequence[Crop], options: Options) -> list[Crop]:
    """The crops, those of normal films as tissue patches as large as the crop of a random lesion."""
    boxes = [box for crop in crops if crop.annotation and (box := bounds(crop.annotation))]
    sides = sorted(max(x1 - x0, y1 - y0) for x0, y0, x1, y1 in boxes) or [TYPICAL_SIDE]
    made = []
    for crop in crops:
        if crop.label == NEGATIVE:
            seed = (options.seed, *crop.name.encode())
            side = float(np.random.default_rng(seed).choice(sides)) * (1 + 2 * options.margin)
            crop = replace(crop, tissue=Tissue(max(1, round(side)), seed))
        made.append(crop)
    return made


def _add_film(films: Films, film: _Film, regions: Sequence[Region], row: Row | None) -> None:
    """Add a film with the boxes of all regions, masses or not."""
    if not regions and (row is None or not _is_normal(row)):
        films.refuse(film.path, "nothing is drawn, and it is not said to be normal")
    films.add(film.path, film.patient)
    for region in regions:
        try:
            films.add(film.path, film.patient, box=region.box())
        except Unusable as error:
            films.refuse(film.path, f"region of row {region.row}: {error}")
