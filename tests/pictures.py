"""Images of noise as files, for tests that need some image and not what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image


def save_noise(
    path: Path, size: tuple[int, int], bits: int = 8, seed: int = 0
) -> NDArray[np.unsignedinteger[Any]]:
    """Write noise of size (height, width), 8 or 16 bits a pixel; returns its values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = np.uint8 if bits == 8 else np.uint16
    values = np.random.default_rng(seed).integers(0, 2**bits, size).astype(kind)
    Image.fromarray(values).save(path)
    return values


def save_dicom_noise(
    path: Path, size: tuple[int, int], seed: int = 0, **elements: Any
) -> NDArray[np.integer[Any]]:
    """Write noise of 12 bits as MONOCHROME1 (high values are dark), with more elements by keyword."""
    pydicom = pytest.importorskip("pydicom")
    values = np.random.default_rng(seed).integers(0, 4096, size)
    dataset = pydicom.Dataset()
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME1"
    dataset.Rows, dataset.Columns = size
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, 12, 11
    dataset.PixelRepresentation = 0
    dataset.PixelData = values.astype("<u2").tobytes()
    for name, value in elements.items():
        setattr(dataset, name, value)
    dataset.ensure_file_meta()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.save_as(path, enforce_file_format=False)
    return values


def save_film(path: Path, seed: int = 0) -> None:
    """Write a film of 200 x 160 pixels: bright tissue on the left, black air on the right."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.zeros((200, 160), np.uint8)
    values[:, :120] = np.random.default_rng(seed).integers(120, 220, (200, 120))
    Image.fromarray(values).save(path)
