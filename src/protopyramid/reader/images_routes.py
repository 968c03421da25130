"""Routes of images: opening them, their tiles and pictures, and the cases of the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response, UploadFile

from protopyramid.data.geometry import Region
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.reader.answers import parse_box
from protopyramid.reader.films import Film, case_film
from protopyramid.reader.service import Reader, uploaded
from protopyramid.reader.settings import Refusal

KEPT = {"Cache-Control": "private, max-age=600"}
PICTURE_SIDE = 1024  # pixels of the longer side of a region's picture, at most
Low = Annotated[float, Query(description="Value shown as black", ge=-10, le=10)]
High = Annotated[float, Query(description="Value shown as white", ge=-10, le=10)]


def image_routes(reader: Reader) -> APIRouter:
    """Images that are opened, as tiles and pictures, and the cases of the manifest."""
    router = APIRouter()

    def known_case(number: int) -> Sample:
        if not 0 <= number < len(reader.cases):
            raise Refusal(404, "no such case")
        return reader.cases[number]

    @router.post("/api/images")
    async def upload(file: UploadFile) -> dict[str, Any]:
        """Open an image. It is kept in memory only, until others need the room."""

        async def work() -> Film:
            return await reader.open(*await uploaded(file))

        return (await reader.with_room(work)).to_json()

    @router.get("/api/images/{image}")
    async def opened(image: str) -> dict[str, Any]:
        """An open image: size, spacing, levels of its pyramid."""
        return reader.films.get(image).to_json()

    @router.get("/api/images/{image}/tiles/{level}/{column}/{row}", response_class=Response)
    async def tile(
        image: str, level: int, column: int, row: int, low: Low = 0.0, high: High = 1.0
    ) -> Response:
        """A tile of an open image as 8-bit PNG; level 0 is the finest."""
        film = reader.films.get(image)
        return _png(await reader.in_thread(film.tile, level, column, row, low, high))

    @router.get("/api/images/{image}/values/{level}/{column}/{row}", response_class=Response)
    async def values(image: str, level: int, column: int, row: int) -> Response:
        """A tile of an open image as 16-bit little-endian values, its height and width in headers."""
        film = reader.films.get(image)
        content, (height, width) = await reader.in_thread(film.values, level, column, row)
        size = {"X-Height": str(height), "X-Width": str(width)}
        return Response(content, media_type="application/octet-stream", headers={**KEPT, **size})

    @router.get("/api/images/{image}/picture", response_class=Response)
    async def picture(
        image: str,
        region: str,
        low: Low = 0.0,
        high: High = 1.0,
        side: Annotated[int, Query(ge=16, le=PICTURE_SIDE)] = 448,
    ) -> Response:
        """A region x0,y0,x1,y1 of an open image as 8-bit PNG; black beyond the image."""
        film, box = reader.films.get(image), parse_box(region, "region")
        x0, y0, x1, y1 = box
        if (x1 - x0) * (y1 - y0) > reader.limits.pixels:
            raise UserError("region: is larger than is accepted; ask for a smaller one")
        place = Region(
            round(x0), round(y0), max(round(x1), round(x0) + 1), max(round(y1), round(y0) + 1)
        )
        return _png(await reader.in_thread(film.picture, place, side, low, high))

    @router.get("/api/cases")
    async def cases() -> dict[str, Any]:
        """The cases of the manifest that the server was started with.

        While a reader study is served, names and labels are left out: readers must not know them.
        """
        found = [
            {
                "number": number,
                "name": reader.called(number),
                "label": case.label if reader.study is None else "",
                "split": case.split,
            }
            for number, case in enumerate(reader.cases)
        ]
        return {"cases": found}

    @router.post("/api/cases/{number}")
    async def open_case(number: int) -> dict[str, Any]:
        """Open the image of a case."""
        case = known_case(number)

        async def work() -> Film:
            return await reader.open(case.image, reader.called(number), reader.marked(number))

        return (await reader.with_room(work)).to_json()

    @router.post("/api/cases/{number}/film")
    async def open_film_of(number: int) -> dict[str, Any]:
        """Open the film that a case was cut from, where the manifest names it; else the case itself.

        `crop`: the part of the film that the case is, x0, y0, x1, y1 in its pixels; null for the case itself.
        """
        source = case_film(known_case(number), reader.manifest)

        async def work() -> Film:
            if source is None:
                case = reader.cases[number]
                return await reader.open(case.image, reader.called(number), reader.marked(number))
            return await reader.open(source.image, Path(source.image).name)

        film = await reader.with_room(work)
        return {**film.to_json(), "crop": None if source is None else list(source.crop)}

    return router


def _png(content: bytes) -> Response:
    return Response(content, media_type="image/png", headers=KEPT)
