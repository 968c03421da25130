"""Atomic, durable file writing: the only place that replaces a file.

A file is complete or it is not there: content goes to a temporary file beside its target, is flushed to
the disk and renamed. What a killed process leaves behind starts with `TEMPORARY`, and `remove_partial`
clears it away.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from protopyramid.errors import UserError
from protopyramid.utils.log import logger
from protopyramid.utils.opening import exists, is_dead_link, is_folder, other_than_file

TEMPORARY = ".partial-"
LOCK = ".lock"  # of a folder that one process writes (utils/locks.py)
CHUNK = 1 << 20
SYSTEM = ("/dev/", "/proc/")  # where what looks like a file is not one


class DiskFull(UserError):
    """A file cannot be written because the disk, or the user's share of it, is full."""

    def __init__(self, target: Path) -> None:
        super().__init__(
            f"{target}: the disk is full; free some space, then run the same command again"
        )
        self.target = target

    def __reduce__(self) -> tuple[type[DiskFull], tuple[Path]]:
        return DiskFull, (self.target,)  # as it passes from a worker process to its parent


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that takes the place of `target` when the block ends without an error.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with replacing(path) as file:
        ...     _ = file.write(b"whole or not at all")
        >>> path.read_text()
        'whole or not at all'
    """
    refuse_special(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=TEMPORARY)
        partial = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.chmod(0o644)
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(target.parent)
        logger().debug("wrote %s", target)
    except OSError as error:
        raise disk_error(target, error) from error


def write_bytes(target: Path, content: bytes) -> Path:
    """Write a file atomically: after a crash it holds the old bytes or the new ones, whole."""
    with replacing(target) as file:
        file.write(content)
    return target


def write_text(target: Path, content: str) -> Path:
    """Write text atomically, as UTF-8."""
    return write_bytes(target, content.encode())


def write_json(target: Path, content: object) -> Path:
    """Write JSON atomically; NaN and infinity are refused, since other readers do not know them."""
    return write_text(target, json_text(content))


def json_text(content: object) -> str:
    """JSON as it stands in our files."""
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def append_line(target: Path, line: str) -> None:
    """Append a line to a log, which must not be a link."""
    refuse_link(target)
    try:
        with target.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise disk_error(target, error) from error


def refuse_special(target: Path) -> None:
    """Refuse to put a file in the place of a device, a pipe, a socket or a folder.

    A rename would replace /dev/null itself where the user may do that, and so /dev/stdout, which is a link.
    """
    what = other_than_file(target)
    if not what and os.path.islink(target) and os.readlink(target).startswith(SYSTEM):
        what = "a link of the system"
    if what:
        raise UserError(f"{target}: is {what}; give the name of a file to write")


def refuse_link(target: Path) -> None:
    """Refuse to write through a link: what is read back from a folder must not lead out of it."""
    if os.path.islink(target):
        raise UserError(f"{target}: is a link, and nothing is written through it; remove it")


def inside(folder: Path, relative: str) -> Path:
    """The path of a file of a folder, to be written; UserError where its name or a link leads out.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> inside(place, "images/a.png").relative_to(place).as_posix()
    'images/a.png'
    """
    place = Path(relative)
    return part_of(folder, str(place.parent)) / place.name


def part_of(folder: Path, relative: str) -> Path:
    """The path of a folder in a folder, to be written to; UserError where its name or a link leads out."""
    place = Path(relative)
    if ".." in place.parts or place.is_absolute():
        raise UserError(f"{folder / place}: is not inside {folder}; nothing was written")
    part = folder
    for name in place.parts:
        part = part / name
        refuse_link(part)
    return part


def make_part(folder: Path, name: str) -> Path:
    """Create a folder in a folder that is written to; it must not be a link that leads elsewhere."""
    return make_folder(part_of(folder, name))


def make_folder(folder: Path) -> Path:
    """Create a folder, and those above it, where they are missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from error
    return folder


def reserve(file: BinaryIO, size: int) -> None:
    """Give an empty file its space on the disk at once, so that a full disk shows here and not later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    zeros = bytes(min(size, CHUNK))  # elsewhere, writing is the only sure way
    for start in range(0, size, CHUNK):
        file.write(zeros[: size - start])
    file.flush()


def remove_partial(folder: Path) -> None:
    """Remove what an earlier process left below a folder when it was killed while writing."""
    for partial in folder.rglob(TEMPORARY + "*"):
        if (
            not partial.is_dir()
        ):  # a folder that is being built (utils/staging.py) has a lock of its own
            partial.unlink(missing_ok=True)


def check_output_folder(folder: Path, empty: bool = False) -> None:
    """Refuse a path that is a file or, where the folder must be `empty`, a folder that holds anything."""
    if exists(folder) and not is_folder(folder):
        raise UserError(f"{folder}: is a file; give a folder to write to")
    if empty and holds_anything(folder):
        raise UserError(f"{folder}: is not empty; give another folder")


def holds_anything(folder: Path) -> bool:
    """Whether there is a folder with anything in it but what a killed process left."""
    return is_folder(folder) and any(
        each.name != LOCK and not each.name.startswith(TEMPORARY) for each in folder.iterdir()
    )


def disk_error(target: Path, error: OSError) -> UserError:
    """The error of a file that cannot be written, in words."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(target)
    if error.errno == errno.EFBIG:
        return UserError(
            f"{target}: is larger than the limit for files here; raise it (ulimit -f), or write to "
            "another disk"
        )
    if error.errno == errno.EEXIST and is_dead_link(target):
        return UserError(f"{target}: is a link that leads nowhere; remove it, or give another name")
    return UserError(f"{target}: cannot be written ({error.strerror or error})")


def sync_folder(folder: Path) -> None:
    """Make a rename durable; not every file system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
