"""PNG files of figures, written two to three times as fast as by Pillow at the same size.

Every row is stored as its difference from the row above (filter "up"), which suits figures; no other
filter is tried. The rows are compressed in two parts at once: deflate streams that end at a byte can be
joined.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
ZLIB_HEADER = b"\x78\x01"  # deflate with a window of 32 kB, fastest
LEVEL = 1
PARTS = 2  # a fixed number, so that the same figure gives the same bytes on every machine
UP = 2  # the number of the filter
RGB = 2  # the number of the colour type
INCH = 0.0254  # metres


def png_bytes(pixels: NDArray[np.uint8], dpi: int) -> bytes:
    """The PNG file of pixels (height, width, 3)."""
    height, width, _ = pixels.shape
    per_metre = round(dpi / INCH)
    return SIGNATURE + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, RGB, 0, 0, 0)),
            _chunk(b"pHYs", struct.pack(">IIB", per_metre, per_metre, 1)),
            _chunk(b"IDAT", _compressed(_filtered(pixels))),
            _chunk(b"IEND", b""),
        )
    )


def _filtered(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Rows of bytes (height, 1 + 3 width): the filter's number, then differences from the row above."""
    rows = pixels.reshape(len(pixels), -1)
    filtered = np.empty((rows.shape[0], 1 + rows.shape[1]), np.uint8)
    filtered[:, 0] = UP
    filtered[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=filtered[1:, 1:])
    return filtered


def _compressed(rows: NDArray[np.uint8]) -> bytes:
    """The rows as one zlib stream."""
    parts: Sequence[NDArray[np.uint8]] = np.array_split(rows, PARTS)
    ends = [zlib.Z_FULL_FLUSH] * (PARTS - 1) + [zlib.Z_FINISH]
    with ThreadPoolExecutor(PARTS) as pool:
        streams = list(pool.map(_deflated, parts, ends))
    return ZLIB_HEADER + b"".join(streams) + struct.pack(">I", zlib.adler32(rows.data))


def _deflated(rows: NDArray[np.uint8], end: int) -> bytes:
    work = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return work.compress(rows.data) + work.flush(end)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(kind))
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
