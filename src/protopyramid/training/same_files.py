"""Whether the files that a training began with are still the same when it continues.

Size and time of every image and mask are noted when training begins. When it continues, a file with the same
size and time is taken for the same; of another, the pixels of the image or the bytes of the mask decide, so
that a dataset may be copied or moved.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from protopyramid.data.images import hash_files
from protopyramid.data.manifest import Manifest, Sample
from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.utils.opening import IMAGE, read_file
from protopyramid.utils.typed_json import from_json, to_json

FILE = f"{layout.CHECKPOINT}/files.json"
WORKERS = 4
SPLITS = ("train", "validation")


@dataclass(frozen=True)
class MaskFile:
    """Size, time and digest of a mask's bytes."""

    stamp: tuple[int, int]
    sha256: str


@dataclass(frozen=True)
class SeenFiles:
    """Size in bytes and time in nanoseconds of each image, and the masks, by the sample's name."""

    images: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    masks: Mapping[str, MaskFile] = field(default_factory=dict)


def note_files(folder: RunFolder, manifest: Manifest) -> None:
    """Write down what the files of a training are like as it begins."""
    samples = _samples(manifest)
    masks = {each.name: each.mask for each in samples if each.mask is not None}
    seen = SeenFiles(
        {each.name: _stamp(each.image) for each in samples},
        {name: MaskFile(_stamp(path), _digest(path)) for name, path in masks.items()},
    )
    folder.write_json(FILE, to_json(seen))


def check_same_files(
    folder: RunFolder, manifest: Manifest, digests: Mapping[str, Mapping[str, str]]
) -> None:
    """Refuse to continue with an image or a mask that has changed; it is named.

    digests: those of the images' pixels by split and name, as in data.json.
    """
    seen = _read(folder)
    known = {name: digest for split in SPLITS for name, digest in digests.get(split, {}).items()}
    samples = _samples(manifest)
    doubtful = [each for each in samples if seen.images.get(each.name) != _stamp(each.image)]
    hashes = hash_files([each.image for each in doubtful], WORKERS)
    for sample, found in zip(doubtful, hashes, strict=True):
        if known.get(sample.name) != found:
            raise _changed(folder, sample.image)
    for sample in samples:
        mask = seen.masks.get(sample.name)
        if mask is None or sample.mask is None or mask.stamp == _stamp(sample.mask):
            continue
        if mask.sha256 != _digest(sample.mask):
            raise _changed(folder, sample.mask)


def _samples(manifest: Manifest) -> Sequence[Sample]:
    return [sample for split in SPLITS for sample in manifest.split(split)]


def _read(folder: RunFolder) -> SeenFiles:
    """What was noted; nothing where a run is of an earlier version or the file is damaged."""
    try:
        return from_json(SeenFiles, folder.read_json(FILE), folder / FILE, "")
    except UserError:
        return SeenFiles()


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    return status.st_size, status.st_mtime_ns


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_file(path, IMAGE)).hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path}: cannot be read ({error.strerror}); restore the file")


def _changed(folder: RunFolder, path: Path) -> UserError:
    return UserError(
        f"{path}: has changed since {folder.path} was started; restore the file and continue, or train "
        "again in another folder"
    )
