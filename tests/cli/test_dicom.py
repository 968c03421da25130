"""From a dataset of DICOM files to its report: no name, number or date of a patient is ever said or kept.

The names of the files are the user's choice, and the only words of the dataset that may appear.
"""

from __future__ import annotations

import base64
import logging
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from protopyramid.cli.main import main
from protopyramid.data.images import file_hash
from protopyramid.data.io.decoding import read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.runs.run import load_run

pydicom = pytest.importorskip("pydicom")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")

SECRETS = {
    "PatientName": "Zqxjname^Wvutfirst",
    "PatientID": "ZQXJ-PATIENT-77",
    "PatientBirthDate": "19430217",
    "OtherPatientIDs": "ZQXJ-OTHER-78",
    "PatientAddress": "Zqxjstreet 9",
    "AccessionNumber": "ZQXJACC5512",
    "InstitutionName": "Zqxjhospital",
    "ReferringPhysicianName": "Zqxjdoctor",
    "OperatorsName": "Zqxjoperator",
    "StationName": "ZQXJSTATION",
    "StudyID": "ZQXJSTUDY",
    "StudyDate": "20170313",
    "SeriesDescription": "Zqxjseries",
    "ImageComments": "Zqxjcomment",
    "StudyInstanceUID": "1.2.826.0.1.3680043.99887766554433.1",
    "SOPInstanceUID": "1.2.826.0.1.3680043.99887766554433.2",
    "SpecificCharacterSet": "ZQXJ_CHARSET",  # pydicom warns of it, with its value
}
PRIVATE, NESTED = "Zqxjprivate", "Zqxjnested"
PLANTED = [*SECRETS.values(), PRIVATE, NESTED, "Zqxj", "ZQXJ", "Wvutfirst", "99887766554433"]
EMBEDDED = re.compile(rb"base64,([A-Za-z0-9+/]+=*)")
SETTINGS = {
    "data.image_size": "32",
    "data.dicom.flip": "left",
    "model.backbone.width": "0.0625",
    "model.backbone.batch_norm": "true",
    "model.backbone.weights": "none",
    "model.neck.dim": "8",
    "model.prototypes.counts": "{2=1}",
    "model.prototypes.negative_counts": "{5=1}",
    "train.batch_size": "16",
    "train.threads": "1",
    "train.schedule": "[{step='train', epochs=1}, {step='project'}, {step='fit-head'}]",
}


def write_dicom(source: Path, path: Path, side: str) -> None:
    """The picture of another file as DICOM, with secrets in every place that can hold one."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage

    pixels = np.rint(read_image(source) * 65535).astype("<u2")
    dataset = Dataset()
    for name, value in SECRETS.items():
        setattr(dataset, name, value)
    dataset.SOPClassUID = SecondaryCaptureImageStorage
    dataset.ImageLaterality, dataset.BurnedInAnnotation = side, "YES"
    dataset.private_block(0x0013, PRIVATE, create=True).add_new(1, "LO", PRIVATE)
    inner = Dataset()
    inner.PatientName = NESTED
    dataset.RequestAttributesSequence = [inner]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.Rows, dataset.Columns = pixels.shape
    dataset.BitsAllocated = dataset.BitsStored = 16
    dataset.HighBit, dataset.PixelRepresentation = 15, 0
    dataset.PixelData = pixels.tobytes()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.SourceApplicationEntityTitle = PRIVATE
    dataset.file_meta.MediaStorageSOPInstanceUID = SECRETS["SOPInstanceUID"]
    dataset.save_as(path, enforce_file_format=True)


@pytest.fixture(scope="module")
def manifest(phantom_manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The phantoms as DICOM; every other one shows a right breast, and masks stay as they are."""
    folder = tmp_path_factory.mktemp("dicom")
    samples = read_manifest(phantom_manifest).samples
    text = phantom_manifest.read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sample in enumerate(samples):
            name = Path(sample.name).with_suffix(".dcm")
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_dicom(sample.image, folder / name, "LR"[number % 2])
            text = text.replace(f"{sample.name},", f"{name.as_posix()},", 1)
            if sample.mask is not None:
                kept = folder / sample.mask.relative_to(phantom_manifest.parent)
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(sample.mask, kept)
    (folder / "manifest.csv").write_text(text)
    return folder / "manifest.csv"


def plain(content: bytes) -> bytes:
    """A file with its embedded pictures decoded: the letters of base64 spell short words by chance."""
    return EMBEDDED.sub(lambda found: base64.b64decode(found[1]), content)


def planted_in(folder: Path) -> list[str]:
    """The files below a folder that hold a secret."""
    words = [word.encode() for word in PLANTED]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [str(p) for p in files if any(word in plain(p.read_bytes()) for word in words)]


def test_nothing_of_a_patient_reaches_a_run_its_outputs_or_the_terminal(
    manifest: Path,
    phantom_manifest: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch.set_num_threads(1)
    caplog.set_level(logging.INFO)
    assert len(planted_in(manifest.parent)) == len(read_manifest(manifest).samples)
    out, files = tmp_path / "run", sorted((manifest.parent / "images").iterdir())
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    commands = [
        ["data", "check", manifest],
        ["train", "fpn-iaia-bl", "--data", manifest, "--out", out, *settings],
        ["evaluate", out, "--bootstrap", "5"],
        ["predict", out, manifest.parent / "images", "--out", tmp_path / "predictions.csv"],
        ["explain", out, files[1], "--out", tmp_path / "explained"],
        ["prototypes", out],
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for command in commands:
            assert main([str(word) for word in command]) == 0, capfd.readouterr().err
    streams = capfd.readouterr()
    said = streams.out + streams.err + caplog.text + "".join(str(w.message) for w in caught)
    assert "burned into its pixels" in said
    assert [word for word in PLANTED if word in said] == []
    assert planted_in(tmp_path) == []
    assert load_run(out).config.data.dicom.flip == "left"
    # What is known of the images is known whatever the format and the settings.
    trained = load_run(out).folder.read_json("data.json")["splits"]["train"]
    twins = {Path(sample.name).stem: sample for sample in read_manifest(phantom_manifest).samples}
    assert all(file_hash(twins[Path(name).stem].image) == found for name, found in trained.items())


def test_a_damaged_file_is_one_line_without_its_words(
    manifest: Path, new_run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = (next((manifest.parent / "images").iterdir())).read_bytes()
    folder = tmp_path / "images"
    folder.mkdir()
    damages = {
        "syntax": whole.replace(b"1.2.840.10008.1.2.1\0", b"Zqxj^Wvutfirst.1.2.1", 1),
        "grey": whole.replace(b"MONOCHROME2 ", b"Zqxj^Wvutfir", 1),
        "short": whole[:-100],
    }
    run = str(new_run().folder.path)
    capfd.readouterr()
    for name, content in damages.items():
        assert content != whole
        (folder / f"{name}.dcm").write_bytes(content)
        out = ["--out", str(tmp_path / "out.csv")]
        assert main(["predict", run, str(folder / f"{name}.dcm"), *out]) == 2
        streams = capfd.readouterr()
        lines = [line for line in streams.err.splitlines() if f"{name}.dcm" in line]
        assert len(lines) == 1
        assert [word for word in PLANTED if word in streams.out + streams.err] == []
