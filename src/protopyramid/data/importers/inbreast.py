"""INbreast as distributed: 410 films, with the contours of their lesions.

    SRC/AllDICOMs/<film>_<patient>_MG_<L|R>_<CC|ML>_ANON.dcm
    SRC/AllXML/<film>.xml          contours drawn in OsiriX, a property list
    SRC/INbreast.csv               BI-RADS and density of the films; optional

SRC may also be the folder above. INbreast has no margin labels. It has
contours of "spiculated regions", though: a mass that overlaps one of them gets the label
"spiculated", any other mass the label "mass", which says nothing about its margin. The annotation of a
spiculated mass is its contour together with that of the spiculated region, since the spicules are
what the label is about. Patients are the codes in the file names.

films.csv has the boxes of all contours and points. A film without any is taken to show no lesion,
unless the table gives it a BI-RADS category other than 1.
"""

from __future__ import annotations

import plistlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from protopyramid.data.annotations import Outline, Polygons, outline_bounds
from protopyramid.data.importers.base import Crop, ImportPlan, Options, Skipped
from protopyramid.data.importers.full_films import Films
from protopyramid.data.importers.outlines import (
    as_outline,
    coordinate,
    overlap,
)
from protopyramid.data.importers.reading import (
    Row,
    Unusable,
    read_bytes,
    read_rows,
    relative,
    walk,
)
from protopyramid.data.importers.splits import with_splits
from protopyramid.data.manifest import Box
from protopyramid.errors import UserError, printable
from protopyramid.utils.opening import is_file, is_folder

FILMS, CONTOURS, TABLE = "AllDICOMs", "AllXML", "INbreast.csv"
FILM_NAME = re.compile(r"(\d+)_([0-9a-z]+)_MG_([LR])_([A-Z]+)_ANON\.dcm", re.IGNORECASE)
COLUMNS = ("File Name", "ACR", "Bi-Rads")
# The names are typed by hand: "Espiculated Region" and "Spiculated region" occur too.
MASS, SPICULATED = re.compile(r"mass(es)?( \d+)?"), re.compile(r"e?spiculated region")
NO_MARGINS = (
    "INbreast has no margin labels: a mass that overlaps a spiculated region is labelled "
    '"spiculated", any other "mass", which says nothing about its margin'
)


@dataclass(frozen=True)
class Film:
    """A film by its file name. INbreast calls the oblique view ML in names, MLO in its table."""

    path: Path
    number: str
    patient: str
    laterality: str
    view: str


@dataclass(frozen=True)
class Region:
    """One contour: its place in the file (from 1), its name and its points as text."""

    place: int
    name: str
    points: Sequence[object]

    @property
    def kind(self) -> str:
        """The name without case and outer spaces."""
        return self.name.strip().lower()

    def outline(self) -> Outline:
        """The contour. The film's size is not known here: only what is left of it is refused."""
        return as_outline(self._pairs(), None)

    def box(self) -> Box:
        """The box around the points; one alone marks a small calcification."""
        points = [(coordinate(x), coordinate(y)) for x, y in self._pairs()]
        if not points:
            raise Unusable("unusable outline: it has no points")
        return outline_bounds([tuple(points)])

    def _pairs(self) -> list[tuple[str, str]]:
        return [_coordinates(str(point).strip()) for point in self.points]


def _coordinates(point: str) -> tuple[str, str]:
    x, comma, y = point[1:-1].partition(",")
    x, y = x.strip(), y.strip()
    if not (point.startswith("(") and point.endswith(")") and comma and x and y):
        raise Unusable("unusable outline: a point is not of the form (x, y)")
    return x, y


def find(source: Path, options: Options) -> ImportPlan:
    """The masses of INbreast, from contours; films without a mass are left out."""
    root = _root(source)
    films, skipped = _films(source, root)
    rows, table_notes = _table(root, films, skipped)
    crops: list[Crop] = []
    all_films = Films()
    bare = 0
    for film in films:
        path = root / CONTOURS / f"{film.number}.xml"
        name = relative(film.path, source)
        if not is_file(path):
            bare += 1
            skipped.append(Skipped(name, "no lesion is drawn on the film"))
            _add_film(all_films, film, [], rows.get(film.number))
            continue
        try:
            regions = read_regions(path)
        except Unusable as error:
            skipped.append(Skipped(relative(path, source), str(error)))
            all_films.refuse(film.path, f"{relative(path, source)}: {error}")
            continue
        _add_film(all_films, film, regions, rows.get(film.number))
        if not regions:
            bare += 1
            skipped.append(Skipped(name, "no lesion is drawn on the film"))
        crops += _masses(film, regions, rows.get(film.number), relative(path, source), skipped)
    skipped += _leftover_contours(source, root, films)
    notes = [NO_MARGINS, *table_notes]
    if bare:
        notes.append(f"{bare} film(s) without any drawn lesion are left out")
    crops, split_notes = with_splits(crops, options)
    table = all_films.table({crop.patient_id: crop.split for crop in crops})
    return ImportPlan(crops, skipped, notes + split_notes, table, all_films.left_out(source))


def _add_film(films: Films, film: Film, regions: Sequence[Region], row: Row | None) -> None:
    """Add a film with the boxes of all regions, masses or not."""
    birads = row["Bi-Rads"] if row else ""
    if not regions and birads.removesuffix(".0") not in ("", "1"):
        films.refuse(film.path, f"BI-RADS {printable(birads)}, but no lesion is drawn")
    films.add(film.path, film.patient)
    for region in regions:
        try:
            films.add(film.path, film.patient, box=region.box())
        except Unusable as error:
            films.refuse(film.path, f"region {region.place}: {error}")


