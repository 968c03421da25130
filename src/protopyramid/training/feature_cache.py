"""Freeze means cache: maps of the frozen beginning of the backbone, computed once.

With blocks 1 … cut frozen, what crosses the cut is the map of block `cut` and the finer maps that the
neck reads. They are kept for every image as it is and for V fixed augmented copies, in memory-mapped
files with channels last. Training, projection, head fit and validation read them from there; the
values are those that the backbone would compute.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.utils.faults import reached
from protopyramid.utils.files import reserve, write_text
from protopyramid.utils.locks import locked
from protopyramid.utils.opening import is_file
from protopyramid.utils.typed_json import read_json

GIGABYTE = 1e9
Mode = Literal["r", "r+", "w+"]
DONE = "done.json"
FREE_SHARE = 0.9  # of the free disk space, the most that a cache may take


@dataclass(frozen=True)
class CacheLayout:
    """What a cache holds: rows, and the shape (channels, height, width) of each map by block."""

    rows: int
    shapes: Mapping[int, tuple[int, int, int]]
    mask_size: int
    half: bool

    @property
    def bytes(self) -> int:
        """Size on disk."""
        values = sum(c * h * w for c, h, w in self.shapes.values())
        mask = self.mask_size * -(-self.mask_size // 8)
        return self.rows * (values * (2 if self.half else 4) + mask + 1)


class FeatureCache:
    """Rows of maps, masks and annotation flags in memory-mapped files."""

    def __init__(self, folder: Path, layout: CacheLayout, mode: Mode) -> None:
        self.layout = layout
        if mode == "w+":
            _allocate(folder, layout)
            mode = "r+"
        kind = np.float16 if layout.half else np.float32
        self._maps = {
            block: np.memmap(folder / f"map-{block}.bin", kind, mode, shape=(layout.rows, h, w, c))
            for block, (c, h, w) in layout.shapes.items()
        }
        packed = (layout.rows, layout.mask_size, -(-layout.mask_size // 8))
        self._masks = np.memmap(folder / "masks.bin", np.uint8, mode, shape=packed)
        self._annotated = np.memmap(folder / "annotated.bin", np.uint8, mode, shape=(layout.rows,))

    def write(
        self, rows: NDArray[np.int64], maps: Mapping[int, Tensor], masks: Tensor, annotated: Tensor
    ) -> None:
        """Store maps {block: (B, C, H, W)}, masks (B, S, S) and flags (B,) at these rows."""
        reached("cache-write")
        for block, stored in self._maps.items():
            full = maps[block].float()  # numpy has no bf16
            stored[rows] = full.permute(0, 2, 3, 1).cpu().numpy()
        self._masks[rows] = np.packbits(masks.cpu().numpy().astype(bool), axis=-1)
        self._annotated[rows] = annotated.cpu().numpy()

    def read(self, rows: NDArray[np.int64]) -> tuple[dict[int, Tensor], Tensor, Tensor]:
        """Maps {block: (B, C, H, W)} in channels-last memory, masks (B, S, S) uint8, flags (B,)."""

        def taken(stored: NDArray[np.floating]) -> Tensor:
            return torch.from_numpy(stored[rows]).float().permute(0, 3, 1, 2)

        # Copying is bound by memory: read as many maps at a time as the network may use threads.
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            maps = dict(zip(self._maps, pool.map(taken, self._maps.values()), strict=True))
        masks = np.unpackbits(self._masks[rows], axis=-1, count=self.layout.mask_size)
        return maps, torch.from_numpy(masks), torch.from_numpy(self._annotated[rows].astype(bool))

    def flush(self) -> None:
        """Write everything to disk."""
        reached("cache-flush")
        for stored in (*self._maps.values(), self._masks, self._annotated):
            stored.flush()


def _allocate(folder: Path, layout: CacheLayout) -> None:
    """Create the files at full size: a full disk must not show as a fault in mapped memory."""
    for name, size in _sizes(layout).items():
        try:
            with (folder / name).open("wb") as file:
                reserve(file, size)
        except OSError as error:
            raise UserError(
                f"{folder / name}: cannot create the feature cache of {layout.bytes / GIGABYTE:.1f} GB "
                f"({error.strerror}); free some space, then run the same command again"
            ) from error


def _sizes(layout: CacheLayout) -> dict[str, int]:
    """The files of a cache, and how many bytes each has."""
    value = 2 if layout.half else 4
    sizes = {f"map-{b}.bin": c * h * w * value for b, (c, h, w) in layout.shapes.items()}
    sizes["masks.bin"] = layout.mask_size * -(-layout.mask_size // 8)
    sizes["annotated.bin"] = 1
    return {name: layout.rows * size for name, size in sizes.items()}


def is_whole(folder: Path, layout: CacheLayout) -> bool:
    """Whether all files of a cache are there, at full size: what is mapped must not end early."""
    return all(
        is_file(folder / name) and (folder / name).stat().st_size == size
        for name, size in _sizes(layout).items()
    )


def used_bytes(folder: Path) -> int:
    """Size of the files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def check_budget(
    folder: Path, layouts: Iterable[CacheLayout], budget: float, replaced: int = 0
) -> None:
    """Refuse caches that do not fit the budget (in gigabytes) or the disk, before any work.

    `replaced`: bytes of older caches in the folder, which will be deleted.
    """
    wanted = sum(layout.bytes for layout in layouts)
    free = shutil.disk_usage(_existing(folder)).free + replaced
    if wanted > budget * GIGABYTE:
        raise UserError(
            f"train.cache.disk_budget: the feature cache needs {wanted / GIGABYTE:.1f} GB, "
            f"the budget is {budget:g} GB; raise it, set train.cache.half=true, or lower `views` in "
            "train.schedule"
        )
    if wanted > free * FREE_SHARE:
        raise UserError(
            f"{folder}: the feature cache needs {wanted / GIGABYTE:.1f} GB, "
            f"{free / GIGABYTE:.1f} GB are free; free some space, or lower `views` in train.schedule"
        )


def _existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.exists())


def cache_key(state: Mapping[str, Tensor], *facts: object) -> str:
    """What a cache depends on: the frozen weights and any facts, as a digest."""
    digest = hashlib.sha256(repr(facts).encode())
    for name, tensor in sorted(state.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def is_complete(folder: Path, key: str) -> bool:
    """Whether the folder holds a finished cache of this key."""
    try:
        found = read_json(folder / DONE)
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("key") == key


def mark_complete(folder: Path, key: str) -> None:
    """Mark the cache as finished; a cache without this mark is built again."""
    write_text(folder / DONE, json.dumps({"key": key}))


def hold(folder: Path, tick: Callable[[], None]) -> AbstractContextManager[None]:
    """Lock the folder of a shared cache, so that one process builds it while others wait.

    `tick` is called again and again while waiting.
    """
    return locked(folder, tick)


def row_batches(rows: int, batch_size: int) -> Iterator[NDArray[np.int64]]:
    """All row numbers, batch by batch."""
    for start in range(0, rows, batch_size):
        yield np.arange(start, min(rows, start + batch_size))
