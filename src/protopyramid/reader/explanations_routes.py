"""Routes of explanations: as JSON for the page and for programs, and as files to save."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Form, UploadFile
from fastapi.responses import JSONResponse, Response

from protopyramid.errors import UserError
from protopyramid.explanations.explanation import Explanation
from protopyramid.reader.answers import Saving, parse_box, parse_factors, parse_indices
from protopyramid.reader.service import Opening, Place, Reader, upload_opening

# What an explanation can be saved as. DICOM results will have their entry here.
FORMATS = {"png": "image/png", "pdf": "application/pdf", "json": "application/json"}

RunName = Annotated[str, Form()]
RegionField = Annotated[str, Form(description="x0,y0,x1,y1: what the model is to see")]
LesionField = Annotated[str, Form(description="x0,y0,x1,y1: the run adds its margin")]
FactorsField = Annotated[
    str, Form(description='how many times as much a prototype counts, as in {"28": 0, "18": 0.4}')
]
AgainstField = Annotated[str, Form(description="class that the predicted one is compared with")]
EvidenceField = Annotated[
    str,
    Form(description="prototypes whose evidence regions are to be found, as in 28,8: seconds each"),
]
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
        evidence: EvidenceField = "",
    ) -> Response:
        """Explain an image, or a region of it in pixels of the file."""
        place, indices = _asked(file, image, region, lesion), parse_indices(evidence)
        if saliency and indices:
            raise UserError("give either saliency or evidence")
        reader.run(run)

        async def work() -> Response:
            opening = await _opening(reader, file, image)
            answer: Response = await reader.explain(
                run, opening, place, saliency, JSONResponse, indices
            )
            return answer

        return await reader.with_room(work)

    @router.post("/api/explain/{form}", response_class=Response)
    async def save(
        form: str,
        file: UploadFile | None = None,
        run: RunName = "",
        region: RegionField = "",
        lesion: LesionField = "",
        image: ImageField = "",
        factors: FactorsField = "",
        against: AgainstField = "",
        evidence: Annotated[
            bool, Form(description="outline evidence regions: takes seconds")
        ] = False,
    ) -> Response:
        """The explanation as a file: png or pdf (the case-based figure), or json; with what is asked back."""
        if form not in FORMATS:
            raise UserError(f"cannot save as this; the formats are {', '.join(FORMATS)}")
        place = _asked(file, image, region, lesion)
        saving = Saving(parse_factors(factors), against or None, evidence)
        reader.run(run)

        async def work() -> bytes:
            opening = await _opening(reader, file, image)
            explanation = await reader.explanation(run, opening, place, saving)
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


async def _opening(reader: Reader, file: UploadFile | None, image: str) -> Opening:
    if file is not None:
        return await upload_opening(reader, file)
    film = reader.films.get(image)
    return lambda: film
