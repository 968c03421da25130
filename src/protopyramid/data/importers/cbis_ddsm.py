"""CBIS-DDSM as the Cancer Imaging Archive gives it: the mass tables and the DICOM files.

    Mass-Training_P_00001_LEFT_CC/STUDY/SERIES/1-1.dcm        the film
    Mass-Training_P_00001_LEFT_CC_1/STUDY/SERIES/1-1.dcm      mask and crop of its first lesion,
                                                1-2.dcm       in either order, in one series or two

The paths in the tables are not those on the disk: files are renamed by the download, and folders of
studies and series are named by their UID or by a date and a description. So the files of a film or
lesion are those below the folder of that name, or below one named by a series UID of the table. A
lesion's mask is the file with the film's size, or else the one with only two values.

The official splits are kept. Of the headers, only the sizes are read.

A film of the masses may show calcifications too. The collection then has it a second time, with the
calcifications alone: given their tables and files, films.csv has the lesions of both on one film.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from protopyramid.config.schema import DicomConfig
from protopyramid.data.annotations import MaskFile
from protopyramid.data.geometry import NoCrop, extent
from protopyramid.data.importers.base import Crop, ImportPlan, Options, Skipped
from protopyramid.data.importers.full_films import TABLE, Films
from protopyramid.data.importers.reading import (
    Names,
    Row,
    Unusable,
    read_rows,
    relative,
    walk,
)
from protopyramid.data.io.decoding import DICOM_SUFFIXES, read_dicom_size, read_image, read_marks
from protopyramid.data.manifest import Box
from protopyramid.data.masks import MaskSizeError, resized_mask
from protopyramid.errors import UserError
from protopyramid.utils.opening import TEXT, open_file, real_path

PATIENT, SIDE, VIEW, NUMBER = "patient_id", "left or right breast", "image view", "abnormality id"
MARGINS = "mass margins"
FILM, CROPPED, MASK = "image file path", "cropped image file path", "ROI mask file path"
PLACES = (PATIENT, SIDE, VIEW, NUMBER, FILM, CROPPED, MASK)
REQUIRED = (*PLACES, MARGINS)
CALCIFICATIONS = "calc type"
KEPT = ("pathology", "assessment", "subtlety")

THREE = {
    "CIRCUMSCRIBED": "circumscribed",
    "ILL_DEFINED": "indistinct",
    "SPICULATED": "spiculated",
}
FIVE = {**THREE, "MICROLOBULATED": "microlobulated", "OBSCURED": "obscured"}
SPLITS = {"training": "train", "train": "train", "test": "test"}
PARTS = {"train": "Training", "test": "Test"}
MASSES, CALCS = "Mass", "Calc"  # what names of folders begin with

Size = tuple[int, int]  # rows, columns


@dataclass
class _Files:
    """The DICOM files of a download by the names of all folders above them, and their sizes."""

    paths: list[Path] = field(default_factory=list)
    below: dict[str, list[Path]] = field(default_factory=dict)
    known_sizes: dict[Path, Size | None] = field(default_factory=dict)

    @classmethod
    def index(cls, files: Iterable[Path], source: Path) -> _Files:
        found = cls()
        for path in files:
            if path.suffix.lower() in DICOM_SUFFIXES:
                found.paths.append(path)
                # The source may be the folder of one case itself.
                for name in {source.name, *path.relative_to(source).parts[:-1]}:
                    found.below.setdefault(name, []).append(path)
        return found

    def of(self, names: Iterable[str], series: Iterable[str]) -> list[Path]:
        """The files below a folder of one of these names, or else below those of the series."""
        for name in names:
            if name in self.below:
                return self.below[name]
        paths = (path for uid in series for path in self.below.get(uid, ()))
        return list(dict.fromkeys(paths))

    def outside(self, names: Iterable[str]) -> list[Path]:
        """The files that are below no folder of these names."""
        inside = {path for name in names for path in self.below.get(name, ())}
        return [path for path in self.paths if path not in inside]

    def sizes(self, paths: Iterable[Path]) -> dict[Path, Size]:
        """Rows and columns of the files that are readable."""
        found: dict[Path, Size] = {}
        for path in paths:
            if path not in self.known_sizes:
                self.known_sizes[path] = read_dicom_size(path)
            size = self.known_sizes[path]
            if size is not None:
                found[path] = size
        return found


def find(source: Path, options: Options) -> ImportPlan:
    """The masses of the tables whose files are there."""
    paths, hidden = walk(source)
    tables, calc_tables = _tables(source, paths)
    files = _Files.index(paths, source)
    known = _LesionIndex()
    names = Names()
    crops: list[Crop] = []
    skipped = list(hidden)
    seen: set[str] = set()
    for table in tables:
        rows, malformed = read_rows(table, REQUIRED)
        skipped += malformed
        known.lost += len(malformed)
        for row in rows:
            try:
                lesion = known.lesion(row, table.name, MASSES)
                if lesion.item in seen:
                    raise Unusable("duplicate row in the tables")
                seen.add(lesion.item)
                label = _label(lesion.margins, options)
                crops.append(_crop(lesion, label, names, files))
            except Unusable as error:
                skipped.append(Skipped(_item(row, table), str(error)))
    notes = [*_add_calcifications(calc_tables, known), *_first_of_mixed(crops, options)]
    skipped += [
        Skipped(relative(path, source), "file that no readable row of the tables refers to")
        for path in files.outside(known.folders())
    ]
    films = _films(known, files)
    if known.lost:
        notes.append(
            f"{known.lost} row(s) could not be assigned to a film: {TABLE} may lack lesions"
        )
    return ImportPlan(crops, skipped, notes, films.table(), films.left_out(source))


# --- the tables -----------------------------------------------------------------------------------


def _tables(source: Path, paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The tables of masses and of calcifications in the source, or else beside it."""
    inside = [path for path in paths if path.suffix.lower() == ".csv"]
    beside = sorted(real_path(source).parent.glob("*.csv"))
    for candidates in (inside, beside):
        headers = {path: _header(path) for path in candidates}
        masses = [path for path, header in headers.items() if MARGINS in header]
        calcifications = [path for path, header in headers.items() if CALCIFICATIONS in header]
        if masses:
            return masses, [path for path in calcifications if path not in masses]
    raise UserError(
        f"{source}: no mass table (mass_case_description_train_set.csv and ..._test_set.csv); "
        "get it from the page of the collection and put it there"
    )


