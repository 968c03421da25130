"""Prepared images by index, decoded by a pool of threads and kept in memory up to a limit."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from protopyramid.config.schema import DataConfig
from protopyramid.data.film_cache import FilmCache
from protopyramid.data.geometry import Box, Mapping
from protopyramid.data.images import LEVELS, Prepared, prepare_sample
from protopyramid.data.io.decoding import decode
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.utils.opening import is_file

GIGABYTE = 1e9
WORKERS = 4
LARGEST_PREFETCH = 256  # images being decoded that nobody has asked for yet


class Loaded(NamedTuple):
    """A batch.

    images (B, C, S, S) float32 in [0, 1]; masks (B, S, S) uint8, 1 = inside, zeros where
    `annotated` (B,) is False; boxes (B, 4) in pixels of the model's input, NaN where there is none;
    mappings: B of them, where each image lies in its file.
    """

    images: torch.Tensor
    masks: torch.Tensor
    annotated: torch.Tensor
    boxes: torch.Tensor
    mappings: tuple[Mapping, ...]


class _Entry(NamedTuple):
    """A prepared image as it is kept: 16-bit levels (C, S, S), which are its values exactly."""

    levels: NDArray[np.uint16]
    mask: NDArray[np.uint8] | None
    box: Box | None
    mapping: Mapping

    @property
    def size(self) -> int:
        return self.levels.nbytes + (0 if self.mask is None else self.mask.nbytes)


class ImageStore:
    """The images of some samples at the size of the model's input.

    Decoded images stay in memory until `data.memory_budget` gigabytes are full; others are decoded
    each time. What `load` returns does not depend on the budget, on threads or on `prefetch`.
    """

    def __init__(self, samples: Sequence[Sample], data: DataConfig) -> None:
        self.samples = tuple(samples)
        self.data = data
        self._budget = data.memory_budget * GIGABYTE
        self._used = 0
        self._kept: dict[int, _Entry] = {}
        self._coming: dict[int, Future[_Entry]] = {}
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._stamps: dict[Path, tuple[int, int]] = {}  # of files, when they were first read
        self._rows = Counter(sample.image for sample in self.samples)
        self._films = FilmCache(lambda path: decode(path, data.dicom))

    def __len__(self) -> int:
        return len(self.samples)

    def load(self, indices: Sequence[int]) -> Loaded:
        """The batch of these samples, in this order."""
        self._start(indices, limit=None)
        entries = {index: self._finish(index) for index in dict.fromkeys(indices)}
        return _batch([entries[index] for index in indices], self.data.image_size)

    def prefetch(self, indices: Sequence[int]) -> None:
        """Start decoding samples that `load` will soon be asked for; returns at once."""
        self._start(indices, limit=LARGEST_PREFETCH)

    def _start(self, indices: Sequence[int], limit: int | None) -> None:
        missing = [index for index in dict.fromkeys(indices) if index not in self._kept]
        if not missing:
            return
        with self._lock:
            if self._pool is None:
                workers = min(WORKERS, os.cpu_count() or 1)
                self._pool = ThreadPoolExecutor(workers, thread_name_prefix="images")
            for index in missing:
                if limit is not None and len(self._coming) >= limit:
                    return
                if index not in self._coming and index not in self._kept:
                    self._coming[index] = self._pool.submit(self._decode, index)

    def _decode(self, index: int) -> _Entry:
        sample = self.samples[index]
        self._check_unchanged(sample)
        film = self._films.get(sample.image) if self._rows[sample.image] > 1 else None
        return _entry(prepare_sample(sample, self.data, film))

    def _check_unchanged(self, sample: Sample) -> None:
        """Refuse a file that is read again and has changed since: no training is of two datasets."""
        for path in (sample.image, sample.mask):
            if not isinstance(path, Path) or not is_file(path):
                continue  # in memory, or told by its reader
            status = path.stat()
            stamp = (status.st_size, status.st_mtime_ns)
            if self._stamps.setdefault(path, stamp) != stamp:
                raise UserError(
                    f"{path}: has changed while it was in use; restore the file, then continue"
                )

    def _finish(self, index: int) -> _Entry:
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        with self._lock:
            future = self._coming.get(index)
        # Without a future: another thread has just taken this sample's.
        try:
            entry = self._decode(index) if future is None else future.result()
        finally:
            with self._lock:
                self._coming.pop(index, None)
        with self._lock:
            if index not in self._kept and self._used + entry.size <= self._budget:
                self._kept[index] = entry
                self._used += entry.size
        return entry


def _entry(prepared: Prepared) -> _Entry:
    levels = (prepared.image * LEVELS).round().numpy().astype(np.uint16)
    mask = None if prepared.mask is None else prepared.mask.numpy()
    return _Entry(levels, mask, prepared.box, prepared.mapping)


def _batch(entries: Sequence[_Entry], size: int) -> Loaded:
    channels = max((len(entry.levels) for entry in entries), default=1)
    images = np.empty((len(entries), channels, size, size), np.float32)
    masks = np.zeros((len(entries), size, size), np.uint8)
    boxes = np.full((len(entries), 4), np.nan, np.float32)
    for row, entry in enumerate(entries):
        images[row] = entry.levels  # grey is repeated where the batch has colour
        if entry.mask is not None:
            masks[row] = entry.mask
        if entry.box is not None:
            boxes[row] = entry.box
    images /= np.float32(LEVELS)
    annotated = torch.tensor([entry.mask is not None for entry in entries], dtype=torch.bool)
    return Loaded(
        torch.from_numpy(images),
        torch.from_numpy(masks),
        annotated,
        torch.from_numpy(boxes),
        tuple(entry.mapping for entry in entries),
    )
