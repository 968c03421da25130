"""CDD-CESM: outlined masses of low-energy images, margins from the sheets, normal films as tissue."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.cli.main import main
from protopyramid.data.annotations import Circle
from protopyramid.data.importers.base import ImportPlan, Options
from protopyramid.data.importers.cdd_cesm import find
from protopyramid.data.io.decoding import read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError

from .conftest import only, reasons, save_workbook

LOW, SUBTRACTED = "Low energy images of CDD-CESM", "Subtracted images of CDD-CESM"
OUTLINES = "Radiology_hand_drawn_segmentations_v2.csv"
BOOK = "Radiology manual annotations.xlsx"
HEADER = [
    *("Image_name", "Patient_ID", "Side", "Type", "Age", "Breast density (ACR)", "BIRADS"),
    *("Findings", "View", "Tags", "Machine", "Pathology Classification/ Follow up"),
]
MASS_HEADER = ["Image_name", "Mass shape", "Mass margin", "Mass density"]
CIRCLE = {"name": "circle", "cx": 60, "cy": 50, "r": 12}
Shapes = Sequence[tuple[str, object]]


def film_row(
    name: str, findings: str = "Mass", birads: object = 4, pathology: str = "Benign"
) -> list[object]:
    patient, side, kind, view = name.strip().split("_")
    return [
        *(name, int(patient[1:]), side, kind, 44, "C", birads, findings, view, "x", 1),
        pathology,
    ]


def mass_row(name: str, margin: str | None = "Spiculated") -> list[object]:
    return [name, "Irregular", margin, "High"]


def write_outlines(root: Path, shapes: Shapes) -> None:
    with (root / OUTLINES).open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            [
                *("#filename", "file_size", "file_attributes", "region_count", "region_id"),
                *("region_shape_attributes", "region_attributes"),
            ]
        )
        for name, shape in shapes:
            table.writerow([name, 1, "{}", 1, 0, json.dumps(shape), "{}"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A download of two low-energy images and a subtracted one, without tables."""
    for folder, name in ((LOW, "P1_L_DM_MLO"), (LOW, "P2_R_DM_CC"), (SUBTRACTED, "P1_L_CM_MLO")):
        path = tmp_path / "src" / folder / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        values = np.full((100, 120), 120, np.uint8)
        Image.fromarray(values + np.arange(120, dtype=np.uint8)).save(path)
    return tmp_path / "src"


def found(
    root: Path,
    films: Sequence[list[object]],
    masses: Sequence[list[object]],
    shapes: Shapes,
    options: Options | None = None,
) -> ImportPlan:
    save_workbook(
        root / BOOK, {"all": [HEADER, *films], "mass_description": [MASS_HEADER, *masses]}
    )
    write_outlines(root, shapes)
    return find(root, options or Options())


FIRST, SECOND = "P1_L_DM_MLO", "P2_R_DM_CC"
NORMAL = film_row(SECOND, "Normal", 1, "Normal")


def test_a_mass_has_its_outline_and_its_margin(root: Path) -> None:
    result = found(
        root,
        [film_row(FIRST, pathology="Malignant"), NORMAL],
        [mass_row(FIRST + " ", "Speculated")],
        [(f"{FIRST} .jpg", CIRCLE), ("P1_L_CM_MLO.jpg", CIRCLE)],
    )
    lesion, tissue = result.crops
    assert (lesion.name, lesion.label, lesion.patient_id) == (FIRST, "spiculated", "P1")
    assert lesion.image == root / LOW / f"{FIRST}.jpg"
    assert lesion.annotation == Circle((60, 50), 12)
    assert lesion.extra == {
        "source": "cdd-cesm",
        "laterality": "L",
        "view": "MLO",
        "pathology": "MALIGNANT",
        "assessment": "4",
        "density": "C",
        "outline": "circle",
        "shape": "Irregular",
        "region_choice": "only region",
        "regions_in_film": "1",
    }
    assert (tissue.label, tissue.annotation) == ("negative", None)
    assert (
        tissue.tissue is not None and tissue.tissue.side == 48
    )  # 2 radii, half as much on each side
    assert not result.skipped
    assert "1 subtracted image(s) are left out: only low-energy ones are imported" in result.notes
    films = {film.image.stem: film.box for film in result.films}
    assert films == {FIRST: (48, 38, 72, 62), SECOND: None}


