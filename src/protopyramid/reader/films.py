"""Opened films: decoded once, kept in memory up to a limit, shown as tiles of a pyramid."""

from __future__ import annotations

import io
import math
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import avg_pool2d

from protopyramid.config.schema import DicomConfig
from protopyramid.data.geometry import Box, Region, Spacing, cut
from protopyramid.data.images import thumbnail
from protopyramid.data.io.decoding import Decoded, decode, is_dicom, read_size, read_spacing
from protopyramid.data.io.memory import MemoryFile, Source
from protopyramid.data.manifest import SOURCE_COLUMNS, Sample
from protopyramid.errors import UserError
from protopyramid.reader.settings import Limits, Refusal
from protopyramid.utils.opening import is_file

Array = NDArray[np.float32]
Window = tuple[float, float]  # values shown as black and as white

TILE = 512  # pixels of a tile's side
WHITE = 65535  # of a tile's values
COARSEST = 512  # longer side of the last level of the tile pyramid, at most, in pixels
AUTO_WINDOW = (0.1, 99.9)  # percentiles of the pixels that become black and white
TISSUE_WINDOWS: dict[str, Window] = {"tissue": (1.0, 99.8), "dense": (50.0, 99.9)}
BACKGROUND = 0.05  # of the brightest value: below, it is air
AS_IN_FILE = DicomConfig()
DEFLATED = (
    b"1.2.840.10008.1.2.1.99"  # transfer syntax of a DICOM file that is compressed as a whole
)


def check_source(source: Source, limits: Limits) -> None:
    """Refuse an image that would take too much memory, before any of it is decoded."""
    if isinstance(source, MemoryFile) and is_dicom(source) and DEFLATED in source.content:
        raise UserError(f"{source}: is compressed as a whole (deflated); save it uncompressed")
    size = read_size(source)
    if size is not None and size[0] * size[1] > limits.pixels:
        raise Refusal(
            413,
            f"{source}: has {size[1]} x {size[0]} pixels; at most {limits.pixels // 10**6} million are "
            "accepted",
        )


@dataclass(eq=False)
class Film:
    """An opened image.

    levels[0] is the image as its file holds it, (H, W) or (H, W, 3) in [0, 1]; each further level has half
    its size. `lesion`: its box in pixels of the file, where the manifest gives one.
    """

    name: str
    source: Source
    decoded: Decoded
    spacing: Spacing | None
    lesion: Box | None = None
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))

    def __post_init__(self) -> None:
        self.levels = Pyramid(self.decoded.image)
        self._dicom = is_dicom(self.source)
        if isinstance(self.source, MemoryFile) and not self._dicom:
            self.source = MemoryFile(b"", self.source.suffix)  # never decoded again

    @cached_property
    def window(self) -> Window:
        """The values to show as black and white at first; a DICOM file has its own window."""
        return (0.0, 1.0) if self._dicom else _percentiles(self.levels[-1], AUTO_WINDOW)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        height, width = self.decoded.image.shape[:2]
        return height, width

    @property
    def memory(self) -> int:
        """Memory that the film takes."""
        content = len(self.source.content) if isinstance(self.source, MemoryFile) else 0
        return content + self.levels.nbytes

    def seen_by(self, settings: DicomConfig) -> Decoded:
        """The image by a run's settings for DICOM; other formats have none."""
        if settings == AS_IN_FILE or not self._dicom:
            return self.decoded
        return decode(self.source, settings)

    def to_json(self) -> dict[str, Any]:
        """What a page needs in order to show the film."""
        height, width = self.size
        return {
            "id": self.id,
            "name": self.name,
            "width": width,
            "height": height,
            "spacing": None if self.spacing is None else self.spacing._asdict(),
            "levels": len(self.levels),
            "channels": 1 if self.decoded.image.ndim == 2 else 3,
            "tile": TILE,
            "window": {"low": self.window[0], "high": self.window[1]},
            "windows": [
                {"name": name, "low": low, "high": high} for name, (low, high) in self.presets
            ],
            "lesion": None if self.lesion is None else list(self.lesion),
        }

    @cached_property
    def presets(self) -> list[tuple[str, Window]]:
        """Windows to choose from: as opened, all values, tissue without the background, dense tissue."""
        values = self.levels[-1]
        tissue = values[values > BACKGROUND * float(values.max())]
        found = [("opened", self.window), ("full", (0.0, 1.0))]
        if tissue.size:
            found += [(name, _percentiles(tissue, ends)) for name, ends in TISSUE_WINDOWS.items()]
        return found

    def tile(self, level: int, column: int, row: int, low: float, high: float) -> bytes:
        """A tile as PNG: part of a level, 0 the finest, from black at `low` to white at `high`."""
        return _png(self._part(level, column, row), low, high)

    def values(self, level: int, column: int, row: int) -> tuple[bytes, tuple[int, int]]:
        """A tile as 16-bit little-endian values, 65535 for 1, and its height and width.

        A viewer that has them changes the window without asking again.
        """
        part = self._part(level, column, row)
        scaled = np.clip(part * np.float32(WHITE) + np.float32(0.5), 0, WHITE)
        height, width = part.shape[:2]
        return scaled.astype("<u2").tobytes(), (height, width)

    def _part(self, level: int, column: int, row: int) -> Array:
        if not 0 <= level < len(self.levels) or column < 0 or row < 0:
            raise Refusal(404, "there is no such tile")
        values = self.levels[level]
        part = values[row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE]
        if not part.size:
            raise Refusal(404, "there is no such tile")
        return part

    def picture(self, region: Region, side: int, low: float, high: float) -> bytes:
        """A region of the film as PNG, black beyond the film, its longer side at most `side` pixels."""
        level = 0  # the coarsest one that is not coarser than the picture
        while level + 1 < len(self.levels) and region.width >> (level + 1) >= side:
            level += 1
        scale = 2**level
        edges = (round(edge / scale) for edge in region.box)
        coarse = Region(*edges)
        part = cut(self.levels[level], coarse).astype(np.float32)
        return _png(thumbnail(part, side), low, high)


