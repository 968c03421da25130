"""Where a run comes from (data.json): its data, its starting weights, and the software that made it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from protopyramid.data.framing import Framing
from protopyramid.data.manifest import SPLITS, Manifest, Sample, read_manifest
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.utils.arguments import as_path
from protopyramid.utils.opening import is_file, real_path

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

Digests = dict[str, str]  # content digest of every image, by its name in the manifest
NAME = "protopyramid"
RANDOM = "random"  # what `backbone` says where no weights were loaded


class Software(BaseModel):
    """The software that made a run."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    name: str
    version: str


class Provenance(BaseModel):
    """The content of data.json.

    `counts` are images by split and class; `splits` the images that training used, by split, with a digest
    of each; `manifest_path` leads from the run folder to the manifest; `backbone` names the weights that
    training started from: `random`, a weights file, or `run NAME`; `framing` tells how large the training
    images are as the model sees them; `differences` lists the settings that are not as in the published
    system: key, the paper's value, the run's; `edits` what was done to the run's prototypes since it was
    trained, oldest first (`pruned`: the same by earlier versions). Empty where an older version wrote
    nothing. Keys that this version does not know are kept.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    classes: list[str] = []
    manifest: str = ""
    manifest_path: str = ""
    counts: dict[str, dict[str, int]] = {}
    splits: dict[str, Digests] = {}
    backbone: str = ""
    software: Software | None = None
    framing: Framing | None = None
    differences: list[dict[str, str]] = []
    pruned: list[dict[str, Any]] = []
    edits: list[dict[str, Any]] = []

    @property
    def history(self) -> list[dict[str, Any]]:
        """What was done to the run's prototypes since it was trained, oldest first."""
        return [*self.pruned, *self.edits]

    @property
    def version(self) -> str:
        """The version of the software that made the run, or "" where none was recorded."""
        return "" if self.software is None else self.software.version

    @property
    def digests(self) -> set[str]:
        """The digests of all images that training used."""
        return {digest for images in self.splits.values() for digest in images.values()}

    def manifest_from(self, folder: Path) -> Path | None:
        """The manifest that the run in `folder` was trained on, if it still exists.

        A packed model comes from elsewhere: a path that it names is never followed.
        """
        if not self.manifest_path or Path(folder, layout.PACKAGE).is_file():
            return None
        path = Path(folder, self.manifest_path)  # an absolute path stays itself
        return real_path(path) if is_file(path) else None

    def moved(self, old: Path, new: Path) -> Provenance:
        """The same for a copy of the run in another folder: the path to the manifest is adapted."""
        if not self.manifest_path:
            return self
        manifest = real_path(Path(old, self.manifest_path))
        return self.model_copy(update={"manifest_path": os.path.relpath(manifest, real_path(new))})

    def to_json(self) -> dict[str, Any]:
        """The content of data.json."""
        return self.model_dump(mode="json", exclude_unset=True)


def read_provenance(folder: RunFolder) -> Provenance:
    """Read data.json; UserError where it is missing or has another shape."""
    content = folder.read_json(layout.DATA)
    try:
        return Provenance.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        where = f"key {place}: " if place else ""
        raise UserError(
            f"{folder / layout.DATA}: {where}{first['msg'].lower()}; the file is damaged: "
            "restore it, or train the run again"
        ) from None


def write_provenance(folder: RunFolder, provenance: Provenance) -> Path:
    """Write data.json."""
    return folder.write_json(layout.DATA, provenance.to_json())


def training_manifest(run: Run) -> Path | None:
    """The manifest that the run was trained on, if it still exists."""
    return run.provenance.manifest_from(run.folder.path)


def find_manifest(run: Run, given: str | Path | None) -> Path:
    """The manifest to use: the one given, else the one of training."""
    if given is not None:
        return as_path(given, "data")
    path = training_manifest(run)
    if path is None:
        raise UserError(
            f"{run.folder.path}: its training manifest ({run.provenance.manifest or 'unknown'}) no longer "
            "exists; give one with --data MANIFEST"
        )
    return path


def samples_of(run: Run, data: str | Path | None, split: str) -> tuple[Sample, ...]:
    """The samples of a split of the manifest given, or of that of training; () where it has none.

    Splits are as training made them.
    """
    manifest = read_manifest(find_manifest(run, data), run.config.data.classes)
    try:
        return split_samples(manifest, split, run.provenance.splits)
    except UserError:
        return ()


def split_samples(
    manifest: Manifest, split: str, splits: Mapping[str, Mapping[str, str]]
) -> tuple[Sample, ...]:
    """The samples of a split, where validation may be a part of train that training held out.

    splits: {split: {name: content digest}}, as in data.json.
    """
    if not isinstance(split, str) or split not in SPLITS:
        raise UserError(f'no split "{split}"; the splits are {", ".join(SPLITS)}')
    rows = manifest.split(split)
    if not manifest.split("validation"):
        held_out = splits.get("validation", {})
        if split == "validation":
            rows = tuple(each for each in manifest.split("train") if each.name in held_out)
        elif split == "train":
            rows = tuple(each for each in rows if each.name not in held_out)
    if not rows:
        found = ", ".join(dict.fromkeys(sample.split for sample in manifest.samples))
        raise UserError(
            f"{manifest.path}: no row has split {split}, only {found}; choose one with --split"
        )
    return rows
