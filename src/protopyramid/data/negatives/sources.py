"""The full mammograms to sample from: folders of films, or a table with the lesions on each film.

A table is a CSV file with the column `image`, and, as in a manifest, `patient_id`, `split`, `mask`
and the lesion box `lesion_x0, lesion_y0, lesion_x1, lesion_y1`, in pixels of the film. Several rows of
one film are several lesions; a film whose rows give no lesion is taken to have none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from protopyramid.data.io.decoding import is_image
from protopyramid.data.manifest import (
    BOX_COLUMNS,
    SPLITS,
    Box,
    existing_file,
    read_box,
)
from protopyramid.errors import UserError
from protopyramid.utils.csv_files import read_table
from protopyramid.utils.opening import is_folder, real_path

PROBLEMS_SHOWN = 20


@dataclass(frozen=True)
class Film:
    """A full mammogram.

    `name` is its path as the table or the folder has it; `patient_id` is never empty, since the
    patches of one film must stay together; `split` is empty when it is not given.
    """

    name: str
    path: Path
    patient_id: str
    split: str = ""
    boxes: tuple[Box, ...] = ()
    masks: tuple[Path, ...] = ()


def read_films(sources: Sequence[Path], lesion_free: bool = False, patient: str = "") -> list[Film]:
    """The films of folders and tables. `patient`: a regular expression for the names of films.

    For films of a folder no lesions are known: the user must state that they show none.
    """
    pattern = _compiled(patient)
    films: list[Film] = []
    for source in sources:
        before = len(films)
        if is_folder(source):
            if not lesion_free:
                raise UserError(
                    f"{source}: a folder does not tell where the lesions are; give a CSV table with "
                    "lesion boxes or masks, or --lesion-free if its films show no lesion"
                )
            films += _films_of_folder(source, pattern)
        else:
            films += _films_of_table(source, pattern)
        if len(sources) > 1:  # names must stay different
            films[before:] = [
                replace(film, name=f"{source.name}/{film.name}") for film in films[before:]
            ]
    for what, several in (
        ("path", Counter(str(real_path(film.path)) for film in films)),
        ("name", Counter(film.name for film in films)),
    ):
        twice = next((key for key, count in several.items() if count > 1), None)
        if twice is not None:
            raise UserError(
                f"{twice}: two films have this {what}; give each film once, by its own name"
            )
    return films


def _compiled(patient: str) -> re.Pattern[str] | None:
    if not patient:
        return None
    try:
        pattern = re.compile(patient)
    except re.error as error:
        raise UserError(f"--patient {patient!r}: not a regular expression ({error})") from None
    if pattern.groups > 1:
        raise UserError(
            f"--patient {patient!r}: has several groups; keep only the one around the patient"
        )
    return pattern


def _patient_of(name: str, pattern: re.Pattern[str] | None, by_folder: bool) -> str:
    """The part of the name that the pattern matches; without one, the folder or the film's name."""
    if pattern is None:
        path = PurePosixPath(name)
        return path.parent.as_posix() if by_folder and len(path.parts) > 1 else path.stem
    match = pattern.search(name)
    if match is None:
        raise UserError(
            f"{name}: --patient {pattern.pattern!r} does not match this name; correct the pattern"
        )
    return match[1] if pattern.groups else match[0]


def _films_of_folder(folder: Path, pattern: re.Pattern[str] | None) -> list[Film]:
    films = []
    for path in sorted(folder.rglob("*")):
        if path.name.startswith(".") or not is_image(path):
            continue
        name = path.relative_to(folder).as_posix()
        films.append(Film(name, path, _patient_of(name, pattern, by_folder=True)))
    if not films:
        raise UserError(f"{folder}: holds no images; give a folder of full mammograms, or a table")
    return films


def _films_of_table(path: Path, pattern: re.Pattern[str] | None) -> list[Film]:
    table = read_table(path, "table of films")
    columns = [name.strip() for name in table[0].fields]
    absent = [name for name in BOX_COLUMNS if name not in columns]
    if "image" not in columns:
        raise UserError(f"{path}: no column 'image'; the table of films needs it")
    if 0 < len(absent) < len(BOX_COLUMNS):
        raise UserError(f"{path}: a lesion box needs all of its columns; add {', '.join(absent)}")
    films: dict[str, Film] = {}
    problems: list[str] = []
    for line, fields in table[1:]:
        if len(fields) != len(columns):
            problems.append(
                f"row {line}: has {len(fields)} fields, but the header has {len(columns)}"
            )
            continue
        values = {key: field.strip() for key, field in zip(columns, fields, strict=True)}
        film = _film_of_row(path.parent, line, values, pattern, problems)
        if film is not None:
            films[film.name] = _together(films.get(film.name, film), film, line, problems)
    if problems or not films:
        shown = "; ".join(problems[:PROBLEMS_SHOWN]) or "has no rows; add one per lesion"
        more = len(problems) - PROBLEMS_SHOWN
        raise UserError(f"{path}: {shown}" + (f"; and {more} more" if more > 0 else ""))
    return list(films.values())


def _film_of_row(
    folder: Path,
    line: int,
    values: Mapping[str, str],
    pattern: re.Pattern[str] | None,
    problems: list[str],
) -> Film | None:
    """The film of a row with the row's lesion, or None when something is wrong with it."""
    before = len(problems)
    name = values["image"].replace("\\", "/")
    split = values.get("split", "")
    if not name:
        problems.append(f"row {line}, image: is empty; give the path of the film")
    if split and split not in SPLITS:
        problems.append(f"row {line}, split: {split!r} must be train, validation or test")
    path = existing_file(folder, line, "image", name, problems)
    mask = existing_file(folder, line, "mask", values.get("mask", ""), problems)
    box = read_box(line, [values.get(column, "") for column in BOX_COLUMNS], problems)
    if len(problems) > before or path is None:
        return None
    patient = values.get("patient_id", "") or _patient_of(name, pattern, by_folder=False)
    boxes, masks = (() if box is None else (box,)), (() if mask is None else (mask,))
    return Film(name, path, patient, split, boxes, masks)


def _together(film: Film, row: Film, line: int, problems: list[str]) -> Film:
    """A film with the lesion of one more of its rows."""
    if film is row:
        return film
    for column, first, here in (
        ("patient_id", film.patient_id, row.patient_id),
        ("split", film.split, row.split),
    ):
        if first != here:
            problems.append(
                f"row {line}, {column}: {here!r}, but an earlier row of {row.name!r} has {first!r}"
            )
    boxes, masks = film.boxes + row.boxes, film.masks + row.masks
    return Film(film.name, film.path, film.patient_id, film.split, boxes, masks)
