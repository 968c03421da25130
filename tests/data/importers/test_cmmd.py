"""CMMD with TOMPEI's annotations: films by their headers, margins by the sheet, outlines by JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from protopyramid.cli.main import main
from protopyramid.data.annotations import Polygons
from protopyramid.data.importers.base import ImportPlan, Options
from protopyramid.data.importers.cmmd import find
from protopyramid.data.io.decoding import read_image, read_view
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError

from .conftest import SaveDicom, only, reasons, save_workbook

BOOK = "TOMPEI-CMMD_clinical_data_v01_20250121.xlsx"
SHEET = "Imaging Diagnosis Details Sheet"
UPPER = ["ID", "LeftRight", "Age", "classification", "Exclusion", "density", "Mass", None, None]
LOWER = [None, None, None, None, None, None, "Location", "Shape", "Margin"]
HEADER = [
    [*UPPER, "BI-RADS", "Notes", "Additional", None],
    [*LOWER, None, None, "Location", "Margin"],
]
SQUARE = [(20, 30), (60, 30), (60, 70), (20, 70)]
Lesions = Sequence[tuple[str, Sequence[tuple[object, object]]]]


def breast(
    patient: str = "D1-0001",
    side: str = "R",
    margin: str | None = "spiculated",
    more: str | None = None,
    kind: str = "Malignant",
    note: str | None = None,
) -> list[object]:
    return [patient, side, 44, kind, None, "C", "U", "irregular", margin, 5, note, None, more]


def view_code(meaning: str, code: str) -> list[object]:
    from pydicom.dataset import Dataset

    item = Dataset()
    item.CodeValue, item.CodeMeaning, item.CodingSchemeDesignator = code, meaning, "SNM3"
    return [item]


@pytest.fixture
def root(tmp_path: Path, save_dicom: SaveDicom) -> Path:
    """One patient with four films: tissue is bright on the side of the chest wall, black beyond."""
    folder = tmp_path / "src/CMMD/D1-0001/07-18-2010-NA-NA-79377/1.000000-NA-70244"
    folder.mkdir(parents=True)
    for number, (side, view) in enumerate(
        [("L", "CC"), ("L", "MLO"), ("R", "CC"), ("R", "MLO")], 1
    ):
        values = np.zeros((120, 100), np.uint16)
        values[:, :50] = 1000 + np.arange(50) * 10  # both sides alike: the test says which is which
        code = "R-10242" if view == "CC" else "R-10226"
        save_dicom(
            folder / f"1-{number}.dcm",
            values,
            ImageLaterality=side,
            ViewCodeSequence=view_code("view", code),
        )
    return tmp_path / "src"


def outline_file(root: Path, lesions: object, name: str = "D1-0001_MLO_R") -> Path:
    path = root / f"TOMPEI-CMMD_v01_20250123/{name}_AnnotationFile.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(lesions))
    return path


def drawn(*lesions: tuple[str, Sequence[tuple[object, object]]]) -> list[object]:
    return [
        {"_id": "x", "label": label, "cgPoints": [{"x": x, "y": y} for x, y in points]}
        for label, points in lesions
    ]


def found(
    root: Path,
    rows: Sequence[list[object]],
    lesions: object,
    options: Options | None = None,
) -> ImportPlan:
    save_workbook(root / BOOK, {"README": [["about"]], SHEET: [*HEADER, *rows]})
    outline_file(root, lesions)
    return find(root, options or Options())


def test_a_mass_is_found_by_view_and_side_with_its_margin(root: Path) -> None:
    result = found(root, [breast()], drawn(("mass ", SQUARE), ("calc ", SQUARE)))
    crop = only(result)
    assert (crop.name, crop.label, crop.patient_id) == ("D1-0001_MLO_R_1", "spiculated", "D1-0001")
    assert crop.image.name == "1-4.dcm"
    assert crop.annotation == Polygons((tuple(SQUARE),))
    assert crop.extra == {
        "source": "cmmd",
        "series": "D1",
        "laterality": "R",
        "view": "MLO",
        "pathology": "MALIGNANT",
        "assessment": "5",
        "shape": "irregular",
        "region_choice": "only region",
        "regions_in_film": "1",
    }
    assert not result.skipped
    assert [(film.image.name, film.box) for film in result.films] == [("1-4.dcm", (20, 30, 60, 70))]


def test_side_and_view_come_from_the_header(
    root: Path, save_dicom: SaveDicom, tmp_path: Path
) -> None:
    films = sorted(root.rglob("*.dcm"))
    assert [read_view(film) for film in films] == [
        ("L", "CC"),
        ("L", "MLO"),
        ("R", "CC"),
        ("R", "MLO"),
    ]
    values = np.zeros((4, 4), np.uint16)
    save_dicom(tmp_path / "a.dcm", values, Laterality="L", ViewPosition="MLO")
    assert read_view(tmp_path / "a.dcm") == ("L", "MLO")
    save_dicom(tmp_path / "b.dcm", values, ImageLaterality="B", ViewPosition="XCCL")
    assert read_view(tmp_path / "b.dcm") == ("", "")
    (tmp_path / "c.dcm").write_bytes(b"\0" * 128 + b"DICM" + b"rubbish" * 9)
    assert read_view(tmp_path / "c.dcm") == ("", "")


@pytest.mark.parametrize(
    ("row", "lesions", "reason"),
    [
        (breast(margin=None), [("mass", SQUARE)], "unknown margin"),
        (breast(margin="lobular"), [("mass", SQUARE)], "unknown margin: 'lobular'"),
        (breast(margin="microlobulated"), [("mass", SQUARE)], "margin is not one of the three"),
        (breast(more="indistinct"), [("mass", SQUARE)], "several masses with different margins"),
        (
            breast(more="spiculated"),
            [("mass", SQUARE)],
            "several masses: 1 outline(s) and 2 margin(s)",
        ),
        (breast(), [("mass", SQUARE)] * 2, "several masses: 2 outline(s) and 1 margin(s)"),
        (breast(), [("calc", SQUARE), ("FAD", SQUARE)], "not a mass, but calc, fad"),
        (breast(), [], "no lesion is drawn on the film"),
        (breast(side="L"), [("mass", SQUARE)], "the table has no row for D1-0001, side R"),
        (breast(kind="Exclusion"), [("mass", SQUARE)], "excluded by the annotators"),
        (breast(kind="Invisible"), [("mass", SQUARE)], "its lesion is not visible"),
        (
            breast(note="Reversed left and right"),
            [("mass", SQUARE)],
            "left and right are said to be",
        ),
        (breast(), [("mass", SQUARE[:2])], "unusable outline: 2 distinct point(s)"),
        (breast(), [("mass", [(1e300, 1), (2, 2), (3, 9)])], "outside any image: 1e+300"),
        (
            breast(),
            [("mass", [(200, 1), (300, 2), (300, 9)])],
            "outside its image: the image has 100 x",
        ),
        (breast(), [("mass", [("x", 1), (2, 2), (3, 9)])], "not a number: 'x'"),
    ],
)
def test_what_is_unclear_is_skipped_with_its_reason(
    root: Path, row: list[object], lesions: Lesions, reason: str
) -> None:
    result = found(root, [row], drawn(*lesions))
    assert not result.crops
    (told,) = reasons(result).values()
    assert told.startswith(reason)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"a": 1}, "not a list of outlines"),
        ([1], "not a list of outlines"),
        ([{"label": "mass"}], "unusable outline: cgPoints is not a list of points"),
        ([{"label": "mass", "cgPoints": [1, 2]}], "unusable outline: cgPoints is not a list"),
        ([{}] * 1001, "too many outlines: 1001"),
    ],
)
def test_a_file_that_holds_no_outlines_is_told(root: Path, content: object, reason: str) -> None:
    result = found(root, [breast()], content)
    (told,) = reasons(result).values()
    assert told.startswith(reason)
    assert not result.films and result.films_left_out


def test_json_that_is_broken_or_too_deep_is_told(root: Path) -> None:
    save_workbook(root / BOOK, {SHEET: [*HEADER, breast()]})
    path = outline_file(root, [])
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        (told,) = reasons(find(root, Options())).values()
        assert told.startswith("not JSON")


def test_all_masses_of_a_breast_with_one_margin_are_taken_if_wanted(root: Path) -> None:
    rows = [breast(more="spiculated")]
    result = found(
        root, rows, drawn(("mass", SQUARE), ("mass", SQUARE[:3])), Options(regions="all")
    )
    assert [crop.name for crop in result.crops] == ["D1-0001_MLO_R_1", "D1-0001_MLO_R_2"]
    assert {crop.extra["region_choice"] for crop in result.crops} == {"one of several regions"}


def test_films_that_are_missing_or_alike_are_told(root: Path, save_dicom: SaveDicom) -> None:
    outline_file(root, drawn(("mass", SQUARE)), "D2-0009_MLO_L")
    result = found(root, [breast(), breast("D2-0009", "L")], drawn(("mass", SQUARE)))
    assert list(reasons(result).values()) == ["film is missing: no folder D2-0009"]
    film = next(root.rglob("1-4.dcm"))
    (film.parent / "copy.dcm").write_bytes(film.read_bytes())
    (told, _) = reasons(find(root, Options())).values()
    assert told.startswith("several films: ")
    (film.parent / "copy.dcm").unlink()
    film.unlink()
    (told, _) = reasons(find(root, Options())).values()
    assert told == "film is missing: no MLO of side R by the DICOM headers"


def test_copies_of_a_mac_and_stray_rows_are_passed_over(root: Path) -> None:
    junk = root / "__MACOSX/._D1-0001_MLO_R_AnnotationFile.json"
    junk.parent.mkdir()
    junk.write_bytes(b"\0")
    rows = [breast(), breast("D1-0001", "R", "indistinct"), breast("total", "x"), [None, None, 7]]
    result = found(root, rows, drawn(("mass", SQUARE)))
    assert only(result).label == "spiculated"
    assert reasons(result) == {
        f"{BOOK} row 4": "duplicate breast: same as row 3",
        f"{BOOK} row 5": "no patient and side: 'total', 'x'",
    }


def test_a_header_that_is_not_understood_is_asked_for(root: Path) -> None:
    outline_file(root, drawn(("mass", SQUARE)))
    odd = [["ID", "LeftRight", "edge of it"], ["D1-0001", "R", "indistinct"]]
    save_workbook(root / BOOK, {SHEET: odd})
    with pytest.raises(
        UserError, match=r"--margin-column.*Columns found: ID, LeftRight, edge of it"
    ):
        find(root, Options())
    for name in ("C", "c", "Edge of it"):
        assert only(find(root, Options(margin_column=name))).label == "indistinct"
    for name in ("D", "margin", "7"):
        with pytest.raises(UserError, match="give --margin-column a letter or a name"):
            find(root, Options(margin_column=name))


def test_missing_tables_and_sheets_are_told(root: Path) -> None:
    with pytest.raises(UserError, match="no outlines"):
        find(root, Options())
    outline_file(root, [])
    with pytest.raises(UserError, match="no TOMPEI-CMMD_clinical_data"):
        find(root, Options())
    save_workbook(root / BOOK, {"README": [["x"]]})
    with pytest.raises(UserError, match="no sheet 'imaging diagnosis details sheet'"):
        find(root, Options())
    save_workbook(root / BOOK, {SHEET: HEADER})
    with pytest.raises(UserError, match="no row with a patient"):
        find(root, Options())
    save_workbook(root / BOOK, {SHEET: [["ID", "Margin"], ["D1-0001", "x"]]})
    with pytest.raises(UserError, match="no column LeftRight; columns found: ID, Margin"):
        find(root, Options())
    save_workbook(root / "copy" / BOOK, {SHEET: HEADER})
    with pytest.raises(UserError, match="several files could be"):
        find(root, Options())


def test_the_command_writes_crops_and_refuses_outlines_on_the_background(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_workbook(root / BOOK, {SHEET: [*HEADER, breast(), breast(side="L")]})
    inside = [(10, 30), (40, 30), (40, 70), (10, 70)]
    outline_file(root, drawn(("mass", inside)))
    beyond = [(60, 30), (90, 30), (90, 70), (60, 70)]
    outline_file(root, drawn(("mass", beyond)), "D1-0001_MLO_L")
    out = tmp_path / "out"
    assert main(["data", "import", "cmmd", str(root), str(out), "--workers", "1"]) == 0
    (sample,) = read_manifest(out / "manifest.csv").samples
    assert (sample.label, sample.extra["laterality"]) == ("spiculated", "R")
    assert sample.mask is not None
    assert (read_image(sample.mask) > 0.5).sum() == 30 * 40
    skipped = (out / "skipped.csv").read_text()
    assert "the outline lies on the background: left and right may be swapped" in skipped
    assert "SECRET" not in (out / "manifest.csv").read_text() + skipped + capsys.readouterr().out
