"""Image files that are bytes in memory: uploads, of which nothing may reach a disk or a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeAlias

from protopyramid.utils.opening import IMAGE, PIXELS, checked, open_file, read_file


@dataclass(frozen=True, eq=False)
class MemoryFile:
    """The content of an image file, read as one on disk is.

    Its name is never known here, since messages quote names and the name of an upload may be that of a
    patient; `suffix`, as in ".dcm", is all that is kept of it.
    """

    content: bytes = field(repr=False)
    suffix: str = ""

    name = "the uploaded file"

    def __str__(self) -> str:
        return self.name

    def open(self) -> BinaryIO:
        """The content as a binary file."""
        return BytesIO(self.content)


Source: TypeAlias = Path | MemoryFile


def as_source(file: str | Source) -> Source:
    """A file by its path, or one in memory."""
    return file if isinstance(file, MemoryFile) else Path(file)


def openable(file: Source) -> Path | BinaryIO:
    """What libraries open: the path of a regular file, or an open file in memory."""
    return file.open() if isinstance(file, MemoryFile) else checked(file, IMAGE)


def opened(file: Source) -> BinaryIO:
    """A regular file, or one in memory, open for reading."""
    return file.open() if isinstance(file, MemoryFile) else open_file(file, IMAGE)


def content_of(file: Source) -> bytes:
    """All bytes of a file of uncompressed pixels."""
    return file.content if isinstance(file, MemoryFile) else read_file(file, PIXELS)