def _header(path: Path) -> str:
    try:
        with open_file(path, TEXT) as file:
            return file.readline(4096).decode("latin-1").lower()
    except OSError:
        return ""


@dataclass(frozen=True)
class _Lesion:
    """One row of a table, with line breaks and spaces taken out of its fields."""

    kind: str
    patient: str
    side: str
    view: str
    number: str
    split: str
    margins: str
    paths: dict[str, list[str]]  # column -> folders and file of the path
    extra: dict[str, str]

    @property
    def film(self) -> str:
        return f"{self.patient}_{self.side}_{self.view}"

    @property
    def name(self) -> str:
        return f"{self.film}_{self.number}"

    @property
    def item(self) -> str:
        return f"{self._prefix}_{self.name}"

    @property
    def _prefix(self) -> str:
        return f"{self.kind}-{PARTS[self.split]}"

    def folders(self, stem: str, *columns: str) -> list[str]:
        """Names that the folder of a film or lesion may have."""
        listed = [self.paths[column][0] for column in columns if self.paths[column]]
        return list(dict.fromkeys([f"{self._prefix}_{stem}", *listed]))

    def series(self, *columns: str) -> list[str]:
        return [self.paths[column][-2] for column in columns if len(self.paths[column]) > 2]

    def all_folders(self) -> list[str]:
        """Names of all folders that may hold its film, mask or crop."""
        return [
            *self.folders(self.film, FILM),
            *self.folders(self.name, MASK, CROPPED),
            *self.series(FILM, MASK, CROPPED),
        ]


def _lesion(row: Row, table: str, kind: str) -> _Lesion:
    words = {column: "".join(row[column].split()) for column in REQUIRED}
    empty = [column for column in (PATIENT, SIDE, VIEW, NUMBER) if not words[column]]
    if empty:
        raise Unusable(f"empty column: {empty[0]}")
    paths = {
        column: [part for part in re.split(r"[/\\]", words[column]) if part]
        for column in (FILM, CROPPED, MASK)
    }
    return _Lesion(
        kind=kind,
        patient=words[PATIENT],
        side=words[SIDE].upper(),
        view=words[VIEW].upper(),
        number=words[NUMBER],
        split=_split(words[FILM], table),
        margins=words[MARGINS].upper(),
        paths=paths,
        extra={
            "laterality": words[SIDE].upper(),
            "view": words[VIEW].upper(),
            **{column: " ".join(row[column].split()) for column in KEPT},
        },
    )


