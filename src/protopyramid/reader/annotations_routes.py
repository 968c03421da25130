"""Routes of annotations: what is drawn on the cases of the manifest."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Form, Response, UploadFile

from protopyramid.data.geometry import Mask
from protopyramid.data.io.decoding import decode
from protopyramid.data.io.encoding import png_bytes
from protopyramid.data.io.memory import MemoryFile
from protopyramid.errors import UserError
from protopyramid.reader.annotations import WHITE, AnnotationFolder
from protopyramid.reader.answers import parse_box
from protopyramid.reader.films import check_source
from protopyramid.reader.service import Reader
from protopyramid.reader.settings import Limits, Refusal

HALF = 0.5  # brighter pixels of an uploaded mask are inside


def annotation_routes(reader: Reader) -> APIRouter:
    """Annotations of the cases: masks (white = inside) and lesion boxes."""
    router = APIRouter()

    def folder() -> AnnotationFolder:
        if reader.annotations is None:
            raise Refusal(404, "annotations are not served; start serve with --annotations DIR")
        return reader.annotations

    def known(number: int) -> int:
        if not 0 <= number < len(folder().samples):
            raise Refusal(404, "no such case")
        return number

    def one(number: int) -> dict[str, Any]:
        sample, drawn = folder().samples[number], folder().drawn(number)
        box = sample.box if drawn is None or drawn.box is None else drawn.box
        label = sample.label if drawn is None else drawn.label
        return {
            "number": number,
            "name": reader.called(number),
            "label": label if reader.study is None else "",
            "labelled": bool(sample.label),
            "annotation": "" if drawn is None else drawn.kind,
            "mask": sample.mask is not None or (drawn is not None and drawn.mask is not None),
            "box": None if box is None else list(box),
        }

    @router.get("/api/annotations")
    async def annotations() -> dict[str, Any]:
        """All cases, and what is drawn on them. `mask`: whether it has one, drawn here or its own."""
        return {"cases": [one(number) for number in range(len(folder().samples))]}

    @router.get("/api/annotations/{number}/mask.png", response_class=Response)
    async def mask(number: int) -> Response:
        """The mask of a case, as large as its image, white inside."""
        found = await reader.in_thread(folder().mask, known(number))
        if found is None:
            raise Refusal(404, "the case has no mask")
        content = await reader.in_thread(png_bytes, found.astype(np.uint8) * WHITE)
        return Response(content, media_type="image/png")

    @router.put("/api/annotations/{number}")
    async def save(
        number: int,
        mask: UploadFile | None = None,
        box: Annotated[str, Form(description="Lesion box, x0,y0,x1,y1")] = "",
        label: Annotated[str, Form(max_length=200, description="Class of an unlabelled case")] = "",
    ) -> dict[str, Any]:
        """Keep what is drawn on a case: a mask (a picture as large as the image, white inside), a box."""
        chosen, place = folder(), known(number)
        content = None if mask is None else await mask.read()
        edges = parse_box(box, "box") if box else None
        if label and not any(label in run.config.data.classes for run in reader.runs.values()):
            raise UserError("label: is not a class of the models served; choose one of theirs")

        def work() -> dict[str, Any]:
            inside = None if content is None else read_drawn(content, reader.limits)
            given = label if not chosen.samples[place].label else ""
            chosen.save(place, inside, edges, given)
            return one(place)

        return await reader.in_thread(work)

    @router.delete("/api/annotations/{number}")
    async def remove(number: int) -> dict[str, Any]:
        """Take back what is drawn on a case."""
        await reader.in_thread(folder().remove, known(number))
        return one(number)

    return router


def read_drawn(content: bytes, limits: Limits) -> Mask:
    """The mask (H, W) in an uploaded picture: True where it is bright."""
    source = MemoryFile(content, "")
    check_source(source, limits)
    values = decode(source).image
    inside: Mask = (values if values.ndim == 2 else values.max(2)) > HALF
    return inside
