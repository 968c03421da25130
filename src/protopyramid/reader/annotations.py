"""Annotations drawn in the reader, in a folder of their own: masks, and a manifest that trains.

The manifest of the folder holds the rows of the cases' own manifest, with the masks and lesion boxes drawn
here in place of theirs. A mask is written before the row that names it, both atomically, after each save:
whatever happens, the folder is a valid dataset, and work continues from it. The cases' own manifest and
masks are never written to.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from protopyramid.data.geometry import Box, Mask, clip_box
from protopyramid.data.importers.full_films import path_from
from protopyramid.data.io.decoding import read_size
from protopyramid.data.io.encoding import png_bytes
from protopyramid.data.manifest import KNOWN, SPLITS, Manifest, Sample, manifest_text, read_manifest
from protopyramid.data.masks import read_mask
from protopyramid.errors import UserError
from protopyramid.utils.csv_files import read_table
from protopyramid.utils.files import inside, make_folder, write_bytes, write_text
from protopyramid.utils.locks import locked
from protopyramid.utils.opening import is_file, real_path

MANIFEST = "manifest.csv"
MASKS = "masks"
# Columns added to the manifest: what was drawn ("mask", "box" or "mask and box"), and for which case.
KIND, CASE = "annotation", "annotation_case"
FILM = "source_image"  # a path, relative to the manifest as all others
UNKNOWN_SPLIT = "train"  # of a case whose manifest has no splits
WHITE = 255


@dataclass(frozen=True)
class Drawn:
    """What was drawn on a case."""

    mask: Path | None
    box: Box | None
    label: str

    @property
    def kind(self) -> str:
        """The word for it in the manifest."""
        parts = [name for name, found in (("mask", self.mask), ("box", self.box)) if found]
        return " and ".join(parts)


class AnnotationFolder:
    """The annotations of cases, in a folder.

    Example::

        folder = AnnotationFolder(Path("annotations"), manifest.samples, manifest.path)
        folder.save(0, mask, None)
    """

    def __init__(self, folder: Path, samples: Sequence[Sample], source: Path | None) -> None:
        if source is None or not samples:
            raise UserError(
                "--annotations: needs cases to draw on; give their manifest with --data"
            )
        self.folder, self.path = folder, folder / MANIFEST
        if real_path(self.path) == real_path(source):
            raise UserError(
                f"{folder}: holds the manifest of the cases, which is never overwritten; give another "
                "folder with --annotations"
            )
        self.samples, self._columns = _with_extras(samples, source, folder)
        self._writing = threading.Lock()
        self._held = ExitStack()
        make_folder(folder)
        self._held.enter_context(locked(folder, self._refuse))
        try:
            self._drawn = self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let other processes write to the folder."""
        self._held.close()

    def _refuse(self) -> None:
        raise UserError(
            f"{self.folder}: another process is writing annotations there; end it, or give another folder"
        )

    def drawn(self, number: int) -> Drawn | None:
        """What was drawn on a case; None if nothing was."""
        return self._drawn.get(self.samples[number].name)

    def mask(self, number: int) -> Mask | None:
        """The mask (H, W) of a case: the one drawn here, or else its own; None if it has none."""
        drawn, sample = self.drawn(number), self.samples[number]
        path = drawn.mask if drawn is not None and drawn.mask is not None else sample.mask
        return None if path is None else read_mask(path, _size(sample))

    def save(self, number: int, mask: Mask | None, box: Box | None, label: str = "") -> Drawn:
        """Keep what was drawn on a case, in place of what was drawn before.

        mask (H, W): True inside, of the image's size. A case without a label needs one.
        """
        sample = self.samples[number]
        label = label or sample.label
        if not label:
            raise UserError("label: choose the class of the lesion; the manifest gives none")
        if mask is None and box is None:
            raise UserError("nothing is drawn; draw a mask or a lesion box first")
        height, width = _size(sample)
        if mask is not None:
            _check_mask(mask, height, width)
        if box is not None:
            box = clip_box(box, height, width)
            if box is None:
                raise UserError("box: lies outside the image; draw it again")
        with self._writing:
            before = self._drawn.get(sample.name)
            path = None
            if mask is not None:
                path = inside(self.folder, mask_path(sample.name))
                write_bytes(path, png_bytes(mask.astype(np.uint8) * WHITE))
            self._drawn[sample.name] = Drawn(path, box, label)
            self._write(before, sample.name)
            if path is None and before is not None and before.mask is not None:
                before.mask.unlink(missing_ok=True)
            return self._drawn[sample.name]

    def remove(self, number: int) -> None:
        """Take back what was drawn on a case: its own mask and box count again."""
        name = self.samples[number].name
        with self._writing:
            before = self._drawn.pop(name, None)
            if before is None:
                return
            self._write(before, name)
            if before.mask is not None:
                before.mask.unlink(missing_ok=True)

    def _write(self, before: Drawn | None, name: str) -> None:
        """Write the manifest; where that fails, what was drawn before counts again."""
        rows = [self._row(sample) for sample in self.samples]
        kept = tuple(row for row in rows if row.label and row.split in SPLITS)
        manifest = Manifest(self.path, kept, (*self._columns, KIND, CASE))
        try:
            write_text(self.path, manifest_text(manifest, self.folder))
        except UserError:
            self._drawn.pop(name, None)
            if before is not None:
                self._drawn[name] = before
            raise

    def _row(self, sample: Sample) -> Sample:
        drawn = self._drawn.get(sample.name)
        if drawn is None:
            return sample
        return replace(
            sample,
            mask=drawn.mask or sample.mask,
            box=drawn.box or sample.box,
            label=drawn.label,
            split=sample.split or UNKNOWN_SPLIT,
            extra={**sample.extra, KIND: drawn.kind, CASE: sample.name},
        )

    def _read(self) -> dict[str, Drawn]:
        """What earlier sessions drew."""
        if not is_file(self.path):
            return {}
        table = read_manifest(self.path)
        if not {KIND, CASE} <= set(table.columns):
            raise UserError(
                f"{self.path}: was not written by the reader, so it is not overwritten; give another "
                "folder with --annotations"
            )
        names = {sample.name for sample in self.samples}
        found = {}
        for row in table.samples:
            kind, name = row.extra[KIND], row.extra[CASE]
            if not kind:
                continue
            if name not in names:
                raise UserError(
                    f"{self.path}: row {row.row} is an annotation of {name!r}, which is not among these "
                    "cases; give their manifest with --data, or another folder"
                )
            mask = row.mask if "mask" in kind else None
            if mask is not None and mask != self.folder / mask_path(name):
                raise UserError(
                    f"{self.path}: row {row.row} names a mask that is not the reader's own for {name!r}; "
                    f"write {mask_path(name)} there, or give another folder with --annotations"
                )
            found[name] = Drawn(mask, row.box if "box" in kind else None, row.label)
        return found