def _split(path: str, table: str) -> str:
    """The official split: by the path of the film, or else by the name of the table."""
    for text in (path.partition("_")[0], table):
        for word in re.split(r"[^a-z]+", text.lower()):
            if word in SPLITS:
                return SPLITS[word]
    raise Unusable("neither the path of the film nor the name of the table gives the split")


def _item(row: Row, table: Path) -> str:
    """What a row of skipped.csv speaks of."""
    names = [row[column] for column in (PATIENT, SIDE, VIEW, NUMBER)]
    return f"{table.name} row {row.line}: {'_'.join(''.join(name.split()) for name in names)}"


def _label(margins: str, options: Options) -> str:
    classes = FIVE if options.margins == "five" else THREE
    parts = [part for part in margins.split("-") if part]
    if not parts or margins in ("N/A", "NA", "NAN"):
        raise Unusable("unknown margin")
    if len(parts) > 1 and options.mixed == "drop":
        raise Unusable(f"mixed margins: {margins}")
    if parts[0] in classes:
        return classes[parts[0]]
    wider = " (use --margins five)" if parts[0] in FIVE else ""
    raise Unusable(f"margin is not one of the {options.margins} classes: {parts[0]}{wider}")


def _first_of_mixed(crops: Sequence[Crop], options: Options) -> list[str]:
    mixed = sum("-" in crop.extra["margins"] for crop in crops)
    if options.mixed == "drop" or not mixed:
        return []
    return [f"{mixed} masses have mixed margins and are labelled with the first"]


# --- the films with all lesions -------------------------------------------------------------------


@dataclass
class _LesionIndex:
    """All lesions of the tables by their views, as P_00001_LEFT_CC, and the rows that tell less."""

    views: dict[str, list[_Lesion]] = field(default_factory=dict)
    unclear: dict[str, str] = field(default_factory=dict)  # view -> what is wrong with a row
    lost: int = 0  # rows that do not even name a view

    def lesion(self, row: Row, table: str, kind: str) -> _Lesion:
        """The lesion of a row, which is kept in mind, usable or not."""
        try:
            lesion = _lesion(row, table, kind)
        except Unusable as error:
            words = ["".join(row[column].split()) for column in (PATIENT, SIDE, VIEW)]
            view = "_".join([words[0], *(word.upper() for word in words[1:])])
            self.unclear.setdefault(view, f"{_item(row, Path(table))}: {error}")
            self.lost += not all(words)
            raise
        self.views.setdefault(lesion.film, []).append(lesion)
        return lesion

    def folders(self) -> set[str]:
        """Names of the folders that may hold files of these lesions."""
        lesions = (lesion for group in self.views.values() for lesion in group)
        return {name for lesion in lesions for name in lesion.all_folders()}

    def splits(self) -> dict[str, set[str]]:
        """The splits of each patient: those of the masses, or else of the calcifications."""
        found: dict[str, set[str]] = {}
        for kind in (MASSES, CALCS):
            here: dict[str, set[str]] = {}
            for lesion in (each for group in self.views.values() for each in group):
                if lesion.kind == kind:
                    here.setdefault(lesion.patient, set()).add(lesion.split)
            found = {**here, **found}
        return found


def _add_calcifications(tables: Sequence[Path], known: _LesionIndex) -> list[str]:
    """Read the calcifications, which are not imported, but are on the films."""
    notes = []
    for table in tables:
        note = f"{table.name}: calcifications, which have no margins, are not imported"
        try:
            rows, malformed = read_rows(table, PLACES)
        except UserError as error:
            problem = str(error).removeprefix(f"{table}: ")
            notes.append(f"{note}; {TABLE} lacks them: {problem}")
            continue
        known.lost += len(malformed)
        for row in rows:
            with suppress(Unusable):  # it is kept in mind
                known.lesion(row, table.name, CALCS)
        notes.append(f"{note}; {TABLE} has them")
    if not tables:
        notes.append(
            f"no tables of calcifications (calc_case_description_...csv): {TABLE} lacks them, so "
            "negatives may show some"
        )
    return notes


