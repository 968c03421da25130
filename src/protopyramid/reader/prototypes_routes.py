"""Routes of the gallery: what prototypes do on the served cases, their neighbours, and edited models."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from protopyramid.data.images import prepare_sample
from protopyramid.data.manifest import Sample
from protopyramid.reader.images_routes import KEPT
from protopyramid.reader.runs_routes import known_prototype
from protopyramid.reader.service import Reader
from protopyramid.reader.settings import Refusal
from protopyramid.runs.run import Run
from protopyramid.training.finish import picture_bytes


def prototype_routes(reader: Reader) -> APIRouter:
    """The gallery of prototypes."""
    router = APIRouter()

    @router.get("/api/runs/{run}/use")
    async def use(run: str) -> dict[str, Any]:
        """How often each prototype matters on the served cases; computed when it is first asked for."""
        chosen = reader.run(run)
        if not reader.cases or not chosen.prototypes:
            return {"cases": 0, "looked_at": 0, "counted": 0, "error": None, "prototypes": None}
        return reader.survey(chosen).to_json()

    @router.get("/api/runs/{run}/prototypes/{index}/neighbours")
    async def neighbours(run: str, index: int) -> dict[str, Any]:
        """The served cases nearest to a prototype, those of training where there are any."""
        chosen = reader.run(run)
        known_prototype(chosen, index)
        if not reader.cases:
            raise Refusal(404, "no cases are served; start the reader with --data MANIFEST")
        found = await reader.in_thread(reader.survey(chosen).neighbours, index)
        return {"neighbours": found}

    @router.get("/api/runs/{run}/cases/{number}.png", response_class=Response)
    async def picture(run: str, number: int) -> Response:
        """A served case, as a run's model sees it."""
        chosen = reader.run(run)
        if not 0 <= number < len(reader.cases):
            raise Refusal(404, "no such case")
        content = await reader.in_thread(_seen, chosen, reader.cases[number])
        return Response(content, media_type="image/png", headers=KEPT)

    return router


def _seen(run: Run, case: Sample) -> bytes:
    return picture_bytes(prepare_sample(case, run.config.data).image)
