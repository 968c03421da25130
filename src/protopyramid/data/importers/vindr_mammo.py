"""VinDr-Mammo as distributed: 20,000 films, with boxes around their findings.

    SRC/finding_annotations.csv
    SRC/images/<study_id>/<image_id>.dicom

Masses are taken, with their boxes; VinDr-Mammo has neither outlines nor margin labels, so their
label is "mass". The official split is kept. A study is a patient. films.csv has the boxes of all
findings.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from protopyramid.data.importers.base import Crop, ImportPlan, Options, Skipped
from protopyramid.data.importers.full_films import TABLE as FILMS
from protopyramid.data.importers.full_films import Films
from protopyramid.data.importers.outlines import as_box
from protopyramid.data.importers.reading import (
    Names,
    Row,
    Unusable,
    check_size,
    number,
    read_rows,
    relative,
    walk,
)
from protopyramid.data.io.decoding import is_image
from protopyramid.data.manifest import Box
from protopyramid.errors import UserError, printable
from protopyramid.utils.opening import is_file, is_folder

TABLE, IMAGES = "finding_annotations.csv", "images"
SUFFIXES = (".dicom", ".dcm")
COLUMNS = (
    *("study_id", "image_id", "laterality", "view_position", "height", "width", "breast_birads"),
    *("breast_density", "finding_categories", "finding_birads", "xmin", "ymin", "xmax", "ymax"),
    "split",
)
SPLITS = {"training": "train", "test": "test"}
MASS, NOTHING = "mass", "no finding"
LONGEST_LIST = 1000  # letters of finding_categories
NO_MARGINS = (
    'VinDr-Mammo has boxes but no outlines and no margin labels: every mass is labelled "mass", '
    "and its annotation is the ellipse in its box"
)


def find(source: Path, options: Options) -> ImportPlan:
    """The masses of VinDr-Mammo; rows of other findings, and of none, are skipped."""
    for place, missing in (
        (TABLE, not is_file(source / TABLE)),
        (IMAGES, not is_folder(source / IMAGES)),
    ):
        if missing:
            raise UserError(
                f"{source}: no {place} in it; give the folder of the VinDr-Mammo release"
            )
    rows, skipped = read_rows(source / TABLE, COLUMNS)
    notes = [NO_MARGINS]
    if skipped:
        notes.append(f"{len(skipped)} row(s) are malformed: {FILMS} may lack their findings")
    films = Films()
    crops: list[Crop] = []
    names = Names()
    seen: dict[tuple[object, ...], int] = {}
    for row in rows:
        _add_film(source, row, films)
        try:
            crop = _crop(source, row, names)
            first = seen.setdefault((crop.image, crop.box), row.line)
            if first != row.line:
                raise Unusable(f"duplicate box: same as row {first}")
            crops.append(crop)
        except Unusable as error:
            item = f"{TABLE} row {row.line} ({printable(row['image_id'])})"
            skipped.append(Skipped(item, str(error)))
    skipped += _leftover_images(source, rows)
    empty = Counter(skip.reason for skip in skipped)[_not_a_mass([NOTHING])]
    if empty:
        notes.append(f"{empty} film(s) without a finding are left out")
    return ImportPlan(crops, skipped, notes, films.table(), films.left_out(source))


def _add_film(source: Path, row: Row, films: Films) -> None:
    """Add the film of a row with the row's finding, whatever that is."""
    try:
        image = _image(source, row)
    except Unusable:
        return  # without a film there is nothing to leave out
    try:
        kinds = [category.lower() for category in read_categories(row["finding_categories"])]
        box = None if kinds == [NOTHING] else _box(row, image)
        films.add(image, row["study_id"], _split(row), box=box)
    except Unusable as error:
        films.refuse(image, f"row {row.line}: {error}")


def _split(row: Row) -> str:
    split = SPLITS.get(row["split"].lower())
    if split is None:
        raise Unusable(f"split is neither training nor test: {printable(row['split'])!r}")
    return split


def _box(row: Row, image: Path) -> Box:
    size = (number(row["width"]), number(row["height"]))
    check_size(image, size)
    return as_box(row["xmin"], row["ymin"], row["xmax"], row["ymax"], size)


def _crop(source: Path, row: Row, names: Names) -> Crop:
    categories = read_categories(row["finding_categories"])
    kinds = [category.lower() for category in categories]
    if MASS not in kinds:
        raise Unusable(_not_a_mass(kinds))
    split, image = _split(row), _image(source, row)
    box = _box(row, image)
    return Crop(
        name=names.new(f"{row['image_id']}_{row.line}"),
        image=image,
        label=MASS,
        split=split,
        patient_id=row["study_id"],
        box=box,
        extra={
            "laterality": row["laterality"],
            "view": row["view_position"],
            "birads": row["finding_birads"].removeprefix("BI-RADS").strip(),
            "density": row["breast_density"].removeprefix("DENSITY").strip(),
            "findings": "; ".join(categories),
        },
    )


def _not_a_mass(kinds: Iterable[str]) -> str:
    return f"not a mass, but {', '.join(kinds)}"


def read_categories(text: str) -> list[str]:
    """The findings in a list as Python writes it.

    >>> read_categories("['Mass', 'Skin Retraction']")
    ['Mass', 'Skin Retraction']
    """
    try:
        found = ast.literal_eval(text) if len(text) <= LONGEST_LIST else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found) or not found:
        raise Unusable(f"finding_categories is not a list of names: {printable(text[:40])!r}")
    return [printable(each.strip()) for each in found]


def _image(source: Path, row: Row) -> Path:
    """The film of a row; ids are plain names, so that no row reaches for other folders."""
    for column in ("study_id", "image_id"):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", row[column]):
            raise Unusable(f"invalid {column}: {printable(row[column])!r}")
    folder = source / IMAGES / row["study_id"]
    for suffix in SUFFIXES:
        path = folder / f"{row['image_id']}{suffix}"
        if is_file(path):
            return path
    raise Unusable(f"film is missing: {IMAGES}/{row['study_id']}/{row['image_id']}{SUFFIXES[0]}")


def _leftover_images(source: Path, rows: Iterable[Row]) -> list[Skipped]:
    known = {(row["study_id"], row["image_id"]) for row in rows}
    files, skipped = walk(source / IMAGES)
    skipped = [Skipped(f"{IMAGES}/{each.item}", each.reason) for each in skipped]
    for path in files:
        if (path.parent.name, path.stem) not in known:
            what = "film" if is_image(path) else "file"
            skipped.append(Skipped(relative(path, source), f"{what} that no row refers to"))
    return skipped