def _root(source: Path) -> Path:
    """The folder with the films and the contours: the source, or one in it."""
    folders = [source, *sorted(path for path in source.glob("*") if is_folder(path))]
    for folder in folders:
        if is_folder(folder / FILMS) and is_folder(folder / CONTOURS):
            return folder
    raise UserError(
        f"{source}: no folders {FILMS} and {CONTOURS} in it; give the folder of INbreast"
    )


def _films(source: Path, root: Path) -> tuple[list[Film], list[Skipped]]:
    films: dict[str, Film] = {}
    files, skipped = walk(root / FILMS)
    skipped = [Skipped(f"{FILMS}/{each.item}", each.reason) for each in skipped]
    for path in files:
        match = FILM_NAME.fullmatch(path.name)
        if match is None:
            reason = "not named like a film: FILM_PATIENT_MG_SIDE_VIEW_ANON.dcm is expected"
            skipped.append(Skipped(relative(path, source), reason))
        elif match[1] in films:
            reason = f"duplicate film: also as {films[match[1]].path.name}"
            skipped.append(Skipped(relative(path, source), reason))
        else:
            view = {"ML": "MLO"}.get(match[4].upper(), match[4].upper())
            films[match[1]] = Film(path, match[1], match[2].lower(), match[3].upper(), view)
    return list(films.values()), skipped


def _table(
    root: Path, films: Sequence[Film], skipped: list[Skipped]
) -> tuple[dict[str, Row], list[str]]:
    """Rows of INbreast.csv by film; rows of films that are not there are skipped."""
    path = root / TABLE
    if not is_file(path):
        return {}, [f"no {TABLE}: BI-RADS and density are not carried over"]
    rows, malformed = read_rows(path, COLUMNS)
    skipped += malformed
    known = {film.number for film in films}
    found: dict[str, Row] = {}
    for row in rows:
        number = row["File Name"].removesuffix(".0")  # as spreadsheets write numbers
        if number in known:
            found.setdefault(number, row)
        else:
            reason = f"film is missing: no {printable(number)}_*.dcm in {FILMS}"
            skipped.append(Skipped(f"{TABLE} row {row.line}", reason))
    lacking = len(known) - len(found)
    return found, [f"{lacking} film(s) are not in {TABLE}"] if lacking else []


def read_regions(path: Path) -> list[Region]:
    """The contours in a file of AllXML.

    plistlib refuses entity declarations, so no entity is ever expanded, and loads nothing.
    """
    try:
        content = plistlib.loads(read_bytes(path), fmt=plistlib.FMT_XML)
    except Unusable:
        raise
    except (
        ValueError,
        ExpatError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise Unusable(f"not an OsiriX property list: {printable(str(error)[:80])}") from None
    regions = [roi for image in _objects(content, "Images") for roi in _objects(image, "ROIs")]
    found = []
    for place, region in enumerate(regions, 1):
        points = region.get("Point_px")
        name = str(region.get("Name", ""))
        found.append(Region(place, name, points if isinstance(points, list) else []))
    return found


def _objects(parent: Any, key: str) -> Iterator[dict[str, Any]]:
    children = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(children, list) or not all(isinstance(child, dict) for child in children):
        raise Unusable(f"not an OsiriX property list: it has no list {key}")
    yield from children


def _masses(
    film: Film, regions: Sequence[Region], row: Row | None, file: str, skipped: list[Skipped]
) -> list[Crop]:
    """One crop for each mass of a film; all other regions are skipped with a reason."""
    masses: list[tuple[Region, Outline]] = []
    spiculated: list[tuple[Region, Outline]] = []
    for region in regions:
        wanted = masses if MASS.fullmatch(region.kind) else spiculated
        try:
            if wanted is spiculated and not SPICULATED.fullmatch(region.kind):
                raise Unusable(f"not a mass, but {printable(region.kind) or 'unnamed'}")
            wanted.append((region, region.outline()))
        except Unusable as error:
            skipped.append(Skipped(f"{file} region {region.place}", str(error)))
    crops = []
    used: set[int] = set()
    for count, (_, outline) in enumerate(masses, 1):
        around = [(region, other) for region, other in spiculated if overlap(outline, other)]
        used |= {region.place for region, _ in around}
        crops.append(_crop(film, count, [outline, *(other for _, other in around)], row))
    for region, _ in spiculated:
        if region.place not in used:
            reason = "spiculated region without a mass"
            skipped.append(Skipped(f"{file} region {region.place}", reason))
    return crops


def _crop(film: Film, count: int, outlines: Sequence[Outline], row: Row | None) -> Crop:
    """A mass, whose own contour is the first of the outlines."""
    extra = {"film": film.number, "laterality": film.laterality, "view": film.view}
    extra |= {"birads": row["Bi-Rads"] if row else "", "density": row["ACR"] if row else ""}
    return Crop(
        name=f"{film.number}_{count}",
        image=film.path,
        label="spiculated" if len(outlines) > 1 else "mass",
        split="",
        patient_id=film.patient,
        annotation=Polygons(tuple(outlines)),
        extra=extra,
    )


def _leftover_contours(source: Path, root: Path, films: Sequence[Film]) -> list[Skipped]:
    known = {f"{film.number}.xml" for film in films}
    files, skipped = walk(root / CONTOURS)
    skipped = [Skipped(f"{CONTOURS}/{each.item}", each.reason) for each in skipped]
    return skipped + [
        Skipped(relative(path, source), f"film is missing: no {path.stem}_*.dcm in {FILMS}")
        for path in files
        if path.name not in known
    ]