def test_findings_give_the_margin_where_no_mass_is_described(root: Path) -> None:
    films = [film_row(FIRST, "Upper outer ill-defined mass. No calcifications"), NORMAL]
    assert found(root, films, [mass_row("P9_L_DM_CC")], [(f"{FIRST}.jpg", CIRCLE)]).crops[
        0
    ].label == ("indistinct")


@pytest.mark.parametrize(
    ("film", "masses", "shapes", "reason"),
    [
        (
            film_row(FIRST),
            ["Spiculated"],
            [CIRCLE, CIRCLE],
            "several outlines: 2, and no table says",
        ),
        (film_row(FIRST), ["Spiculated$Circumscribed"], [CIRCLE], "several masses with different"),
        (
            film_row(FIRST),
            ["Spiculated", "Spiculated"],
            [CIRCLE],
            "several masses: 2 with the margin",
        ),
        (film_row(FIRST), ["Circumscribed - Obscured"], [CIRCLE], "mixed margins: "),
        (film_row(FIRST), ["Obscured"], [CIRCLE], "margin is not one of the three classes: "),
        (film_row(FIRST), ["lobulated"], [CIRCLE], "unknown margin: 'lobulated'"),
        (film_row(FIRST), [None], [CIRCLE], "unknown margin"),
        (film_row(FIRST, "Asymmetry"), [], [CIRCLE], "no margin is described"),
        (film_row(FIRST), ["Spiculated"], [], "no outline is drawn on the film"),
        (film_row(FIRST, birads=2, pathology="Normal"), [], [], "no outline is drawn on the film"),
        (film_row("P7_L_DM_CC"), [], [CIRCLE], "the table does not name this film"),
        (
            film_row(FIRST),
            ["Spiculated"],
            [{"name": "point", "cx": 1, "cy": 1}],
            "not an outline, but",
        ),
        (film_row(FIRST), ["Spiculated"], [{**CIRCLE, "cx": 10**400}], "not a number: "),
    ],
)
def test_what_is_unclear_is_skipped_with_its_reason(
    root: Path, film: list[object], masses: list[str | None], shapes: list[object], reason: str
) -> None:
    result = found(
        root,
        [film, NORMAL],
        [mass_row("P9_L_DM_CC"), *(mass_row(FIRST, margin) for margin in masses)],
        [("P1_L_CM_MLO.jpg", CIRCLE), *((f"{FIRST}.jpg", shape) for shape in shapes)],
    )
    assert only(result).label == "negative"
    assert reasons(result)[f"{LOW}/{FIRST}.jpg"].startswith(reason)


def test_all_outlines_of_a_film_with_one_margin_are_taken_if_wanted(root: Path) -> None:
    point = {"name": "point", "cx": 5, "cy": 6}
    shapes = [(f"{FIRST}.jpg", shape) for shape in (CIRCLE, point, {**CIRCLE, "cx": 20})]
    films = [film_row(FIRST), NORMAL]
    result = found(root, films, [mass_row(FIRST)], shapes, Options(regions="all"))
    assert [crop.name for crop in result.crops] == [f"{FIRST}_1", f"{FIRST}_3", SECOND]
    assert result.crops[0].extra["region_choice"] == "one of several regions"
    assert result.crops[0].extra["regions_in_film"] == "3"
    assert reasons(result) == {f"{FIRST} region 2": "not an outline, but a point"}
    assert any("2 crops are of films with several outlines" in note for note in result.notes)
    assert len([film for film in result.films if film.image.stem == FIRST]) == 3


def test_five_margins_and_the_first_of_mixed_ones(root: Path) -> None:
    films, shapes = [film_row(FIRST), NORMAL], [(f"{FIRST}.jpg", CIRCLE)]
    five = Options(margins="five", mixed="first")
    result = found(root, films, [mass_row(FIRST, "Obscured - Circumscribed")], shapes, five)
    assert result.crops[0].label == "obscured"


