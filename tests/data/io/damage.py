"""What becomes of a file whose bytes were damaged."""

from __future__ import annotations

import tempfile
from pathlib import Path

from protopyramid.data.io.decoding import read_image
from protopyramid.errors import UserError


def refusal_of(content: bytes, name: str) -> str:
    """The one line that refuses a file; "" where it is read, to an image from 0 to 1, (H, W) or (H, W, 3)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            image = read_image(path)
        except UserError as error:
            assert "\n" not in str(error)
            return str(error)
    assert image.ndim == 2 or image.shape[2:] == (3,)
    assert image.min() >= 0
    assert image.max() <= 1
    return ""
