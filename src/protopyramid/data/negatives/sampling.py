"""The rounds in which squares find their films: dealt out, cut in parallel, noted in a journal.

What a film gives depends on the seed, the round and the film's name alone, so that the number of
processes changes nothing, and a round that was stopped goes on from its journal.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from protopyramid.data.cropping import to_16_bits, to_grey
from protopyramid.data.io.decoding import read_image
from protopyramid.data.manifest import Box
from protopyramid.data.negatives.patches import Limits, Mask, Square, sample_squares
from protopyramid.data.negatives.sources import Film
from protopyramid.errors import UserError
from protopyramid.utils.files import write_bytes
from protopyramid.utils.processes import in_processes

ROUNDS = 4  # how often squares without a place are tried on other films
# Streams of random numbers that must not be the same.
_ALLOT, _PLACES = 2, 4

Progress = Callable[[int, int], None]
Record = dict[str, Any]


def allot(count: int, patients: Sequence[str], rng: np.random.Generator) -> list[int]:
    """How many squares each film gives; `patients` has the patient of every film.

    Patients give the same number, but for one, and so do the films of a patient.

    >>> allot(6, ["a", "a", "b"], np.random.default_rng(0))[2]
    3
    """
    films: dict[str, list[int]] = {}
    for number in rng.permutation(len(patients)):
        films.setdefault(patients[number], []).append(int(number))
    counts = [0] * len(patients)
    turn = list(films.values())
    for number in range(count):
        own = turn[number % len(turn)]
        counts[own[number // len(turn) % len(own)]] += 1
    return counts


@dataclass(frozen=True)
class _Job:
    """Squares to cut from one film in one round; `taken` are those that it has given already."""

    film: Film
    round: int
    numbers: tuple[int, ...]
    sides: tuple[int, ...]
    taken: tuple[Square, ...]
    folder: Path
    seed: int
    limits: Limits


@dataclass
class Work:
    """Which square is where, and what is still to be placed."""

    films: Sequence[Film]
    sides: Sequence[int]
    folder: Path
    seed: int
    limits: Limits
    done: dict[tuple[str, int], Record]
    workers: int
    progress: Progress | None
    placed: dict[int, tuple[int, Square]] = field(default_factory=dict)  # number -> film, square
    refused: dict[int, str] = field(default_factory=dict)  # film -> why it gives nothing
    full: dict[int, list[str]] = field(default_factory=dict)  # film -> why squares had no place
    contents: dict[str, int] = field(default_factory=dict)  # hash of a film -> its number
    records: list[Record] = field(default_factory=list)  # in the order of rounds and films

    def run(self, journal: io.BufferedWriter) -> None:
        """Place the squares, in rounds while some have no place and some films have room."""
        for number in range(ROUNDS):
            pending = [each for each in range(len(self.sides)) if each not in self.placed]
            jobs = self._jobs(number, pending)
            if not jobs:
                return
            by_name = {self.films[film].name: film for film in jobs}
            records: dict[int, Record] = {}
            for record in self._records(list(jobs.values())):
                if (record["film"], number) not in self.done:
                    journal.write(line(record))
                    journal.flush()
                records[by_name[record["film"]]] = record
                if self.progress is not None:
                    self.progress(len(records), len(jobs))
            for film in sorted(records):
                self.records.append(records[film])
                self._take(film, records[film])

    def _jobs(self, number: int, pending: Sequence[int]) -> dict[int, _Job]:
        """The squares that wait, dealt to the films that have room."""
        open_films = [
            film
            for film in range(len(self.films))
            if film not in self.refused and film not in self.full
        ]
        if not open_films or not pending:
            return {}
        rng = np.random.default_rng([_ALLOT, self.seed, number])
        counts = allot(len(pending), [self.films[film].patient_id for film in open_films], rng)
        taken: dict[int, list[Square]] = {}
        for own, square in self.placed.values():
            taken.setdefault(own, []).append(square)
        jobs, waiting = {}, iter(rng.permutation(pending).tolist())
        for film, count in zip(open_films, counts, strict=True):
            numbers = tuple(next(waiting) for _ in range(count))
            sides = tuple(self.sides[each] for each in numbers)
            settings = (self.folder, self.seed, self.limits)
            if numbers:
                others = tuple(taken.get(film, ()))
                jobs[film] = _Job(self.films[film], number, numbers, sides, others, *settings)
        return jobs

    def _records(self, jobs: Sequence[_Job]) -> Iterator[Record]:
        """What became of each job: from the journal where its files are there, else by doing it."""
        left = []
        for job in jobs:
            record = self.done.get((job.film.name, job.round))
            if record is not None and _complete(record, job):
                yield record
            else:
                self.done.pop((job.film.name, job.round), None)
                left.append(job)
        yield from in_processes(_cut_film, left, self.workers)

    def _take(self, film: int, record: Record) -> None:
        if record["error"]:
            self.refused[film] = record["error"]
            return
        self.placed.update({n: (film, tuple(square)) for n, square in record["squares"]})
        if record["missed"]:
            self.full[film] = [reason for _, reason in record["missed"]]
        other = self.contents.setdefault(record["content"], film)
        if other != film:
            self._refuse_twins(film, other)

    def _refuse_twins(self, film: int, other: int) -> None:
        """Two names of one picture: each may lack the lesions of the other, and splits may differ."""
        for each, twin in ((film, other), (other, film)):
            self.refused[each] = (
                f"the same picture as {self.films[twin].name}; "
                "name it once, with the lesions of both"
            )
        for number in [n for n, (own, _) in self.placed.items() if own in (film, other)]:
            del self.placed[number]
            crop_path(self.folder, number).unlink(missing_ok=True)


def _complete(record: Record, job: _Job) -> bool:
    asked = {number for number, _ in [*record["squares"], *record["missed"]]}
    there = all(crop_path(job.folder, number).is_file() for number, _ in record["squares"])
    return there and (asked == set(job.numbers)) and not record["error"]


def crop_path(folder: Path, number: int) -> Path:
    return folder / "images" / f"negative-{number:05d}.png"


def _cut_film(job: _Job) -> Record:
    """Place a film's squares, write their crops, and say what became of each."""
    record: Record = {"film": job.film.name, "round": job.round, "error": ""}
    record |= {"squares": [], "missed": [], "said": []}
    path = job.film.path
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            image = to_grey(read_image(path))
            avoid: list[Box | Mask] = [*job.film.boxes, *_masks(job.film, image.shape)]
        except UserError as error:
            return {**record, "error": f"cannot be read: {str(error).removeprefix(f'{path}: ')}"}
    # Only our own warnings, which begin with the path: others may quote what a header holds.
    said = [str(each.message) for each in caught if str(each.message).startswith(f"{path}: ")]
    record["said"] = [message.removeprefix(f"{path}: ") for message in said]
    outside = [
        box for box in job.film.boxes if box[0] >= image.shape[1] or box[1] >= image.shape[0]
    ]
    if outside:
        reason = f"a lesion box is outside the film of {image.shape[1]} x {image.shape[0]} pixels"
        return {**record, "error": reason}
    if not all(isinstance(lesion, tuple) or lesion.any() for lesion in avoid):
        return {**record, "error": "a lesion mask is empty, so that its place is not known"}
    name = int.from_bytes(hashlib.sha256(job.film.name.encode()).digest()[:8])
    rng = np.random.default_rng([_PLACES, job.seed, job.round, name])
    found = sample_squares(
        image, job.sides, len(job.sides), avoid, rng, job.limits, taken=job.taken
    )
    levels = to_16_bits(image)
    squares = [(job.numbers[at], square) for at, square in zip(found.numbers, found, strict=True)]
    for number, (x0, y0, x1, y1) in squares:
        png = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(levels[y0:y1, x0:x1])).save(png, "PNG")
        write_bytes(crop_path(job.folder, number), png.getvalue())
    record["content"] = hashlib.sha256(levels.tobytes()).hexdigest()
    record["squares"] = squares
    record["missed"] = [(job.numbers[each.number], each.reason) for each in found.missed]
    return record


def _masks(film: Film, size: tuple[int, ...]) -> list[Mask]:
    if not film.masks:
        return []
    from protopyramid.data.images import read_mask  # brings torch with it

    height, width = size
    return [read_mask(path, (height, width)) for path in film.masks]


# --- the files ---


def read_journal(path: Path) -> dict[tuple[str, int], Record]:
    """What was done of each film in each round; a line that was cut short is nothing."""
    found = {}
    if path.is_file():
        for line in path.read_bytes().splitlines():
            with suppress(ValueError, KeyError, TypeError):
                record = json.loads(line)
                found[record["film"], record["round"]] = record
    return found


def line(record: Record) -> bytes:
    return (json.dumps(record) + "\n").encode()