def test_names_that_lead_elsewhere_or_nowhere_are_told(root: Path) -> None:
    Image.new("L", (9, 9)).save(root / LOW / "scan.jpg")
    (root / "copy").mkdir()
    Image.new("L", (9, 9)).save(root / "copy" / f"{FIRST}.jpg")
    result = found(
        root,
        [film_row(FIRST), film_row("P8_L_DM_CC"), film_row(FIRST)],
        [mass_row(FIRST)],
        [(f"{FIRST}.jpg", CIRCLE), ("../../P3_L_DM_CC.jpg", CIRCLE), ("P3_L_DM_CC.jpg", CIRCLE)],
    )
    told = reasons(result)
    assert told[f"{LOW}/scan.jpg"].startswith("not named like a film")
    assert told[f"copy/{FIRST}.jpg"] == f"duplicate film: also as {LOW}/{FIRST}.jpg" or told[
        f"{LOW}/{FIRST}.jpg"
    ].startswith("duplicate film")
    assert told[f"{OUTLINES} row 3 (../../P3_L_DM_CC.jpg)"].startswith("not named like a film")
    assert told[f"{OUTLINES} row 4 (P3_L_DM_CC.jpg)"] == "film is missing"
    assert told[f"{BOOK} all row 3"] == "film is missing: P8_L_DM_CC.jpg"
    assert told[f"{BOOK} all row 4"] == "duplicate film: same as row 2"


def test_missing_files_and_sheets_are_told(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no Radiology_hand_drawn_segmentations_v2\.csv"):
        find(root, Options())
    write_outlines(root, [(f"{FIRST}.jpg", CIRCLE)])
    with pytest.raises(UserError, match="no radiology manual annotations"):
        find(root, Options())
    save_workbook(root / BOOK, {"all": [HEADER, NORMAL]})
    with pytest.raises(UserError, match="no sheet 'mass_description'; sheets found: all"):
        find(root, Options())
    save_workbook(root / BOOK, {"all": [["Image_name"], ["x"]], "mass_description": [MASS_HEADER]})
    with pytest.raises(UserError, match="no column Findings"):
        find(root, Options())
    save_workbook(root / "Radiology-manual-annotations.xlsx", {"all": [HEADER]})
    with pytest.raises(UserError, match="several files could be"):
        find(root, Options())
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no low-energy images"):
        find(tmp_path / "empty", Options())


def test_sheets_saved_as_csv_are_read_too(root: Path) -> None:
    write_outlines(root, [(f"{FIRST}.jpg", CIRCLE)])
    for name, rows in (
        ("Radiology_manual_annotations_all.csv", [HEADER, film_row(FIRST), NORMAL]),
        ("mass_description.csv", [MASS_HEADER, mass_row(FIRST, "Circumscribed")]),
    ):
        with (root / name).open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    assert [crop.label for crop in find(root, Options()).crops] == ["circumscribed", "negative"]
    (root / "mass_description.csv").unlink()
    assert [crop.label for crop in find(root, Options()).crops] == ["negative"]


def test_the_command_writes_crops_masks_and_tissue(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_workbook(
        root / BOOK,
        {
            "all": [HEADER, film_row(FIRST), NORMAL],
            "mass_description": [MASS_HEADER, mass_row(FIRST)],
        },
    )
    write_outlines(root, [(f"{FIRST}.jpg", CIRCLE)])
    out = tmp_path / "out"
    command = ["data", "import", "cdd-cesm", str(root), str(out), "--workers", "1"]
    assert main([*command, "--test-fraction", "0"]) == 0
    manifest = read_manifest(out / "manifest.csv")
    lesion, tissue = manifest.samples
    assert (lesion.label, tissue.label) == ("spiculated", "negative")
    assert lesion.mask is not None and tissue.mask is None
    mask = read_image(lesion.mask) > 0.5
    assert mask.shape == (48, 48)
    assert abs(mask.sum() - np.pi * 12**2) < 20
    assert lesion.extra["source"] == "cdd-cesm"
    assert main([*command, "--test-fraction", "0", "--regions", "all"]) != 0  # other options