def _films(known: _LesionIndex, files: _Files) -> Films:
    films, splits = Films(), known.splits()
    for view, lesions in known.views.items():
        film = _add_view(lesions, splits[lesions[0].patient], films, files)
        if film is not None and view in known.unclear:
            films.refuse(film, known.unclear[view])
    return films


def _add_view(
    lesions: Sequence[_Lesion], splits: set[str], films: Films, files: _Files
) -> Path | None:
    """Add the film of a view with all of its lesions; None where there is no film."""
    found: dict[str, tuple[Path, Size]] = {}
    for lesion in lesions:
        with suppress(Unusable):
            found[lesion.item] = _film(lesion, files)
    if not found:
        return None
    film, size = next(iter(found.values()))
    for lesion in lesions:
        try:
            own, own_size = found.get(lesion.item, (film, size))
            mask = _mask(lesion, files, own, own_size)
            box = None if files.sizes([mask])[mask] == size else _scaled_box(mask, size)
            split = min(splits)
            films.add(film, lesion.patient, split, mask if box is None else None, box)
        except Unusable as error:
            films.refuse(film, f"{lesion.item}: {error}")
    if len(splits) > 1:
        films.refuse(film, "its patient is in both the train and the test part")
    for other in dict.fromkeys(path for path, _ in found.values() if path != film):
        if film not in films.problems and not _same_picture(film, other):
            films.refuse(film, "the films of its masses and calcifications differ")
    return film


def _scaled_box(mask: Path, size: Size) -> Box:
    """The box of a mask of another size than its film, in pixels of the film."""
    try:
        return extent(resized_mask(read_marks(mask), size))
    except (NoCrop, MaskSizeError, UserError) as error:
        raise Unusable(str(error).removeprefix(f"{mask}: ")) from None


def _same_picture(first: Path, second: Path) -> bool:
    try:
        return np.array_equal(read_image(first), read_image(second))
    except UserError:
        return False


# --- the files ------------------------------------------------------------------------------------


def _crop(lesion: _Lesion, label: str, names: Names, files: _Files) -> Crop:
    film, size = _film(lesion, files)
    mask = _mask(lesion, files, film, size)
    return Crop(
        name=names.new(lesion.name),
        image=film,
        label=label,
        split=lesion.split,
        patient_id=lesion.patient,
        annotation=MaskFile(mask),
        extra={**lesion.extra, "margins": lesion.margins},
    )


def _film(lesion: _Lesion, files: _Files) -> tuple[Path, Size]:
    """The film of a lesion: the largest file in its folder."""
    paths = files.of(lesion.folders(lesion.film, FILM), lesion.series(FILM))
    if not paths:
        raise Unusable("its film is missing")
    sizes = files.sizes(paths)
    if not sizes:
        raise Unusable("its film is not a readable DICOM file")
    film = max(sizes, key=lambda path: np.prod(sizes[path]))
    return film, sizes[film]


def _mask(lesion: _Lesion, files: _Files, film: Path, size: Size) -> Path:
    """The mask of a lesion, told from the crop that lies beside it."""
    paths = files.of(lesion.folders(lesion.name, MASK, CROPPED), lesion.series(MASK, CROPPED))
    paths = [path for path in paths if path != film]
    if not paths:
        raise Unusable("its mask is missing")
    sizes = files.sizes(paths)
    if not sizes:
        raise Unusable("its mask is not a readable DICOM file")
    as_film = [path for path, found in sizes.items() if found == size]
    if len(as_film) == 1:
        return as_film[0]
    # Sizes do not tell: some masks have another size than their film. The crop has many values.
    binary = [path for path in as_film or sizes if _is_binary(path)]
    if not binary:
        raise Unusable("none of its files is a mask")
    return max(binary, key=lambda path: np.prod(sizes[path]))


def _is_binary(path: Path) -> bool:
    try:
        values = read_image(path, DicomConfig(window="full"))
    except UserError:
        return False
    low, high = values.min(), values.max()
    return bool(low < high and ((values == low) | (values == high)).all())
