"""What a packed model says of itself (model.json): name, version, licence, and a digest of every file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder

PACKAGE_VERSION = 1
FULL, EIGHT_BIT = "float32", "int8"  # kinds of weights
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class PackedFile(BaseModel):
    """A file of a packed model: its size and SHA-256."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class PackedCase(BaseModel):
    """What is known of the training image behind a prototype without showing it.

    `digest`: of the file's pixels, as in data.json; `picture`: of the pixels that the model sees; `size`:
    width and height of the file's image. "" and None where they are not known.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    index: int = Field(ge=0)
    digest: str = ""
    picture: str = ""
    size: list[int] | None = None


class Package(BaseModel):
    """The content of model.json. Keys that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    package: int
    name: str
    version: str = ""
    summary: str = ""
    licence: str = ""
    weights: str = FULL
    pictures: bool = True
    software: dict[str, str] = {}
    cases: list[PackedCase] = []
    files: dict[str, PackedFile]

    def to_json(self) -> dict[str, Any]:
        """The content of model.json."""
        return self.model_dump(mode="json")

    @property
    def total_bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files.values())


def parse_package(content: object, place: str) -> Package:
    """The checked content of a model.json."""
    if isinstance(content, Mapping) and content.get("package") not in (None, PACKAGE_VERSION):
        raise UserError(
            f"{place}: a packed model of format {content['package']!r}, but this version reads format "
            f"{PACKAGE_VERSION}; install a newer protopyramid"
        )
    try:
        package = Package.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "content"
        raise UserError(
            f"{place}: {layout.PACKAGE} is damaged: {key}: {first['msg'].lower()}; "
            "it must be packed again"
        ) from None
    check_name(package.name, place)
    return package


def check_name(name: str, place: str) -> str:
    """A model's name: letters that are safe in every file system and never look like a path."""
    if not NAME.fullmatch(name) or name.endswith(".") or name.split(".")[0] in layout.RESERVED:
        raise UserError(
            f"{place}: {name!r} is not a name for a model; use small letters, digits, '-', '_' and '.', "
            "at most 64, the first a letter or digit"
        )
    return name


def read_package(folder: RunFolder) -> Package | None:
    """What a run folder says of itself as a packed model; None for a run that was trained here."""
    if not (folder / layout.PACKAGE).is_file():
        return None
    return parse_package(folder.read_json(layout.PACKAGE), str(folder / layout.PACKAGE))
