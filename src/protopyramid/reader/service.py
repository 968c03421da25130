"""What the reader serves: runs, cases and open films, and the threads that do the work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple, TypeVar

from fastapi import UploadFile

from protopyramid.data.geometry import Box
from protopyramid.data.io.memory import MemoryFile, Source
from protopyramid.data.manifest import Sample
from protopyramid.explanations.explanation import Explanation, PreparedImage, explain_batch
from protopyramid.reader.annotations import AnnotationFolder
from protopyramid.reader.answers import (
    Saving,
    explain_to_save,
    explain_with_evidence,
    explain_with_saliency,
    explanation_json,
    prepare_request,
    region_json,
)
from protopyramid.reader.films import Film, FilmStore, open_film
from protopyramid.reader.prototype_study import PrototypeStudy
from protopyramid.reader.readings.plan import make_plan, study_samples
from protopyramid.reader.readings.store import ReadingStore
from protopyramid.reader.settings import Limits, Refusal, busy
from protopyramid.reader.worker import InferenceWorker, Work
from protopyramid.runs.run import Run

Result = TypeVar("Result")

LONGEST_NAME = 200


@dataclass
class Study:
    """A reader study that is served: its answers, its cases, and the run that aids readers."""

    store: ReadingStore
    samples: Sequence[Sample]
    run: str
    cropped: bool  # whether the run sees the square around a lesion box
    films: dict[int, str] = field(default_factory=dict)  # ids of open films, by case

    def lesion(self, case: int) -> Box | None:
        """The lesion that the model is to look at; None for all of the image."""
        return self.samples[case].box if self.cropped else None

    @property
    def boxes_shown(self) -> bool:
        """Whether readers are shown lesion boxes.

        Where only some cases have one, its absence would tell which are negative. A model that sees the
        square around the box needs it, though, and so do its readers.
        """
        return self.cropped or all(each.box is not None for each in self.samples)


Opening = Callable[[], Film]  # a film that is open, or that is decoded when it is called


class Place(NamedTuple):
    """What of a film is explained: a region, the square around a lesion, or (neither) all of it."""

    region: Box | None = None
    lesion: Box | None = None


class Reader:
    """The runs and cases that are served, the films that are open, and the threads that do the work."""

    def __init__(
        self, runs: Sequence[Run], cases: Sequence[Sample] = (), limits: Limits | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.runs = _named(runs)
        self.cases = list(cases)[: self.limits.cases]
        self.case_numbers = {case.name: number for number, case in enumerate(self.cases)}
        self.manifest: Path | None = None  # the table that the cases come from
        self.films = FilmStore(self.limits.films_bytes)
        self.worker = InferenceWorker(self.limits.waiting, self.limits.batch)
        self._pool = ThreadPoolExecutor(self.limits.decoders, thread_name_prefix="decode")
        self._in_hand = 0
        self.study: Study | None = None
        self.annotations: AnnotationFolder | None = None
        self._prototype_studies: dict[int, PrototypeStudy] = {}
        self._lock = threading.Lock()

    def prototype_study(self, run: Run) -> PrototypeStudy:
        """What a run's prototypes do; begun when it is first asked for."""
        with self._lock:
            if id(run) not in self._prototype_studies:
                self._prototype_studies[id(run)] = PrototypeStudy(run, self.manifest)
            return self._prototype_studies[id(run)]

    def add_run(self, run: Run) -> str:
        """Serve one more run; its name."""
        with self._lock:
            self.runs = _named([*self.runs.values(), run])
            return list(self.runs)[-1]

    def close(self) -> None:
        """End the threads and close the files."""
        for study in self._prototype_studies.values():
            study.close()
        self.worker.close()
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self.study is not None:
            self.study.store.close()
        if self.annotations is not None:
            self.annotations.close()

    def serve_study(self, folder: Path, seed: int) -> None:
        """Serve a reader study of the cases with the first run; its answers are kept in a folder."""
        name, run = next(iter(self.runs.items()))
        samples = study_samples(self.cases)
        store = ReadingStore.create(folder, make_plan(run, name, samples, seed))
        self.study = Study(store, samples, name, run.config.data.crop == "lesion")

    def serve_annotations(self, folder: Path, data: Path | None) -> None:
        """Let the cases of the manifest `data` be annotated; what is drawn is kept in a folder."""
        self.annotations = AnnotationFolder(folder, self.cases, data)

    def called(self, number: int) -> str:
        """What a case is called; readers of a study must not learn its name, which may hold the class."""
        return self.cases[number].name if self.study is None else f"case {number + 1}"

    def marked(self, number: int) -> Box | None:
        """The lesion box of a case that is shown: readers of a study must not learn from it, either."""
        box = self.cases[number].box
        return box if self.study is None or self.study.boxes_shown else None

    def run(self, name: str) -> Run:
        """A run by its name; "" where there is only one."""
        if not name and len(self.runs) == 1:
            return next(iter(self.runs.values()))
        if name not in self.runs:
            raise Refusal(404, f"no such run; those served are {', '.join(self.runs)}")
        return self.runs[name]

    async def in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Decode or draw beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    async def with_room(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Do something costly, unless too much of it is in hand already."""
        if self._in_hand >= self.limits.waiting:
            raise busy()
        self._in_hand += 1
        try:
            return await work()
        finally:
            self._in_hand -= 1

    async def open(self, source: Source, name: str, lesion: Box | None = None) -> Film:
        """Decode an image and keep it; what a page first asks of it is computed beside the event loop."""

        def work() -> Film:
            film = open_film(source, name, self.limits, lesion)
            film.to_json()
            return film

        film = await self.in_thread(work)
        self.films.add(film)
        return film

    async def explain(
        self,
        name: str,
        opening: Opening,
        place: Place,
        saliency: bool = False,
        write: Callable[[dict[str, Any]], Any] = dict,
        evidence: Sequence[int] = (),
    ) -> Any:
        """The explanation of a place on a film, with Grad-CAM of the predicted class if asked.

        As JSON values, or as what `write` makes of them. evidence: prototypes whose evidence regions are
        found, too; such a request has a pass of its own, since it takes many times as long as others.
        """
        work: Work = explain_with_saliency if saliency else explain_batch
        if evidence:
            work = partial(explain_with_evidence, evidence)
        found = await self._ask(name, opening, place, work)

        def answer() -> Any:
            if not saliency:
                return write(self._json(found))
            explanation, region = found
            return write({**self._json(explanation), "saliency": region_json(region)})

        return await self.in_thread(answer)

    async def explanation(
        self, name: str, opening: Opening, place: Place, saving: Saving
    ) -> Explanation:
        """The explanation itself, with what was asked back, ready to be drawn."""
        work: Work = partial(explain_to_save) if saving.evidence else explain_to_save  # slow: alone
        found: Explanation = await self._ask(name, opening, place, work, saving)
        return found

    async def _ask(
        self, name: str, opening: Opening, place: Place, work: Work, saving: Saving | None = None
    ) -> Any:
        """What the networks' thread makes of a place on a film."""
        run = self.run(name)

        def prepare() -> PreparedImage:
            film = opening()
            return prepare_request(
                run,
                film.seen_by(run.config.data.dicom),
                film.spacing,
                film.name,
                place.region,
                place.lesion,
                self.limits.pixels,
            )

        prepared = await self.in_thread(prepare)
        item = prepared if saving is None else (prepared, saving)
        return await asyncio.wrap_future(self.worker.submit(run, work, item))

    def _json(self, explanation: Explanation) -> dict[str, Any]:
        called = next(key for key, value in self.runs.items() if value is explanation.run)
        return explanation_json(explanation, called, self.case_numbers)


async def upload_opening(reader: Reader, file: UploadFile) -> Opening:
    """How to open an uploaded image that is not kept."""
    source, name = await uploaded(file)
    return lambda: open_film(source, name, reader.limits)


async def uploaded(file: UploadFile) -> tuple[MemoryFile, str]:
    """The content of an upload, and what it is called."""
    name = PurePosixPath(PureWindowsPath(file.filename or "image").name).name[-LONGEST_NAME:]
    return MemoryFile(await file.read(), PurePosixPath(name).suffix), name or "image"


def _named(runs: Sequence[Run]) -> dict[str, Run]:
    """The runs by their names, each used once."""
    found: dict[str, Run] = {}
    for run in runs:
        name, number = run.name, 2
        while name in found:
            name, number = f"{run.name}-{number}", number + 1
        found[name] = run
    return found
