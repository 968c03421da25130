"""Packed models for tests: a small honest one, and ways to spoil it."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import save


def png(side: int = 8) -> bytes:
    """A PNG of random pixels."""
    out = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (side, side), dtype=np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def honest() -> dict[str, bytes]:
    """The files of a packed model, without model.json."""
    return {
        "format": b"2\n",
        "config.toml": b"[train]\nseed = 1\n",
        "model.safetensors": save({"head.weight": np.ones((2, 3), np.float32)}),
        "prototypes.json": b"[]\n",
        "prototypes/000.png": png(),
        "data.json": b'{"manifest": "manifest.csv", "manifest_path": ""}\n',
        "MODEL_CARD.md": b"# tiny\n",
    }


def listing(files: dict[str, bytes]) -> dict[str, dict[str, object]]:
    """What model.json says of files."""
    return {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in files.items()
    }


def about(files: dict[str, bytes], **changes: object) -> dict[str, object]:
    """The content of model.json."""
    return {"package": 1, "name": "tiny", "version": "1", "files": listing(files), **changes}


def write_zip(
    path: Path,
    files: dict[str, bytes],
    description: dict[str, object] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """Write a zip by hand: model.json and files, whatever they are."""
    with zipfile.ZipFile(path, "w", compression) as packed:
        packed.writestr("model.json", json.dumps(description or about(files)))
        for name, content in files.items():
            packed.writestr(zipfile.ZipInfo(name), content, compression)  # no name is refused here
    return path
