"""Small datasets and the real one, for the tests of the data folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

REAL = Path(__file__).resolve().parents[2].parent / "shared/data/cbis-margins/manifest.csv"


@pytest.fixture(scope="session")
def real_manifest_path() -> Path:
    if not REAL.is_file():
        pytest.skip("the CBIS-DDSM crops are not beside the project")
    return REAL


@pytest.fixture
def write_manifest(tmp_path: Path) -> Callable[..., Path]:
    """Write a manifest and, for every name that looks like a PNG, an image of its own content."""

    def write(text: str | bytes, images: tuple[str, ...] = ("a.png", "b.png", "c.png")) -> Path:
        for number, name in enumerate(images):
            values = np.random.default_rng(number).integers(0, 256, (12, 16)).astype(np.uint8)
            Image.fromarray(values).save(tmp_path / name)
        path = tmp_path / "manifest.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
