"""Films for miniature downloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

SaveDicom = Callable[[Path, NDArray[np.generic]], None]


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
