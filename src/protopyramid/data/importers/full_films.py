"""The table films.csv: full films with all lesions on them, imported or not.

`protopyramid data negatives` samples tissue from these films. So a film is in the table only when the
place of every lesion on it is known; for the others, the reason is given.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from protopyramid.data.importers.base import FilmRow, Skipped
from protopyramid.data.importers.reading import relative
from protopyramid.data.manifest import BOX_COLUMNS, Box
from protopyramid.utils.opening import real_path
from protopyramid.utils.tables import csv_text

TABLE = "films.csv"
COLUMNS = ("image", "patient_id", "split", "mask", *BOX_COLUMNS)
LEFT_OUT = f"film left out of {TABLE}"
SPECK = 1.0  # pixels; a lesion that is a point or a line is taken to be as wide


@dataclass
class Films:
    """Collects the lesions of each film, and what makes a film unusable."""

    rows: dict[Path, list[FilmRow]] = field(default_factory=dict)
    problems: dict[Path, str] = field(default_factory=dict)  # the first of each film

    def add(
        self,
        image: Path,
        patient_id: str,
        split: str = "",
        mask: Path | None = None,
        box: Box | None = None,
    ) -> None:
        """A film with a lesion, by its mask or its box; with neither, no lesion is added."""
        row = FilmRow(image, patient_id, split, mask, None if box is None else _wide(box))
        rows = self.rows.setdefault(image, [])
        if row.box is not None and not _is_place(row.box):
            self.refuse(image, "a lesion is outside it")
        if any("\\" in path.as_posix() for path in (image, mask) if path):
            self.refuse(image, "its path has a backslash, which tables read as a slash; rename it")
        if rows and (rows[0].patient_id, rows[0].split) != (patient_id, split):
            self.refuse(image, "it belongs to two patients or splits")
        if row not in rows:
            rows.append(row)

    def refuse(self, image: Path, reason: str) -> None:
        """Leave a film out, whatever else is known about it."""
        self.problems.setdefault(image, reason)

    def table(self, splits: Mapping[str, str] | None = None) -> list[FilmRow]:
        """The rows of the usable films; `splits` are those of patients, where films have none."""
        known = splits or {}
        return [
            FilmRow(row.image, row.patient_id, row.split or known.get(row.patient_id, ""), *place)
            for image, rows in self.rows.items()
            if image not in self.problems
            for row in _lesions(rows)
            for place in [(row.mask, row.box)]
        ]

    def left_out(self, source: Path) -> list[Skipped]:
        """The films that are not in the table, and why."""
        return [
            Skipped(relative(image, source), f"{LEFT_OUT}: {reason}")
            for image, reason in self.problems.items()
        ]


def _lesions(rows: Sequence[FilmRow]) -> Sequence[FilmRow]:
    """The rows with a lesion, or one without if there is none."""
    return [row for row in rows if row.mask or row.box] or rows[:1]


def _wide(box: Box) -> Box:
    x0, y0, x1, y1 = box
    across, down = (SPECK / 2 if high <= low else 0.0 for low, high in ((x0, x1), (y0, y1)))
    return x0 - across, y0 - down, x1 + across, y1 + down


def _is_place(box: Box) -> bool:
    """Whether a box is one of pixels; its film's size is not known here."""
    return all(map(math.isfinite, box)) and box[2] > max(box[0], 0) and box[3] > max(box[1], 0)


def table_text(films: Sequence[FilmRow], folder: Path) -> str:
    """The table as CSV, with paths relative to its folder."""
    return csv_text(COLUMNS, [_fields(row, folder) for row in films])


def _fields(row: FilmRow, folder: Path) -> list[str]:
    edges = (
        [""] * 4 if row.box is None else [f"{edge:.3f}".rstrip("0").rstrip(".") for edge in row.box]
    )
    mask = "" if row.mask is None else path_from(folder, row.mask)
    return [path_from(folder, row.image), row.patient_id, row.split, mask, *edges]


def path_from(folder: Path, path: Path) -> str:
    """A path as it is written into a table in a folder."""
    # ".." leads up from where a link leads to, not from the link.
    return Path(os.path.relpath(os.path.abspath(path), real_path(folder))).as_posix()