def mask_path(case: str) -> str:
    """The path of a case's mask in the folder: no other mask of a manifest is ever written or removed."""
    return f"{MASKS}/{mask_name(case)}"


def mask_name(case: str) -> str:
    """The name of a case's mask file: readable, and never that of another case.

    >>> mask_name("films/left cc.dcm#2")
    'films_left_cc.dcm_2-8d62f020.png'
    """
    words = re.sub(r"[^A-Za-z0-9._-]+", "_", case).strip("._")[-80:]
    return f"{words}-{hashlib.sha256(case.encode()).hexdigest()[:8]}.png"


def _check_mask(mask: Mask, height: int, width: int) -> None:
    if mask.shape != (height, width):
        raise UserError(
            f"mask: has {mask.shape[1]} x {mask.shape[0]} pixels, its image {width} x {height}; draw it on "
            "the image at the same size"
        )
    if not mask.any():
        raise UserError("mask: is empty; draw the lesion, or remove the annotation")


def _size(sample: Sample) -> tuple[int, int]:
    size = read_size(sample.image)
    if size is None:
        raise UserError(f"{sample.name}: cannot read the image's size; is the file complete?")
    return size


def _with_extras(
    samples: Sequence[Sample], source: Path, folder: Path
) -> tuple[list[Sample], tuple[str, ...]]:
    """Samples with the further columns of their manifest, and the names of its columns.

    The film that a crop was cut from is a path: it is written relative to the new manifest.
    """
    header, *records = read_table(source, "manifest")
    names = [name.strip() for name in header.fields]
    columns = tuple(name for name in names if name not in (KIND, CASE))
    fields = {line: dict(zip(names, values, strict=False)) for line, values in records}
    found = []
    for sample in samples:
        row = fields.get(sample.row, {})
        extra = {name: row.get(name, "") for name in columns if name and name not in KNOWN}
        if extra.get(FILM):
            extra[FILM] = path_from(folder, source.parent / extra[FILM])
        found.append(replace(sample, extra=extra))
    return found, columns
