"""A packed model as one file: a zip of safetensors, JSON, PNG, TOML and text that says what is in it.

Writing gives the same bytes for the same content. Reading trusts nothing: an archive comes from anywhere.
Names are compared with a list of those that a packed model can have, so none leads out of its folder;
sizes and numbers are limited before anything is read; every file has the digest that model.json gives, and
content of its kind.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import stat
import struct
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.package import Package, PackedFile, parse_package
from protopyramid.utils.files import (
    TEMPORARY,
    disk_error,
    json_text,
    make_folder,
    replacing,
    write_bytes,
    write_text,
)
from protopyramid.utils.journal import is_file_name
from protopyramid.utils.opening import PACKED, open_file, read_file

# The files that a packed model can have, and how large each can be. Nothing else is packed or unpacked.
MB = 10**6
NAMES: dict[str, int] = {
    r"format": 64,
    r"config\.toml": MB,
    r"model\.safetensors": 2000 * MB,
    r"prototypes\.json": 50 * MB,
    r"prototypes/[0-9]{3,6}\.png": 50 * MB,
    r"metrics\.jsonl": 200 * MB,
    r"thresholds\.json": 200 * MB,
    r"scores\.safetensors": 200 * MB,
    r"data\.json": 500 * MB,
    r"evaluation/[a-z0-9_-]{1,64}\.json": 50 * MB,
    r"MODEL_CARD\.md": 5 * MB,
    r"LICENSE\.txt": MB,
    r"cases/manifest\.csv": MB,
    r"cases/[a-z0-9][a-z0-9_-]{0,63}\.png": 50 * MB,
}
NEEDED = (layout.FORMAT, layout.CONFIG, layout.MODEL, layout.PROTOTYPES)
MOST_FILES = 20_000
LARGEST_ARCHIVE = PACKED.largest
LARGEST_TOTAL = 3_000 * MB
LARGEST_PACKAGE = 20 * MB  # of model.json
LARGEST_PICTURE = 64 * MB  # pixels of a PNG
MOST_RATIO, RATIO_FROM = (
    200,
    MB,
)  # a file of at least a megabyte may be this many times its packed size
CHUNK = 1 << 20
# What zipfile raises for a damaged file; OSError where an offset leads before its beginning.
UNREADABLE = (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError, OSError)
# The directory at the end of a zip, and the mark of its variant for more than 4 GB.
END = struct.Struct("<4s4H2LH")
END_MARK, LARGE_MARK, LARGE_LENGTH = b"PK\x05\x06", b"PK\x06\x07", 20
BYTES_PER_FILE = 46 + 300  # of the directory
EARLIEST = (1980, 1, 1, 0, 0, 0)  # the first date that a zip can hold
REGULAR = stat.S_IFREG | 0o644
PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", b"\x00\x00\x00\x00IEND\xaeB`\x82"


# -- writing -------------------------------------------------------------------------------------
def write_archive(target: Path, about: Mapping[str, Any], files: Mapping[str, bytes]) -> Package:
    """Pack files, by name, with what is said about them; the same content gives the same bytes.

    about: the content of model.json but for its list of files, which is made here. Files are stored as
    they are: weights and pictures do not shrink, and no two versions of a compressor agree.
    """
    sizes = {
        name: PackedFile(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in sorted(files.items())
    }
    package = parse_package({**about, "files": _plain(sizes)}, str(target))
    for name, content in files.items():
        _check_entry(str(target), name, len(content))
        _check_content(str(target), name, content)
    _check_together(str(target), files.get)
    with replacing(target) as out, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as packed:
        _add(packed, layout.PACKAGE, json_text(package.to_json()).encode())
        for name in sizes:
            _add(packed, name, files[name])
    return package


def _plain(sizes: Mapping[str, PackedFile]) -> dict[str, Any]:
    return {name: size.model_dump() for name, size in sizes.items()}


def _add(packed: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, EARLIEST)
    entry.external_attr = REGULAR << 16
    entry.create_system = 3  # Unix, wherever it is written
    packed.writestr(entry, content)


# -- reading -------------------------------------------------------------------------------------
def unpack(source: Path, target: Path) -> Package:
    """Unpack a model into a new folder: all of it, or nothing where anything is wrong.

    A folder that is there already is replaced.
    """
    make_folder(target.parent)
    with _opened(source) as file:
        try:
            partial = Path(tempfile.mkdtemp(dir=target.parent, prefix=TEMPORARY))
            try:
                package = _unpack(str(source), file, partial)
                partial.chmod(0o755)
                _replace_folder(partial, target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        except OSError as error:
            raise disk_error(target, error) from error
    return package


def read_about(source: Path) -> Package:
    """What a packed model says of itself; its other files are not read."""
    with _opened(source) as file:
        return _open(str(source), file)[1]


def _opened(source: Path) -> BufferedReader:
    try:
        return open_file(source, PACKED)
    except OSError as error:
        raise UserError(f"{source}: {error.strerror}; give a packed model") from error


def archive_digest(source: Path) -> str:
    """The SHA-256 of a file."""
    with _opened(source) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(place: str, file: IO[bytes]) -> tuple[zipfile.ZipFile, Package]:
    """A packed model whose directory was checked, and its model.json."""
    _check_end(place, file)
    try:
        packed = zipfile.ZipFile(file)
        entries = packed.infolist()
        _check_directory(place, entries)
        if layout.PACKAGE not in packed.namelist():
            raise UserError(
                f"{place}: not a packed model (no {layout.PACKAGE}); make one with: "
                "protopyramid models pack RUN"
            )
        content = _read(place, packed, packed.getinfo(layout.PACKAGE))
    except UNREADABLE as error:
        raise _damaged(place, str(error)) from error
    package = parse_package(_parsed_json(place, layout.PACKAGE, content), place)
    _check_listed(place, package, entries)
    return packed, package


def _unpack(place: str, file: IO[bytes], folder: Path) -> Package:
    packed, package = _open(place, file)
    for name, facts in package.files.items():
        try:
            content = _read(place, packed, packed.getinfo(name))
        except UNREADABLE as error:
            raise _damaged(place, str(error)) from error
        if len(content) != facts.bytes or hashlib.sha256(content).hexdigest() != facts.sha256:
            raise _damaged(place, f"{name} has another digest than {layout.PACKAGE} gives")
        _check_content(place, name, content)
        write_bytes(folder / name, content)

    def stored(name: str) -> bytes | None:
        return read_file(folder / name, PACKED) if name in package.files else None

    _check_together(place, stored)
    write_text(folder / layout.PACKAGE, json_text(package.to_json()))
    return package


def _replace_folder(partial: Path, target: Path) -> None:
    """Put a complete folder in the place of another, which is kept until the new one stands."""
    if not target.exists():
        os.replace(partial, target)
        return
    old = Path(tempfile.mkdtemp(dir=target.parent, prefix=TEMPORARY))
    os.replace(target, old / "old")
    try:
        os.replace(partial, target)
    except OSError:
        os.replace(old / "old", target)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


# -- checks of the directory -----------------------------------------------------------------------
def _check_end(place: str, file: IO[bytes]) -> None:
    """Check how many files a zip has, and how large its directory is, before it is read."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - END.size - LARGE_LENGTH))
    tail = file.read()
    if len(tail) < END.size or tail[-END.size :][:4] != END_MARK:
        raise UserError(
            f"{place}: not a packed model (not a zip as protopyramid models pack writes it)"
        )
    _, disk, first, here, count, length, _, comment = END.unpack(tail[-END.size :])
    if disk or first or here != count or comment or tail[:4] == LARGE_MARK:
        raise _damaged(place, "a zip in parts, with a comment, or of the 64-bit kind")
    if count > MOST_FILES or length > count * BYTES_PER_FILE:
        raise UserError(
            f"{place}: has more than {MOST_FILES} files, or a directory that is too large"
        )
    file.seek(0)


