"""The web application: the page, and the routes under /api from their files.

Example::

    application = create_application(Reader([load_run("runs/demo")]), Access("127.0.0.1", 8000))
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartParser
from starlette.types import ASGIApp

from protopyramid import __version__
from protopyramid.errors import UserError
from protopyramid.reader.annotations_routes import annotation_routes
from protopyramid.reader.explanations_routes import explanation_routes
from protopyramid.reader.images_routes import image_routes
from protopyramid.reader.pages import page_files
from protopyramid.reader.prototypes_routes import prototype_routes
from protopyramid.reader.readings_routes import reading_routes
from protopyramid.reader.runs_routes import run_routes
from protopyramid.reader.service import Reader
from protopyramid.reader.settings import Refusal
from protopyramid.reader.shield import Access, Shield

__all__ = ["Reader", "create_application"]

# One file of routes per part of the page.
ROUTES: tuple[Callable[[Reader], APIRouter], ...] = (
    run_routes,
    image_routes,
    explanation_routes,
    reading_routes,
    annotation_routes,
    prototype_routes,
)


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
    app.state.reader = reader
    _answer_errors(app)
    _serve_page(app)
    for routes in ROUTES:
        app.include_router(routes(reader))
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
