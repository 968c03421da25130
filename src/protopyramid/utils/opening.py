"""The one opener of files that we read, whoever made them: users, downloads, or we ourselves.

Only regular files of a size that their kind may have are opened: a pipe would wait for ever, and a device
such as /dev/zero would fill memory. What cannot be opened raises an OSError whose `strerror` says why in
words, so that callers can say which file and what to do.

Libraries that open files themselves get a path from `checked`.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from protopyramid.errors import UserError

KIBIBYTE, MEBIBYTE, GIBIBYTE = 2**10, 2**20, 2**30


class Kind(NamedTuple):
    """A kind of file, in words, and the largest size in bytes that it may have."""

    what: str
    largest: int


SETTINGS = Kind("a file of settings", 16 * MEBIBYTE)
TABLE = Kind("a table", GIBIBYTE)
TEXT = Kind("a file of text", GIBIBYTE)  # the largest COCO file in common use has half of that
RECORDS = Kind("a file of records", GIBIBYTE)
MARK = Kind("a mark of one line", 64 * KIBIBYTE)
SPREADSHEET = Kind("a spreadsheet", 64 * MEBIBYTE)
IMAGE = Kind("an image", 4 * GIBIBYTE)
PIXELS = Kind("an uncompressed image", GIBIBYTE)
WEIGHTS = Kind("a file of weights", 64 * GIBIBYTE)
PACKED = Kind("a packed model", 3 * GIBIBYTE)

ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}
# What a path leads to, where it is not a regular file.
OTHERS = (
    (stat.S_ISDIR, "a folder", errno.EISDIR),
    (stat.S_ISFIFO, "a pipe", errno.EINVAL),
    (stat.S_ISCHR, "a device", errno.EINVAL),
    (stat.S_ISBLK, "a device", errno.EINVAL),
    (stat.S_ISSOCK, "a socket", errno.EINVAL),
)


def checked(path: Path, kind: Kind) -> Path:
    """The path, if it leads to a regular file of a size that its kind may have; else OSError."""
    try:
        _check(path, os.stat(path), kind)
    except (OSError, ValueError) as error:
        raise _told(path, error) from None
    return path


def open_file(path: Path, kind: Kind) -> BufferedReader:
    """Open a regular file for reading; OSError where it is something else, or too large."""
    checked(path, kind)
    try:
        # Should it have become a pipe since, opening does not wait for a writer.
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        )
        try:
            _check(path, os.fstat(handle), kind)
            return os.fdopen(handle, "rb")
        except BaseException:
            os.close(handle)
            raise
    except (OSError, ValueError) as error:
        raise _told(path, error) from None


def read_file(path: Path, kind: Kind) -> bytes:
    """The content of a regular file; OSError where it cannot be read, or is larger than its kind may be.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> _ = (place / "a.toml").write_text("seed = 1")
    >>> read_file(place / "a.toml", SETTINGS)
    b'seed = 1'
    >>> read_file(place, SETTINGS)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    IsADirectoryError: [Errno 21] is a folder, not a file: ...
    """
    with open_file(path, kind) as file:
        try:
            content = file.read(os.fstat(file.fileno()).st_size + 1)
        except OSError as error:
            raise _told(path, error) from None
    return content


def read_text(path: Path, kind: Kind) -> str:
    """The content of a file as text; UnicodeDecodeError (a ValueError) where it is not UTF-8."""
    return read_file(path, kind).decode("utf-8-sig")


def is_file(path: Path) -> bool:
    """Whether there is such a regular file; False for a name that no file can have."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; False for a name that no folder can have."""
    return stat.S_ISDIR(_mode(path))


def exists(path: Path) -> bool:
    """Whether there is anything of this name; False for a name that nothing can have."""
    return _mode(path) != 0


def other_than_file(path: Path) -> str:
    """What a path leads to that is not a regular file, in words: "a pipe"; "" for a file or for nothing.

    >>> other_than_file(Path("/")), other_than_file(Path("/no/such/file"))
    ('a folder', '')
    """
    mode = _mode(path)
    return next((what for is_it, what, _ in OTHERS if is_it(mode)), "")


def missing_image(path: Path, more: str = "") -> UserError:
    """The error of an image that is not there, or that is something else than a file.

    >>> str(missing_image(Path("/no/such"))), str(missing_image(Path("/")))
    ('/no/such: no such image file; check the path', '/: is a folder, not an image file; check the path')
    """
    other = other_than_file(path)
    told = f"is {other}, not an image file" if other else "no such image file"
    return UserError(f"{path}: {told}{more}; check the path")


def is_dead_link(path: Path) -> bool:
    """Whether a path is a link that leads nowhere, or round in a loop."""
    return os.path.islink(path) and not exists(path)


def real_path(path: str | Path) -> Path:
    """The absolute path behind links; a loop of links is left as it is."""
    return Path(os.path.realpath(path))


def _mode(path: Path) -> int:
    """The kind and rights of what a path leads to; 0 where there is nothing."""
    try:
        return os.stat(path).st_mode
    except ValueError:  # a NUL
        return 0
    except OSError as error:
        if error.errno in ABSENT:
            return 0
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None


def _check(path: Path, status: os.stat_result, kind: Kind) -> None:
    for is_it, what, number in OTHERS:
        if is_it(status.st_mode):
            raise OSError(number, f"is {what}, not a file", str(path))
    if status.st_size > kind.largest:
        raise _too_large(path, status.st_size, kind)


def _too_large(path: Path, size: int, kind: Kind) -> OSError:
    limit = f"{kind.largest} bytes are the limit for {kind.what}"
    return OSError(errno.EFBIG, f"is too large: it has {size} bytes, {limit}", str(path))


def _told(path: Path, error: OSError | ValueError) -> OSError:
    """An error that names the file; a name that no file can have is an error of the same kind."""
    if isinstance(error, OSError):
        return OSError(error.errno or errno.EIO, error.strerror or str(error), str(path))
    return OSError(errno.EINVAL, "no file can have this name", str(path))