def _check_directory(place: str, entries: Iterable[zipfile.ZipInfo]) -> None:
    seen: set[str] = set()
    total = 0
    for entry in entries:
        name = entry.orig_filename  # zipfile cuts a name at a zero byte and turns backslashes
        if entry.filename != name:
            raise _refused(place, name, "its name is not a plain one")
        if name.lower() in seen:
            raise _refused(place, name, "it is there twice, or differs from another in case only")
        seen.add(name.lower())
        kind = entry.external_attr >> 16
        if kind and stat.S_IFMT(kind) not in (0, stat.S_IFREG):
            raise _refused(place, name, "it is a link or another special file")
        if entry.flag_bits & 0x1:
            raise _refused(place, name, "it is encrypted")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refused(place, name, "it is compressed in an unusual way")
        _check_entry(place, name, entry.file_size)
        large = entry.file_size >= RATIO_FROM
        if large and entry.file_size > MOST_RATIO * max(entry.compress_size, 1):
            raise _refused(place, name, f"it would grow more than {MOST_RATIO} times")
        total += entry.file_size
    if total > LARGEST_TOTAL:
        raise UserError(f"{place}: would unpack to more than {LARGEST_TOTAL // MB} MB")


def _check_entry(place: str, name: str, size: int) -> None:
    """Check the name of a file against those that a packed model has, and its size."""
    limits = {layout.PACKAGE.replace(".", r"\."): LARGEST_PACKAGE, **NAMES}
    limit = next((most for known, most in limits.items() if re.fullmatch(known, name)), None)
    if limit is None or Path(name).stem.lower() in layout.RESERVED:
        raise _refused(place, name, "a packed model has no such file")
    if size > limit:
        raise _refused(place, name, f"it is larger than {limit / MB:g} MB")


