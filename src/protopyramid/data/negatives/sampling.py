"""Sampling of patches from many films: in rounds, in parallel, with a journal to resume from.

Every round allocates the patches that have no place yet to the films that still have room. What a film
gives depends on the seed, the round and the film's name alone, so that the number of processes changes
nothing and a round that was stopped continues from its journal.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protopyramid.data.cropping import to_16_bits, to_grey
from protopyramid.data.io.decoding import read_image
from protopyramid.data.io.encoding import png_bytes
from protopyramid.data.manifest import Box
from protopyramid.data.masks import read_mask
from protopyramid.data.negatives.patches import Limits, Mask, Patch, sample_patches
from protopyramid.data.negatives.sources import Film
from protopyramid.errors import UserError
from protopyramid.utils.files import write_bytes
from protopyramid.utils.journal import Journal
from protopyramid.utils.processes import in_processes

ROUNDS = 4  # how often patches without a place are tried on other films
# Streams of random numbers that must differ.
_ALLOCATION, _PLACES = 2, 4

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class FilmRecord:
    """What one film gave in one round: a line of the journal.

    patches and unplaced: numbers of patches, with their places or why there is none. content: hash of
    the film's pixels. With an error, the film gives nothing.
    """

    film: str
    round: int
    patches: tuple[tuple[int, Patch], ...] = ()
    unplaced: tuple[tuple[int, str], ...] = ()
    warnings: tuple[str, ...] = ()
    content: str = ""
    error: str = ""


def patches_per_film(count: int, patients: Sequence[str], rng: np.random.Generator) -> list[int]:
    """How many patches to sample from each film; `patients` has the patient of every film.

    Patients give the same number, but for one, and so do the films of a patient.

    >>> patches_per_film(6, ["a", "a", "b"], np.random.default_rng(0))[2]
    3
    """
    films: dict[str, list[int]] = {}
    for number in rng.permutation(len(patients)):
        films.setdefault(patients[number], []).append(int(number))
    counts = [0] * len(patients)
    by_patient = list(films.values())
    for number in range(count):
        own = by_patient[number % len(by_patient)]
        counts[own[number // len(by_patient) % len(own)]] += 1
    return counts


@dataclass(frozen=True)
class _Job:
    """Patches to sample from one film in one round; `taken` are those that it has given already."""

    film: Film
    round: int
    numbers: tuple[int, ...]
    sides: tuple[int, ...]
    taken: tuple[Patch, ...]
    folder: Path
    seed: int
    limits: Limits


@dataclass
class PatchSampler:
    """Which patch is where, and which are still to be placed. Films are known by their index."""

    films: Sequence[Film]
    sides: Sequence[int]
    folder: Path
    seed: int
    limits: Limits
    workers: int
    progress: Progress | None
    placed: dict[int, tuple[int, Patch]] = field(default_factory=dict)  # number -> film, patch
    refused: dict[int, str] = field(default_factory=dict)  # film -> why it gives nothing
    full: dict[int, list[str]] = field(default_factory=dict)  # film -> why patches had no place
    contents: dict[str, int] = field(default_factory=dict)  # hash of a film's pixels -> film
    records: list[FilmRecord] = field(default_factory=list)  # in the order of rounds and films

    def run(self, journal: Journal[FilmRecord]) -> None:
        """Place the patches, in rounds while some have no place and some films have room."""
        done = {(record.film, record.round): record for record in journal.read()}
        for number in range(ROUNDS):
            pending = [each for each in range(len(self.sides)) if each not in self.placed]
            jobs = self._jobs(number, pending)
            if not jobs:
                break
            by_name = {self.films[film].name: film for film in jobs}
            records: dict[int, FilmRecord] = {}
            for record in self._records(list(jobs.values()), done):
                if (record.film, number) not in done:
                    journal.append(record)
                records[by_name[record.film]] = record
                if self.progress is not None:
                    self.progress(len(records), len(jobs))
            for film in sorted(records):
                self.records.append(records[film])
                self._add(film, records[film])
        journal.replace(self.records)

    def _jobs(self, round_number: int, pending: Sequence[int]) -> dict[int, _Job]:
        """The pending patches, allocated to the films that have room."""
        open_films = [
            film
            for film in range(len(self.films))
            if film not in self.refused and film not in self.full
        ]
        if not open_films or not pending:
            return {}
        rng = np.random.default_rng([_ALLOCATION, self.seed, round_number])
        patients = [self.films[film].patient_id for film in open_films]
        counts = patches_per_film(len(pending), patients, rng)
        taken: dict[int, list[Patch]] = {}
        for own, patch in self.placed.values():
            taken.setdefault(own, []).append(patch)
        jobs, waiting = {}, iter(rng.permutation(pending).tolist())
        for film, count in zip(open_films, counts, strict=True):
            numbers = tuple(next(waiting) for _ in range(count))
            sides = tuple(self.sides[each] for each in numbers)
            settings = (self.folder, self.seed, self.limits)
            if numbers:
                others = tuple(taken.get(film, ()))
                jobs[film] = _Job(self.films[film], round_number, numbers, sides, others, *settings)
        return jobs

    def _records(
        self, jobs: Sequence[_Job], done: dict[tuple[str, int], FilmRecord]
    ) -> Iterator[FilmRecord]:
        """What became of each job: from the journal where its files are there, else by doing it."""
        left = []
        for job in jobs:
            record = done.get((job.film.name, job.round))
            if record is not None and _complete(record, job):
                yield record
            else:
                done.pop((job.film.name, job.round), None)
                left.append(job)
        yield from in_processes(_sample_film, left, self.workers)

    def _add(self, film: int, record: FilmRecord) -> None:
        if record.error:
            self.refused[film] = record.error
            return
        self.placed.update({number: (film, patch) for number, patch in record.patches})
        if record.unplaced:
            self.full[film] = [reason for _, reason in record.unplaced]
        other = self.contents.setdefault(record.content, film)
        if other != film:
            self._refuse_twins(film, other)

    def _refuse_twins(self, film: int, other: int) -> None:
        """Two names of one picture: each may lack the lesions of the other, and splits may differ."""
        for each, twin in ((film, other), (other, film)):
            self.refused[each] = (
                f"the same picture as {self.films[twin].name}; "
                "list it once, with the lesions of both"
            )
        for number in [n for n, (own, _) in self.placed.items() if own in (film, other)]:
            del self.placed[number]
            patch_path(self.folder, number).unlink(missing_ok=True)


def _complete(record: FilmRecord, job: _Job) -> bool:
    """Whether a record answers a job, and its files are there."""
    numbers = [number for number, _ in (*record.patches, *record.unplaced)]
    if record.error or sorted(numbers) != sorted(job.numbers):
        return False
    return all(patch_path(job.folder, number).is_file() for number, _ in record.patches)


def patch_path(folder: Path, number: int) -> Path:
    """The file of a patch."""
    return folder / "images" / f"negative-{number:05d}.png"


def _sample_film(job: _Job) -> FilmRecord:
    """Place a film's patches, write them, and record what became of each."""
    path = job.film.path
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            image = to_grey(read_image(path))
            avoid = _lesions(job.film, (image.shape[0], image.shape[1]))
        except UserError as error:
            reason = f"cannot be read: {str(error).removeprefix(f'{path}: ')}"
            return FilmRecord(job.film.name, job.round, error=reason)
    # Only our own warnings, which begin with the path: others may quote what a header holds.
    texts = [str(each.message) for each in caught]
    ours = tuple(text.removeprefix(f"{path}: ") for text in texts if text.startswith(f"{path}: "))
    problem = _lesion_problem(avoid, image.shape)
    if problem:
        return FilmRecord(job.film.name, job.round, warnings=ours, error=problem)
    name = int.from_bytes(hashlib.sha256(job.film.name.encode()).digest()[:8])
    rng = np.random.default_rng([_PLACES, job.seed, job.round, name])
    sample = sample_patches(
        image, job.sides, len(job.sides), avoid, rng, job.limits, taken=job.taken
    )
    levels = to_16_bits(image)
    patches = [(job.numbers[at], patch) for at, patch in zip(sample.numbers, sample, strict=True)]
    for number, patch in patches:
        _write_patch(patch_path(job.folder, number), levels, patch)
    return FilmRecord(
        film=job.film.name,
        round=job.round,
        patches=tuple(patches),
        unplaced=tuple((job.numbers[each.number], each.reason) for each in sample.unplaced),
        warnings=ours,
        content=hashlib.sha256(levels.tobytes()).hexdigest(),
    )


def _lesions(film: Film, size: tuple[int, int]) -> list[Box | Mask]:
    return [*film.boxes, *(read_mask(path, size) for path in film.masks)]


def _lesion_problem(lesions: Sequence[Box | Mask], shape: tuple[int, ...]) -> str:
    """Why the place of a lesion is not known, if so."""
    height, width = shape
    for lesion in lesions:
        if isinstance(lesion, tuple) and (lesion[0] >= width or lesion[1] >= height):
            return f"a lesion box is outside the film of {width} x {height} pixels"
    if not all(isinstance(lesion, tuple) or lesion.any() for lesion in lesions):
        return "a lesion mask is empty, so the place of the lesion is unknown"
    return ""


def _write_patch(path: Path, levels: NDArray[np.uint16], patch: Patch) -> None:
    x0, y0, x1, y1 = patch
    write_bytes(path, png_bytes(np.ascontiguousarray(levels[y0:y1, x0:x1])))
