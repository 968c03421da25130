"""Arrays as PNG files."""

from __future__ import annotations

import io
from typing import Any

from numpy.typing import NDArray
from PIL import Image


def png_bytes(values: NDArray[Any]) -> bytes:
    """A PNG of an array of 8 or 16 bits, (H, W) or (H, W, 3)."""
    file = io.BytesIO()
    Image.fromarray(values).save(file, "PNG")
    return file.getvalue()
