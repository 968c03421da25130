"""Films for miniature downloads, and what an importer found in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from protopyramid.data.importers.base import Crop, ImportPlan

from ...pictures import save_noise

SaveDicom = Callable[[Path, NDArray[np.generic]], None]
WIDTH, HEIGHT = 40, 30  # of the images that `save_image` writes
# Whatever JSON may hold in a field.
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=8,
)


def save_image(path: Path, seed: int = 0) -> NDArray[np.unsignedinteger[Any]]:
    """Write an image of noise, and the folders on its way."""
    return save_noise(path, (HEIGHT, WIDTH), seed=seed)


def only(found: ImportPlan) -> Crop:
    """The single crop that was found."""
    assert len(found.crops) == 1, found.skipped
    return found.crops[0]


def reasons(found: ImportPlan) -> dict[str, str]:
    """Why each item was skipped."""
    return {skip.item: skip.reason for skip in found.skipped}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A download with the image a.png; the image beside its folder must not be reached."""
    folder = tmp_path / "src"
    save_image(tmp_path / "secret.png")
    save_image(folder / "a.png")
    return folder


@pytest.fixture
def save_dicom() -> SaveDicom:
    """Write a DICOM film of 16 bits with a patient's name in its header, which must go nowhere."""
    pytest.importorskip("pydicom")
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    def save(path: Path, values: NDArray[np.generic]) -> None:
        meta = FileMetaDataset()
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.2"
        meta.MediaStorageSOPInstanceUID = generate_uid()
        film = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
        film.PatientName, film.PatientID = "SECRET^NAME", "SECRET-ID"
        film.Rows, film.Columns = values.shape
        film.SamplesPerPixel, film.PhotometricInterpretation = 1, "MONOCHROME2"
        film.BitsAllocated = film.BitsStored = 16
        film.HighBit, film.PixelRepresentation = 15, 0
        film.PixelData = values.astype("<u2").tobytes()
        film.save_as(path, enforce_file_format=True)

    return save
