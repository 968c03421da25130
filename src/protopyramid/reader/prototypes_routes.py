"""Routes of the gallery: what prototypes do, their nearest training cases, and edited models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from protopyramid.api import Edited, edit
from protopyramid.data.images import prepare_sample
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.reader.answers import run_summary
from protopyramid.reader.images_routes import KEPT
from protopyramid.reader.runs_routes import known_prototype
from protopyramid.reader.service import Reader
from protopyramid.reader.settings import Refusal
from protopyramid.runs.run import Run
from protopyramid.training.finish import picture_bytes
from protopyramid.utils.opening import real_path

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
NO_PROTOTYPES = {"looked_at": 0, "images": 0, "prototypes": None, "error": None}


class Edit(BaseModel):
    """Prototypes to remove, with the last layer fitted again, or weights chosen by hand."""

    model_config = ConfigDict(extra="forbid")

    remove: Annotated[list[int], Field(max_length=10_000)] = []
    weights: dict[int, dict[str, Annotated[float, Field(ge=-1e6, le=1e6)]]] | None = None


class NamedEdit(Edit):
    """An edit, and what the new run is called."""

    name: str


def prototype_routes(reader: Reader) -> APIRouter:
    """The gallery of prototypes."""
    router = APIRouter()

    @router.get("/api/runs/{run}/use")
    async def use(run: str) -> dict[str, Any]:
        """How often each prototype matters and what it costs to remove it; found when first asked for."""
        chosen = reader.run(run)
        return reader.prototype_study(chosen).to_json() if chosen.prototypes else NO_PROTOTYPES

    @router.get("/api/runs/{run}/prototypes/{index}/neighbours")
    async def neighbours(run: str, index: int) -> dict[str, Any]:
        """The training cases nearest to a prototype; null until they are found."""
        chosen = reader.run(run)
        known_prototype(chosen, index)
        return await reader.in_thread(reader.prototype_study(chosen).neighbours_json, index)

    @router.get(
        "/api/runs/{run}/prototypes/{index}/neighbours/{place}.png", response_class=Response
    )
    async def picture(run: str, index: int, place: int) -> Response:
        """The nearest training case but `place` to a prototype, as the model sees it."""
        chosen = reader.run(run)
        known_prototype(chosen, index)
        sample = reader.prototype_study(chosen).neighbour(index, place)
        if sample is None:
            raise Refusal(404, "no such neighbour")
        content = await reader.in_thread(_seen, chosen, sample)
        return Response(content, media_type="image/png", headers=KEPT)

    @router.post("/api/runs/{run}/plan")
    async def plan(run: str, wanted: Edit) -> dict[str, Any]:
        """What an edit would do: losses, validation metrics, and the images that are predicted otherwise."""
        editor = reader.prototype_study(_with_prototypes(reader, run)).editor()
        found = await reader.in_thread(editor.plan, wanted.remove, (), wanted.weights)
        return found.to_json()

    @router.post("/api/runs/{run}/edits", status_code=201)
    async def save(run: str, wanted: NamedEdit) -> dict[str, Any]:
        """Save an edited model as a new run beside the one it was made of, and serve it."""
        chosen = _with_prototypes(reader, run)
        study = reader.prototype_study(chosen)
        study.editor()  # refused while images are being scored
        edited = await reader.in_thread(save_edit, chosen, wanted, study.scored)
        if edited.run is None:
            raise RuntimeError("an edit with a folder writes a run")
        summary = run_summary(edited.run, reader.add_run(edited.run))
        return {**summary, "folder": str(edited.run.folder.path.parent)}

    return router


def save_edit(run: Run, wanted: NamedEdit, data: Path | None) -> Edited:
    """Write an edited model, fitted as its plan was, into a new folder beside the run's."""
    if not NAME.fullmatch(wanted.name):
        raise UserError("name: use letters, digits, dots, dashes and underscores, at most 80")
    if not wanted.remove and not wanted.weights:
        raise UserError("nothing is changed; remove a prototype or choose a weight")
    out = real_path(run.folder.path).parent / wanted.name
    if out.exists():
        raise UserError(f"name: there is already something called {wanted.name}; choose another")
    return edit(run, remove=wanted.remove, weights=wanted.weights, data=data, out=out)


def _with_prototypes(reader: Reader, name: str) -> Run:
    run = reader.run(name)
    if not run.prototypes:
        raise UserError("this model is a black box: it has no prototypes")
    return run


def _seen(run: Run, case: Sample) -> bytes:
    return picture_bytes(prepare_sample(case, run.config.data).image)
