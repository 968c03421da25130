"""The web application: runs, images and explanations under /api, and the page.

Example::

    application = create_application(Reader([load_run("runs/demo")]), Access("127.0.0.1", 8000))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Form, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser
from starlette.types import ASGIApp

from protopyramid import __version__
from protopyramid.data.geometry import Box, Region
from protopyramid.data.io.memory import MemoryFile, Source
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.explanations.explanation import Explanation, explain_batch
from protopyramid.reader.answers import (
    case_contours,
    explanation_json,
    parse_box,
    prepare_request,
    run_json,
    run_summary,
)
from protopyramid.reader.films import Film, FilmStore, open_film
from protopyramid.reader.pages import page_files
from protopyramid.reader.settings import Limits, Refusal, busy
from protopyramid.reader.shield import Access, Shield
from protopyramid.reader.worker import InferenceWorker
from protopyramid.runs.run import Run

Result = TypeVar("Result")

LONGEST_NAME = 200
PICTURE_SIDE = 1024  # pixels of the longer side of a region's picture, at most


class Reader:
    """The runs and cases that are served, the films that are open, and the threads that do the work."""

    def __init__(
        self, runs: Sequence[Run], cases: Sequence[Sample] = (), limits: Limits | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.runs = _named(runs)
        self.cases = list(cases)[: self.limits.cases]
        self.films = FilmStore(self.limits.films_bytes)
        self.worker = InferenceWorker(self.limits.waiting, self.limits.batch)
        self._pool = ThreadPoolExecutor(self.limits.decoders, thread_name_prefix="decode")
        self._in_hand = 0

    def close(self) -> None:
        """End the threads."""
        self.worker.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

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
        """Decode an image and keep it."""
        film = await self.in_thread(open_film, source, name, self.limits, lesion)
        self.films.add(film)
        return film

    async def explain(
        self, name: str, film: Film, region: Box | None, lesion: Box | None
    ) -> dict[str, Any]:
        """The explanation of a region of a film, of the square around a lesion, or of all of it."""
        run = self.run(name)
        called = next(key for key, value in self.runs.items() if value is run)

        def prepare() -> Any:
            decoded = film.seen_by(run.config.data.dicom)
            return prepare_request(
                run, decoded, film.spacing, film.name, region, lesion, self.limits.pixels
            )

        prepared = await self.in_thread(prepare)
        waiting = self.worker.submit(run, explain_batch, prepared)
        explanation: Explanation = await asyncio.wrap_future(waiting)
        return await self.in_thread(explanation_json, explanation, called)


def create_application(reader: Reader, access: Access) -> ASGIApp:
    """The application behind its shield."""
    # Uploads stay in memory: larger ones would be written to a temporary file.
    MultiPartParser.spool_max_size = max(
        MultiPartParser.spool_max_size, reader.limits.upload_bytes + 1
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        reader.close()

    app = FastAPI(
        title="protopyramid",
        version=__version__,
        description="Research software, not a medical device.",
        docs_url=None,  # these pages load scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    _answer_errors(app)
    _serve_page(app)
    _serve_runs(app, reader)
    _serve_images(app, reader)
    _serve_explanations(app, reader)
    return Shield(app, access, reader.limits)


def _answer_errors(app: FastAPI) -> None:
    @app.exception_handler(UserError)
    async def wrong_input(_: Request, error: UserError) -> Response:
        return _error(400, " ".join(str(error).split()))

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> Response:
        return _error(refusal.status, refusal.message, refusal.headers)

    @app.exception_handler(RequestValidationError)
    async def wrong_form(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "request"
        return _error(422, f"{where}: {first['msg']}")

    @app.exception_handler(HTTPException)
    async def http_error(_: Request, error: HTTPException) -> Response:
        return _error(error.status_code, str(error.detail), dict(error.headers or {}))


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)


def _serve_page(app: FastAPI) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the server is up."""
        return {"status": "ok", "version": __version__}

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _file("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        return _file(name)


def _file(name: str) -> Response:
    if name not in page_files():
        raise Refusal(404, "not found")
    content, kind = page_files()[name]
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


def _serve_runs(app: FastAPI, reader: Reader) -> None:
    @app.get("/api/runs")
    async def runs() -> dict[str, Any]:
        """The runs that are served, and the limits of the server."""
        found = [run_summary(run, name) for name, run in reader.runs.items()]
        limits = {"upload_bytes": reader.limits.upload_bytes, "pixels": reader.limits.pixels}
        return {"runs": found, "cases": len(reader.cases), "limits": limits}

    @app.get("/api/runs/{run}")
    async def one_run(run: str) -> dict[str, Any]:
        """A run: classes, prototypes with their pictures, model card."""
        return await reader.in_thread(run_json, reader.run(run), run)

    @app.get("/api/runs/{run}/prototypes/{index}.png", response_class=Response)
    async def picture(run: str, index: int) -> Response:
        """The case of a prototype, as the model sees it."""
        chosen = reader.run(run)
        content = await reader.in_thread(chosen.cases.png, _known(chosen, index))
        return Response(
            content, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"}
        )

    @app.get("/api/runs/{run}/prototypes/{index}/contours")
    async def contours(run: str, index: int) -> dict[str, Any]:
        """Where a prototype activates on its own case: closed lines x, y, x, y, … in fractions."""
        chosen = reader.run(run)
        _known(chosen, index)
        lines = await asyncio.wrap_future(reader.worker.submit(chosen, case_contours, index))
        return {"contours": lines}


def _known(run: Run, index: int) -> int:
    if not any(record.index == index for record in run.prototypes):
        raise Refusal(404, "no such prototype")
    return index


Low = Annotated[float, Query(description="Value shown as black", ge=-10, le=10)]
High = Annotated[float, Query(description="Value shown as white", ge=-10, le=10)]


def _serve_images(app: FastAPI, reader: Reader) -> None:
    @app.post("/api/images")
    async def upload(file: UploadFile) -> dict[str, Any]:
        """Open an image. It is kept in memory only, until others need the room."""

        async def work() -> Film:
            return await reader.open(*await _uploaded(file))

        return (await reader.with_room(work)).to_json()

    @app.get("/api/images/{image}")
    async def opened(image: str) -> dict[str, Any]:
        """An open image: size, spacing, levels of its pyramid."""
        return reader.films.get(image).to_json()

    @app.get("/api/images/{image}/tiles/{level}/{column}/{row}", response_class=Response)
    async def tile(
        image: str, level: int, column: int, row: int, low: Low = 0.0, high: High = 1.0
    ) -> Response:
        """A tile of an open image as 8-bit PNG; level 0 is the finest."""
        film = reader.films.get(image)
        return _png(await reader.in_thread(film.tile, level, column, row, low, high))

    @app.get("/api/images/{image}/picture", response_class=Response)
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

    @app.get("/api/cases")
    async def cases() -> dict[str, Any]:
        """The cases of the manifest that the server was started with."""
        found = [
            {"number": number, "name": case.name, "label": case.label, "split": case.split}
            for number, case in enumerate(reader.cases)
        ]
        return {"cases": found}

    @app.post("/api/cases/{number}")
    async def open_case(number: int) -> dict[str, Any]:
        """Open the image of a case."""
        if not 0 <= number < len(reader.cases):
            raise Refusal(404, "no such case")
        case = reader.cases[number]

        async def work() -> Film:
            return await reader.open(case.image, case.name, case.box)

        return (await reader.with_room(work)).to_json()


def _png(content: bytes) -> Response:
    return Response(
        content, media_type="image/png", headers={"Cache-Control": "private, max-age=600"}
    )


def _serve_explanations(app: FastAPI, reader: Reader) -> None:
    @app.post("/api/explain")
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
            film = reader.films.get(image) if file is None else await _film_of(reader, file)
            return await reader.explain(run, film, seen, marked)

        return JSONResponse(await reader.with_room(work))


async def _film_of(reader: Reader, file: UploadFile) -> Film:
    """An uploaded image that is not kept."""
    source, name = await _uploaded(file)
    return await reader.in_thread(open_film, source, name, reader.limits)


async def _uploaded(file: UploadFile) -> tuple[MemoryFile, str]:
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
