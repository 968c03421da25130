"""Routes of runs: what is served, and the cases of prototypes."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Response

from protopyramid.reader.answers import case_regions, run_json, run_summary
from protopyramid.reader.service import Reader
from protopyramid.reader.settings import Refusal
from protopyramid.runs.run import Run


def run_routes(reader: Reader) -> APIRouter:
    """The runs that are served."""
    router = APIRouter()

    @router.get("/api/runs")
    async def runs() -> dict[str, Any]:
        """The runs that are served, and the limits of the server."""
        found = [run_summary(run, name) for name, run in reader.runs.items()]
        limits = {"upload_bytes": reader.limits.upload_bytes, "pixels": reader.limits.pixels}
        return {
            "runs": found,
            "cases": len(reader.cases),
            "limits": limits,
            "readings": reader.study is not None,
            "annotations": reader.annotations is not None,
        }

    @router.get("/api/runs/{run}")
    async def one_run(run: str) -> dict[str, Any]:
        """A run: classes, prototypes with their pictures, model card."""
        return await reader.in_thread(run_json, reader.run(run), run, reader.case_numbers)

    @router.get("/api/runs/{run}/prototypes/{index}.png", response_class=Response)
    async def picture(run: str, index: int) -> Response:
        """The case of a prototype, as the model sees it."""
        chosen = reader.run(run)
        content = await reader.in_thread(chosen.cases.png, known_prototype(chosen, index))
        return Response(
            content, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"}
        )

    @router.get("/api/runs/{run}/prototypes/{index}/contours")
    async def contours(run: str, index: int) -> dict[str, Any]:
        """Where a prototype activates on its own case: closed lines x, y, x, y, … in fractions, and a map."""
        chosen = reader.run(run)
        known_prototype(chosen, index)
        waiting = reader.worker.submit(chosen, case_regions, index)
        found: dict[str, Any] = await asyncio.wrap_future(waiting)
        return found

    return router


def known_prototype(run: Run, index: int) -> int:
    if not any(record.index == index for record in run.prototypes):
        raise Refusal(404, "no such prototype")
    return index