def open_film(source: Source, name: str, limits: Limits, lesion: Box | None = None) -> Film:
    """Decode an image; UserError or Refusal where it cannot or may not be."""
    check_source(source, limits)
    decoded = decode(source, AS_IN_FILE)
    return Film(name, source, decoded, read_spacing(source), lesion)


class CaseFilm(NamedTuple):
    """The film that a case was cut from, and what of it the case is, in its pixels."""

    image: Path
    crop: Box


def case_film(case: Sample, manifest: Path | None) -> CaseFilm | None:
    """The film of an imported crop by the columns of its manifest; None where it is unknown or not here."""
    name, *edges = (case.extra.get(column, "").strip() for column in SOURCE_COLUMNS)
    if manifest is None or not name:
        return None
    try:
        x0, y0, x1, y1 = (float(edge) for edge in edges)
    except ValueError:
        return None
    film = manifest.parent / name
    return CaseFilm(film, (x0, y0, x1, y1)) if x1 > x0 and y1 > y0 and is_file(film) else None


class FilmStore:
    """The films opened last, by id, up to a number of bytes and always the last one."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._films: OrderedDict[str, Film] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, film: Film) -> None:
        """Keep a film, and drop the ones used longest ago where there is no room."""
        with self._lock:
            self._films[film.id] = film
            while len(self._films) > 1 and self.memory > self._budget:
                self._films.popitem(last=False)

    def get(self, film: str) -> Film:
        """A film by its id; Refusal (404) where it is not kept, or no longer."""
        with self._lock:
            if film not in self._films:
                raise Refusal(404, "this image is no longer open; open it again")
            self._films.move_to_end(film)
            return self._films[film]

    def holds(self, film: str) -> bool:
        """Whether a film is still kept."""
        with self._lock:
            return film in self._films

    @property
    def memory(self) -> int:
        """Memory that the films take."""
        return sum(film.memory for film in self._films.values())


class Pyramid:
    """An image and its halves, quarters, …, each pixel the mean of a block, made when first asked for.

    The coarsest one shows a film at once; making it alone takes a fraction of making all.
    """

    def __init__(self, image: Array) -> None:
        self._made = {0: image}
        self._lock = threading.Lock()
        longest = max(image.shape[:2])
        self._count = 1 + max(0, math.ceil(math.log2(longest / COARSEST)))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, level: int) -> Array:
        """A level: 0 the finest, -1 the coarsest."""
        wanted = range(self._count)[level]
        with self._lock:
            if wanted not in self._made:
                self._made[wanted] = _reduced(self._made[0], 2**wanted)
            return self._made[wanted]

    @property
    def nbytes(self) -> int:
        """Memory of all levels, whether made or not: each has a quarter of the pixels of the one before."""
        return sum(self._made[0].nbytes // 4**level for level in range(self._count))


def _reduced(image: Array, factor: int) -> Array:
    """Means of blocks of factor x factor pixels; those at the edge may be smaller."""
    values = torch.from_numpy(np.ascontiguousarray(image))
    planes = values[None] if values.ndim == 2 else values.permute(2, 0, 1)
    means = avg_pool2d(planes[None], factor, ceil_mode=True)[0]
    return (means[0] if values.ndim == 2 else means.permute(1, 2, 0)).numpy()


def _percentiles(values: Array, ends: Window) -> Window:
    """The window between two percentiles; (0, 1) where they are the same."""
    low, high = (float(each) for each in np.percentile(values, ends))
    return (low, high) if high > low else (0.0, 1.0)


def _png(values: Array, low: float, high: float) -> bytes:
    scaled = (values - np.float32(low)) * np.float32(255 / max(high - low, 1e-6))
    grey = np.clip(np.rint(scaled), 0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(grey).save(out, "PNG", compress_level=1)
    return out.getvalue()