def _check_listed(place: str, package: Package, entries: Iterable[zipfile.ZipInfo]) -> None:
    """Check that model.json lists exactly the files that are there."""
    there = {entry.filename for entry in entries} - {layout.PACKAGE}
    for name in sorted(there ^ set(package.files)):
        what = "is not listed in" if name in there else "is missing, but listed in"
        raise _refused(place, name, f"it {what} {layout.PACKAGE}")
    for name in NEEDED:
        if name not in there:
            raise _damaged(place, f"{name} is missing")


def _read(place: str, packed: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The content of a file; one that is longer than it says is refused."""
    content = bytearray()
    try:
        with packed.open(entry) as file:
            while chunk := file.read(CHUNK):
                content += chunk
                if len(content) > entry.file_size:
                    raise _refused(place, entry.filename, "it is larger than it says")
    except (zlib.error, OverflowError) as error:
        raise _damaged(place, str(error)) from error
    if len(content) != entry.file_size:
        raise _refused(place, entry.filename, "it is smaller than it says")
    return bytes(content)


# -- checks of the content -------------------------------------------------------------------------
def _check_content(place: str, name: str, content: bytes) -> None:
    """Check that a file is of the kind that its name tells."""
    suffix = Path(name).suffix or name
    _KINDS[suffix](place, name, content)


def _check_json(place: str, name: str, content: bytes) -> None:
    _parsed_json(place, name, content)


def _parsed_json(place: str, name: str, content: bytes) -> Any:
    try:
        return json.loads(content.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _refused(place, name, "it is not JSON") from error


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _check_lines(place: str, name: str, content: bytes) -> None:
    for line in content.splitlines():
        _parsed_json(place, name, line)


def _check_toml(place: str, name: str, content: bytes) -> None:
    try:
        tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _refused(place, name, "it is not TOML") from error


def _check_text(place: str, name: str, content: bytes) -> None:
    try:
        text = content.decode("utf-8")
    except ValueError as error:
        raise _refused(place, name, "it is not text") from error
    if any(ord(letter) < 32 and letter not in "\t\r\n" for letter in text):
        raise _refused(place, name, "it is not text")


def _check_picture(place: str, name: str, content: bytes) -> None:
    from PIL import Image

    whole = content.startswith(PNG_START) and content.endswith(PNG_END)
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            width, height = picture.size
            if width * height <= LARGEST_PICTURE:
                picture.verify()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise _refused(place, name, "it is not a PNG") from error
    if not whole or width * height > LARGEST_PICTURE:
        raise _refused(place, name, "it is not a PNG, holds more than that, or is too large")


def _check_tensors(place: str, name: str, content: bytes) -> None:
    import safetensors

    read: Callable[[bytes], object] = safetensors.deserialize
    try:
        read(content)
    except (safetensors.SafetensorError, ValueError, OverflowError) as error:
        raise _refused(place, name, "it is not a safetensors file") from error


_KINDS: dict[str, Callable[[str, str, bytes], None]] = {
    ".json": _check_json,
    ".jsonl": _check_lines,
    ".toml": _check_toml,
    ".png": _check_picture,
    ".safetensors": _check_tensors,
    ".md": _check_text,
    ".txt": _check_text,
    ".csv": _check_text,
    layout.FORMAT: _check_text,
}


def _check_together(place: str, read: Callable[[str], bytes | None]) -> None:
    """Check that no file of a model names one outside of its folder."""
    from protopyramid.runs.provenance import Provenance  # slow to import, and not needed for a list

    facts = read(layout.DATA)
    if facts is not None:
        try:
            provenance = Provenance.model_validate(json.loads(facts))
        except ValueError as error:
            raise _refused(place, layout.DATA, "it has another shape") from error
        if provenance.manifest_path or not _is_plain(provenance.manifest):
            raise _refused(place, layout.DATA, "it leads to a manifest outside of the model")
    table = read(layout.CASES_MANIFEST)
    if table is not None:
        for row in csv.DictReader(io.StringIO(table.decode("utf-8"))):
            image = row.get("image") or ""
            if not _is_plain(image) or read(f"{layout.CASES}/{image}") is None:
                raise _refused(place, layout.CASES_MANIFEST, f"it names {image!r}")
            if row.get("mask"):
                raise _refused(place, layout.CASES_MANIFEST, "it names masks")


def _is_plain(name: str) -> bool:
    return not name or is_file_name(name)


def _refused(place: str, name: str, why: str) -> UserError:
    shown = name if len(name) <= 80 else f"{name[:77]}..."
    return UserError(f"{place}: {shown!r} is refused: {why}; nothing was unpacked")


def _damaged(place: str, why: str) -> UserError:
    return UserError(f"{place}: the packed model is damaged ({why}); fetch or pack it again")
