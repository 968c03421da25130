"""Routes of explanations: as JSON for the page and for programs, and as files to save."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Form, UploadFile
from fastapi.responses import JSONResponse, Response

from protopyramid.errors import UserError
from protopyramid.explanations.explanation import Explanation
from protopyramid.reader.answers import parse_box
from protopyramid.reader.films import Film
from protopyramid.reader.service import Place, Reader, film_of

# What an explanation can be saved as. DICOM results will have their entry here.
FORMATS = {"png": "image/png", "pdf": "application/pdf", "json": "application/json"}

RunName = Annotated[str, Form()]
RegionField = Annotated[str, Form(description="x0,y0,x1,y1: what the model is to see")]
LesionField = Annotated[str, Form(description="x0,y0,x1,y1: the run adds its margin")]
ImageField = Annotated[str, Form(description="id of an open image, instead of a file")]


def explanation_routes(reader: Reader) -> APIRouter:
    """Explanations of images."""
    router = APIRouter()

    @router.post("/api/explain")
    async def explain(
        file: UploadFile | None = None,
        run: RunName = "",
        region: RegionField = "",
        lesion: LesionField = "",
        image: ImageField = "",
        saliency: Annotated[bool, Form(description="Grad-CAM of the predicted class, too")] = False,
    ) -> Response:
        """Explain an image, or a region of it in pixels of the file."""
        place = _asked(file, image, region, lesion)
        reader.run(run)

        async def work() -> dict[str, Any]:
            film = await _film(reader, file, image)
            return await reader.explain(run, film, place, saliency)

        return JSONResponse(await reader.with_room(work))

    @router.post("/api/explain/{form}", response_class=Response)
    async def save(
        form: str,
        file: UploadFile | None = None,
        run: RunName = "",
        region: RegionField = "",
        lesion: LesionField = "",
        image: ImageField = "",
    ) -> Response:
        """The explanation as a file: png or pdf (the case-based figure), or json."""
        if form not in FORMATS:
            raise UserError(f"cannot save as this; the formats are {', '.join(FORMATS)}")
        place = _asked(file, image, region, lesion)
        reader.run(run)

        async def work() -> bytes:
            film = await _film(reader, file, image)
            explanation = await reader.explanation(run, film, place)
            return await reader.in_thread(saved, explanation, form)

        content = await reader.with_room(work)
        return Response(content, media_type=FORMATS[form], headers=_attachment(form))

    return router


def saved(explanation: Explanation, form: str) -> bytes:
    """An explanation in one of FORMATS."""
    if form == "json":
        return json.dumps(explanation.to_json(), indent=1).encode()
    from protopyramid.figures.drawing import figure_bytes

    return figure_bytes(explanation.sheet(), form)


def _attachment(form: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="explanation.{form}"'}


def _asked(file: UploadFile | None, image: str, region: str, lesion: str) -> Place:
    """What is asked for; UserError where the fields contradict each other."""
    if (file is None) == (not image):
        raise UserError("give either a file or the id of an open image")
    if region and lesion:
        raise UserError("give either a region or a lesion")
    return Place(
        parse_box(region, "region") if region else None,
        parse_box(lesion, "lesion") if lesion else None,
    )


async def _film(reader: Reader, file: UploadFile | None, image: str) -> Film:
    return reader.films.get(image) if file is None else await film_of(reader, file)
