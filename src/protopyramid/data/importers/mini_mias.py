"""The mini-MIAS database: PGM films of 1024 x 1024 pixels and the table Info.txt.

A line of the table is `mdb001 G CIRC B 535 425 197`: film, tissue, abnormality, severity, centre
and radius of a circle around it, y counted from the lower edge. Films go in pairs: mdb001 (odd,
right) and mdb002 (even, left) are the breasts of one woman. A film with several abnormalities has
several lines; normal films end after NORM, and some abnormal ones have no coordinates.

A partial download is normal: lines without a film are listed as skipped, and the splits come from the
whole table, so that no woman changes hers when more films arrive.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from protopyramid.data.annotations import Circle, bounds
from protopyramid.data.importers.base import NEGATIVE, Crop, ImportPlan, Options, Skipped, Tissue
from protopyramid.data.importers.full_films import Films
from protopyramid.data.importers.reading import Unusable, relative, short, walk
from protopyramid.data.importers.splits import with_splits
from protopyramid.data.io.decoding import read_size
from protopyramid.errors import UserError
from protopyramid.utils.opening import MEBIBYTE, Kind, read_file

SIDE = 1024  # of every film, in pixels
# MISC is "other, ill-defined masses" in the database's own words.
MARGINS = {"CIRC": "circumscribed", "MISC": "indistinct", "SPIC": "spiculated", "NORM": NEGATIVE}
NOT_MASSES = {
    "CALC": "calcification",
    "ARCH": "architectural distortion",
    "ASYM": "asymmetry",
}
TISSUES = {"F": "fatty", "G": "fatty-glandular", "D": "dense-glandular"}
SEVERITIES = {"B": "BENIGN", "M": "MALIGNANT"}
SUFFIXES = (".pgm", ".png", ".tif", ".tiff", ".jpg", ".jpeg")  # the first that is there is taken
TEXTS = (".txt", ".csv", "")
INFO = Kind("the table of mini-MIAS", MEBIBYTE)  # the true one has 8,000 bytes
MOST_LINES = 5000  # the true one has 330
LONGEST_LINE = 500
TYPICAL_RADIUS = 48.0  # pixels, where the table holds no mass to go by
LINE = re.compile(
    r"^\s*(mdb(\d{3}))\s+([FGD])\s+(CALC|CIRC|SPIC|MISC|ARCH|ASYM|NORM)\b(.*)$", re.IGNORECASE
)
NAMED = re.compile(r"^\s*(mdb\d{3})\b", re.IGNORECASE)
NUMBER = r"(-?\d+(?:\.\d+)?)"
COORDINATES = re.compile(rf"\s{NUMBER}\s+{NUMBER}\s+{NUMBER}\s*$")


@dataclass(frozen=True)
class _Line:
    """One line of the table; `part` numbers those of a film with several, else it is 0."""

    film: str
    number: int
    tissue: str
    kind: str
    rest: str
    part: int = 0

    @property
    def name(self) -> str:
        return f"{self.film}_{self.part}" if self.part else self.film

    @property
    def patient(self) -> str:
        return f"mias_{(self.number + 1) // 2:03d}"

    @property
    def circle(self) -> Circle | None:
        match = COORDINATES.search(f" {self.rest}")
        if match is None:
            return None
        x, y, radius = (float(value) for value in match.groups())
        return Circle((x, SIDE - y), radius)


def find(source: Path, options: Options) -> ImportPlan:
    """The masses and normal films of a download."""
    files, hidden = walk(source)
    table, lines, unread = _table(source, files)
    films, others = _films(files)
    radii = [
        line.circle.radius
        for line in lines
        if line.kind in MARGINS and line.circle is not None and 0 < line.circle.radius <= SIDE
    ]
    crops: list[Crop] = []
    skipped = list(hidden)
    skipped += [
        Skipped(f"{table.name}: {film}", f"line not understood: {short(text)}")
        for film, text in unread
    ]
    missing: set[str] = set()
    for line in lines:
        try:
            crops.append(_crop(line, films.get(line.film), radii, options))
        except Unusable as error:
            skipped.append(Skipped(f"{table.name}: {line.name}", str(error)))
            continue
        problem = _film_problem(films.get(line.film))
        if problem:
            missing.add(line.name)
            skipped.append(Skipped(f"{table.name}: {line.name}", problem))
    crops, notes = with_splits(crops, options)
    known = {line.film for line in lines} | {film for film, _ in unread}
    skipped += [Skipped(relative(path, source), reason) for path, reason in others.items()]
    skipped += [
        Skipped(relative(path, source), "the table does not name this film")
        for film, path in films.items()
        if film not in known
    ]
    all_films = _with_lesions(lines, films)
    for film, _ in unread:
        if film in films:
            all_films.refuse(films[film], "a line of the table was not understood")
    splits = {crop.patient_id: crop.split for crop in crops}
    return ImportPlan(
        [crop for crop in crops if crop.name not in missing],
        skipped,
        notes,
        all_films.table(splits),
        all_films.left_out(source),
    )


def _table(source: Path, files: Sequence[Path]) -> tuple[Path, list[_Line], list[tuple[str, str]]]:
    """The text file with the most lines of films; one called Info goes before others.

    Also its lines that begin with a film but are of another form, by film.
    """
    candidates = []
    for path in files:
        if path.suffix.lower() in TEXTS:
            texts = _texts(path)
            lines = _lines(texts)
            if lines:
                candidates.append((path.stem.lower() == "info", len(lines), path, lines, texts))
    if not candidates:
        raise UserError(
            f"{source}: no table of films (Info.txt, with lines like 'mdb001 G CIRC B 535 425 197'); "
            "put it beside the films"
        )
    best = max(candidates, key=lambda each: each[:2])
    unread = [
        (match[1].lower(), text.strip())
        for text in best[4]
        if (match := NAMED.match(text)) and not LINE.match(text)
    ]
    return best[2], best[3], unread


def _texts(path: Path) -> list[str]:
    """The lines of a file; none where it is too large to be the table of 322 films."""
    try:
        texts = read_file(path, INFO).decode("latin-1").splitlines()
    except OSError:
        return []
    if len(texts) > MOST_LINES:
        raise UserError(
            f"{path}: has {len(texts)} lines, but the table of mini-MIAS a few hundred; "
            "remove what is not part of it"
        )
    return [text for text in texts if len(text) <= LONGEST_LINE]


def _lines(texts: Iterable[str]) -> list[_Line]:
    lines = [
        _Line(match[1].lower(), int(match[2]), match[3].upper(), match[4].upper(), match[5].strip())
        for match in map(LINE.match, texts)
        if match
    ]
    films = Counter(line.film for line in lines)
    parts: Counter[str] = Counter()
    numbered = []
    for line in lines:
        parts[line.film] += 1
        numbered.append(replace(line, part=parts[line.film]) if films[line.film] > 1 else line)
    return numbered


def _films(files: Sequence[Path]) -> tuple[dict[str, Path], dict[Path, str]]:
    """The file of each film, a PGM before copies in other formats, and why other images are not films."""
    films: dict[str, Path] = {}
    others: dict[Path, str] = {}
    images = [path for path in files if path.suffix.lower() in SUFFIXES]
    for path in sorted(images, key=lambda path: SUFFIXES.index(path.suffix.lower())):
        if not re.fullmatch(r"mdb\d{3}", path.stem, re.IGNORECASE):
            others[path] = "image not named like a film: mdb001.pgm is expected"
        elif films.setdefault(path.stem.lower(), path) != path:
            others[path] = f"copy of a film: {films[path.stem.lower()].name} is used"
    return dict(sorted(films.items())), others


def _with_lesions(lines: Sequence[_Line], films: Mapping[str, Path]) -> Films:
    """The films with all abnormalities of the table, masses or not."""
    found = Films()
    for line in lines:
        path, circle = films.get(line.film), line.circle
        if path is None:
            continue
        problem = _film_problem(path)
        if line.kind == "NORM":
            found.add(path, line.patient)
        elif circle is None or circle.radius <= 0:
            problem = problem or f"{line.kind} without coordinates"
        else:
            found.add(path, line.patient, box=bounds(circle))
        if problem:
            found.refuse(path, problem)
    return found


def _film_problem(path: Path | None) -> str:
    """Why a film cannot be used, judging by its header."""
    if path is None:
        return "its film is missing"
    size = read_size(path)
    if size is not None and size != (SIDE, SIDE):  # the writer says what is wrong with a broken one
        return f"its film is not {SIDE} x {SIDE} pixels, so its coordinates do not fit"
    return ""


def _crop(line: _Line, film: Path | None, radii: Sequence[float], options: Options) -> Crop:
    if line.kind in NOT_MASSES:
        raise Unusable(f"not a mass, but {line.kind} ({NOT_MASSES[line.kind]})")
    crop = Crop(
        name=line.name,
        image=film or Path(f"{line.film}.pgm"),
        label=MARGINS[line.kind],
        split="",
        patient_id=line.patient,
        extra={
            "laterality": "RIGHT" if line.number % 2 else "LEFT",
            "view": "MLO",
            "pathology": SEVERITIES.get(line.rest[:1].upper(), ""),
            "tissue": TISSUES[line.tissue],
        },
    )
    if line.kind == "NORM":
        return replace(crop, tissue=_tissue(line, radii, options))
    circle = line.circle
    if circle is None or circle.radius <= 0:
        raise Unusable("no coordinates")
    return replace(crop, annotation=circle, box=bounds(circle))


def _tissue(line: _Line, radii: Sequence[float], options: Options) -> Tissue:
    """A tissue patch as large as the crop of a random mass of the table."""
    rng = np.random.default_rng([options.seed, line.number])
    radius = float(rng.choice(sorted(radii))) if radii else TYPICAL_RADIUS
    side = max(1, round(2 * radius * (1 + 2 * options.margin)))
    return Tissue(min(side, SIDE), (options.seed, line.number))
