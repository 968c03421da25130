"""Routes of explanations."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, UploadFile
from fastapi.responses import JSONResponse, Response

from protopyramid.errors import UserError
from protopyramid.reader.answers import parse_box
from protopyramid.reader.service import Reader, film_of


def explanation_routes(reader: Reader) -> APIRouter:
    """Explanations of images."""
    router = APIRouter()

    @router.post("/api/explain")
    async def explain(
        file: UploadFile | None = None,
        run: Annotated[str, Form()] = "",
        region: Annotated[str, Form(description="x0,y0,x1,y1: what the model is to see")] = "",
        lesion: Annotated[str, Form(description="x0,y0,x1,y1: the run adds its margin")] = "",
        image: Annotated[str, Form(description="id of an open image, instead of a file")] = "",
    ) -> Response:
        """Explain an image, or a region of it in pixels of the file."""
        if (file is None) == (not image):
            raise UserError("give either a file or the id of an open image")
        if region and lesion:
            raise UserError("give either a region or a lesion")
        reader.run(run)
        seen = parse_box(region, "region") if region else None
        marked = parse_box(lesion, "lesion") if lesion else None

        async def work() -> dict[str, Any]:
            film = reader.films.get(image) if file is None else await film_of(reader, file)
            return await reader.explain(run, film, seen, marked)

        return JSONResponse(await reader.with_room(work))

    return router
