"""Routes of a reader study: who reads, what is due, the answers, and what they add up to."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from protopyramid.reader.films import Film
from protopyramid.reader.readings.plan import BIRADS
from protopyramid.reader.readings.results import readings_csv, study_summary, summary_json
from protopyramid.reader.readings.store import LONGEST_SECONDS, Answer, Conflict, Due
from protopyramid.reader.service import Place, Reader, Study
from protopyramid.reader.settings import Refusal

Name = Annotated[str, Field(max_length=200, description="Name of the reader")]


class Who(BaseModel):
    """A reader by name."""

    model_config = ConfigDict(extra="forbid")

    reader: Name


class Given(BaseModel):
    """An answer to the case at a place in the reader's order, from 1."""

    model_config = ConfigDict(extra="forbid")

    reader: Name
    place: Annotated[int, Field(ge=1, le=10**6)]
    stage: Literal["unaided", "aided"]
    margin: Annotated[str, Field(max_length=200, description="One of the classes of the run")]
    confidence: Annotated[int, Field(ge=0, le=100, description="0 a guess, 100 certain")]
    birads: Literal["0", "1", "2", "3", "4A", "4B", "4C", "5", "6"]
    seconds: Annotated[
        float, Field(ge=0, le=LONGEST_SECONDS, description="Seconds that the case was in sight")
    ]


def reading_routes(reader: Reader) -> APIRouter:
    """A reader study: cases in a seeded order, first unaided, then with the model."""
    router = APIRouter()

    def study() -> Study:
        if reader.study is None:
            raise Refusal(404, "no reader study is served; start serve with --readings DIR")
        return reader.study

    @router.get("/api/readings")
    async def readings() -> dict[str, Any]:
        """The study, and how far its readers have come."""
        store = study().store
        people = await reader.in_thread(store.progress)
        return {
            "cases": len(store.plan.cases),
            "classes": list(store.plan.classes),
            "negative_class": store.plan.negative,
            "birads": list(BIRADS),
            "run": store.plan.run,
            "seed": store.plan.seed,
            "readers": [{"reader": each.reader, "done": each.done} for each in people],
        }

    @router.post("/api/readings/readers")
    async def begin(who: Who) -> dict[str, Any]:
        """Begin or continue as a reader."""
        return {"reader": await reader.in_thread(study().store.enrol, who.reader)}

    @router.post("/api/readings/open")
    async def open_due(who: Who) -> dict[str, Any]:
        """Open the case that is due: its film and, once the unaided answer is kept, the explanation."""
        chosen = study()

        async def work() -> dict[str, Any] | None:
            due = await reader.in_thread(chosen.store.due, who.reader)
            return None if due is None else await _opened(reader, chosen, who.reader, due)

        return {"cases": len(chosen.store.plan.cases), "due": await reader.with_room(work)}

    @router.post("/api/readings/answers")
    async def answer(given: Given) -> dict[str, Any]:
        """Keep an answer; it is on disk before this is answered."""
        said = Answer(given.margin, given.confidence, given.birads, given.seconds)
        store = study().store
        try:
            due = await reader.in_thread(
                store.answer, given.reader, given.place - 1, given.stage, said
            )
        except Conflict as conflict:
            raise Refusal(409, str(conflict)) from None
        return {"due": None if due is None else {"place": due.place + 1, "stage": due.stage}}

    @router.get("/api/readings/readings.csv", response_class=Response)
    async def table() -> Response:
        """All readings, one row per reader and case."""
        content = await reader.in_thread(readings_csv, study().store)
        headers = {"Content-Disposition": 'attachment; filename="readings.csv"'}
        return Response(content, media_type="text/csv; charset=utf-8", headers=headers)

    @router.get("/api/readings/summary")
    async def summary() -> dict[str, Any]:
        """AUROC, time, agreement, over-reliance and right corrections, with their intervals."""
        store = study().store
        found = await reader.in_thread(study_summary, store)
        return summary_json(store, found)

    return router


async def _opened(reader: Reader, study: Study, name: str, due: Due) -> dict[str, Any]:
    film = await _film(reader, study, due)
    shown = None
    if due.stage == "aided":
        shown = await reader.explain(study.run, lambda: film, Place(lesion=study.lesion(due.case)))
        await reader.in_thread(
            study.store.suggested, name, due, shown["predicted"], shown["probabilities"]
        )
    await reader.in_thread(study.store.opened, name, due)
    return {
        "place": due.place + 1,
        "stage": due.stage,
        "unaided": None if due.unaided is None else vars(due.unaided),
        "film": film.to_json(),
        "explanation": shown,
    }


async def _film(reader: Reader, study: Study, due: Due) -> Film:
    """The film of a case, under a name that tells nothing: file names often hold the class."""
    sample = study.samples[due.case]
    known = study.films.get(due.case, "")
    if reader.films.holds(known):
        return reader.films.get(known)
    film = await reader.open(sample.image, "the case", sample.box if study.boxes_shown else None)
    study.films[due.case] = film.id
    return film
