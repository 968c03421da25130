"""Films for miniature downloads, and what an importer found in them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from protopyramid.data.importers.base import Crop, ImportPlan

from ...pictures import save_noise

SaveDicom = Callable[..., None]  # path, values, and elements of the header
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

    def save(path: Path, values: NDArray[np.generic], **elements: object) -> None:
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
        for name, value in elements.items():
            setattr(film, name, value)
        film.save_as(path, enforce_file_format=True)

    return save


CONTENT_TYPES = "http://schemas.openxmlformats.org/package/2006/relationships"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def column_letters(number: int) -> str:
    """The letters of a column, from 0: A, B, ..., Z, AA."""
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def sheet_xml(rows: Sequence[Sequence[object]], shared: list[str]) -> str:
    """A sheet: numbers as numbers, texts as numbers of shared texts; None is no cell."""
    lines = []
    for line, row in enumerate(rows, 1):
        cells = []
        for place, value in enumerate(row):
            reference = f"{column_letters(place)}{line}"
            if isinstance(value, str):
                shared.append(value)
                cells.append(f'<c r="{reference}" t="s"><v>{len(shared) - 1}</v></c>')
            elif value is not None:
                cells.append(f'<c r="{reference}"><v>{value}</v></c>')
        lines.append(f'<row r="{line}">{"".join(cells)}</row>')
    return f'<worksheet xmlns="{MAIN}"><sheetData>{"".join(lines)}</sheetData></worksheet>'


def save_workbook(
    path: Path, sheets: Mapping[str, Sequence[Sequence[object]]], **parts: str
) -> None:
    """Write an .xlsx file of some sheets; `parts` replace files in it: workbook, texts, sheet1, ..."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shared: list[str] = []
    bodies = [sheet_xml(rows, shared) for rows in sheets.values()]
    listed = "".join(
        f'<sheet name="{escape(name)}" sheetId="{number}" r:id="rId{number}"/>'
        for number, name in enumerate(sheets, 1)
    )
    links = "".join(
        f'<Relationship Id="rId{number}" Type="x" Target="worksheets/sheet{number}.xml"/>'
        for number in range(1, len(sheets) + 1)
    )
    texts = "".join(f"<si><t>{escape(text)}</t></si>" for text in shared)
    files = {
        "xl/workbook.xml": parts.get(
            "workbook",
            f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{listed}</sheets></workbook>',
        ),
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{CONTENT_TYPES}">{links}</Relationships>',
        "xl/sharedStrings.xml": parts.get("texts", f'<sst xmlns="{MAIN}">{texts}</sst>'),
    }
    for number, body in enumerate(bodies, 1):
        files[f"xl/worksheets/sheet{number}.xml"] = parts.get(f"sheet{number}", body)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        for name, text in files.items():
            book.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
