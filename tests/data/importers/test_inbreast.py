"""INbreast: masses from contours, spiculated where a spiculated region overlaps, the rest told."""

from __future__ import annotations

import plistlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from protopyramid.cli.main import main
from protopyramid.data.annotations import Polygons
from protopyramid.data.importers.base import Crop, Options
from protopyramid.data.importers.inbreast import find
from protopyramid.data.io.decoding import read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError

from .conftest import only, reasons

HEADER = (
    "Patient ID;Patient age;Laterality;View;Acquisition date;File Name;ACR;Bi-Rads;Mass ;Micros"
)
SQUARE = [(30, 20), (50, 20), (50, 40), (30, 40)]
BOMB = b"""<?xml version="1.0"?><!DOCTYPE plist [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>
<plist version="1.0"><dict><key>Images</key><string>&b;</string></dict></plist>"""


def region(name: str, points: Sequence[tuple[float, float]]) -> dict[str, object]:
    texts = [f"({x:.6f}, {y:.6f})" for x, y in points]
    return {"Name": name, "NumberOfPoints": len(points), "Point_px": texts, "Type": 15}


def save_contours(root: Path, film: str, *regions: dict[str, object]) -> None:
    content = {"Images": [{"ImageIndex": 0, "NumberOfROIs": len(regions), "ROIs": list(regions)}]}
    (root / "AllXML" / f"{film}.xml").write_bytes(plistlib.dumps(content))


def save_film(root: Path, film: str, patient: str = "6c613a14b80a8591", view: str = "R_CC") -> Path:
    path = root / "AllDICOMs" / f"{film}_{patient}_MG_{view}_ANON.dcm"
    path.write_bytes(b"pixels are not looked at")
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty release."""
    for name in ("AllDICOMs", "AllXML"):
        (tmp_path / "src" / name).mkdir(parents=True)
    return tmp_path / "src"


def test_a_mass_is_its_contour_with_what_the_table_says(root: Path) -> None:
    path = save_film(root, "20586908", view="L_ML")
    save_contours(root, "20586908", region("Mass", SQUARE))
    row = "removed;removed;L;MLO;201001;20586908;3;4a;X;"
    (root / "INbreast.csv").write_text(f"{HEADER}\n{row}\n")
    crop = only(find(root, Options(test_fraction=0)))
    assert crop == Crop(
        name="20586908_1",
        image=path,
        label="mass",
        split="train",
        patient_id="6c613a14b80a8591",
        annotation=Polygons((tuple((float(x), float(y)) for x, y in SQUARE),)),
        extra={
            "film": "20586908",
            "laterality": "L",
            "view": "MLO",
            "birads": "4a",
            "density": "3",
        },
    )


def test_that_margins_are_not_labelled_is_told(root: Path) -> None:
    save_film(root, "1")
    save_contours(root, "1", region("Mass", SQUARE))
    assert any("no margin labels" in note for note in find(root, Options()).notes)


@pytest.mark.parametrize("name", ["Spiculated Region", "Espiculated Region", "Spiculated region "])
def test_a_mass_under_a_spiculated_region_is_spiculated_and_marked_by_both(
    root: Path, name: str
) -> None:
    save_film(root, "1")
    around = [(x + 5, y + 5) for x, y in SQUARE]
    far = [(x + 100, y) for x, y in SQUARE]
    save_contours(root, "1", region(name, around), region("Mass", SQUARE), region("Mass", far))
    found = find(root, Options())
    assert [crop.label for crop in found.crops] == ["spiculated", "mass"]
    annotation = found.crops[0].annotation
    assert isinstance(annotation, Polygons)
    assert [set(outline) for outline in annotation.outlines] == [set(SQUARE), set(around)]


def test_regions_that_are_no_mass_or_no_outline_are_told(root: Path) -> None:
    save_film(root, "1")
    save_contours(
        root,
        "1",
        region("Calcification", [(7, 8)]),
        region("Mass", [(7, 8)]),
        region("", SQUARE),
        region("Spiculated Region", SQUARE),
        region("Mass", [(-9, 1), (-5, 1), (-5, 9)]),
        {"Name": "Mass"},
        {"Name": "Mass", "Point_px": ["(1, 2)", "3, 4", "(5, 6)"]},
    )
    found = find(root, Options())
    assert not found.crops
    assert reasons(found) == {
        "AllXML/1.xml region 1": "not a mass, but calcification",
        "AllXML/1.xml region 2": "unusable outline: 1 distinct point(s), three are needed",
        "AllXML/1.xml region 3": "not a mass, but unnamed",
        "AllXML/1.xml region 4": "spiculated region without a mass",
        "AllXML/1.xml region 5": "outside its image",
        "AllXML/1.xml region 6": "unusable outline: 0 distinct point(s), three are needed",
        "AllXML/1.xml region 7": "unusable outline: a point is not of the form (x, y)",
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<plist>",
        b"<plist><dict><key>Images</key></dict></plist>",
        b"<plist><array/></plist>",
        b"<plist><dict><key>Images</key><array><string>x</string></array></dict></plist>",
        b"<plist><dict><key>Images</key><date>x</date></dict></plist>",
        b"<plist><integer></integer></plist>",
        b"bplist00",
        BOMB,
        b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><plist><string>&e;</string></plist>',
    ],
)
def test_a_broken_or_hostile_contour_file_is_told_and_the_others_are_read(
    root: Path, content: bytes
) -> None:
    for film in ("1", "2"):
        save_film(root, film)
        save_contours(root, film, region("Mass", SQUARE))
    (root / "AllXML/1.xml").write_bytes(content)
    found = find(root, Options())
    assert only(found).extra["film"] == "2"
    assert reasons(found)["AllXML/1.xml"].startswith("not an OsiriX property list: ")


def test_films_without_contours_and_files_without_films_are_told(root: Path) -> None:
    save_film(root, "1")
    save_contours(root, "1", region("Mass", SQUARE))
    save_film(root, "2", view="L_CC")
    save_film(root, "3")
    save_contours(root, "3")
    save_film(root, "1", patient="0" * 16)
    save_contours(root, "9", region("Mass", SQUARE))
    (root / "AllDICOMs/Thumbs.db").touch()
    rows = [f";;R;CC;;{film};1;1;;" for film in ("1", "2", "3", "8")]
    (root / "INbreast.csv").write_text("\n".join([HEADER, *rows, "cut;short"]))
    found = find(root, Options())
    assert only(found).extra["film"] == "1"
    assert reasons(found) == {
        "AllDICOMs/1_6c613a14b80a8591_MG_R_CC_ANON.dcm": (
            f"duplicate film: also as 1_{'0' * 16}_MG_R_CC_ANON.dcm"
        ),
        "AllDICOMs/2_6c613a14b80a8591_MG_L_CC_ANON.dcm": "no lesion is drawn on the film",
        "AllDICOMs/3_6c613a14b80a8591_MG_R_CC_ANON.dcm": "no lesion is drawn on the film",
        "AllDICOMs/Thumbs.db": (
            "not named like a film: FILM_PATIENT_MG_SIDE_VIEW_ANON.dcm is expected"
        ),
        "AllXML/9.xml": "film is missing: no 9_*.dcm in AllDICOMs",
        "INbreast.csv row 5": "film is missing: no 8_*.dcm in AllDICOMs",
        "INbreast.csv row 6": "malformed row: 2 fields, but 10 in the header",
    }
    assert any(note.startswith("2 film(s) without any drawn lesion") for note in found.notes)


def test_a_view_of_any_name_is_a_film(root: Path) -> None:
    for film, view in (("1", "L_ML"), ("2", "L_CC"), ("3", "R_FB")):
        save_film(root, film, view=view)
        save_contours(root, film, region("Mass", SQUARE))
    crops = find(root, Options()).crops
    assert [crop.extra["view"] for crop in crops] == ["MLO", "CC", "FB"]


def test_the_views_of_a_patient_are_in_one_split(root: Path) -> None:
    for patient in range(10):
        for view in ("L_CC", "L_ML"):
            film = f"{patient}{view == 'L_CC':d}"
            save_film(root, film, f"abc{patient}", view)
            save_contours(root, film, region("Mass", SQUARE))
    crops = find(root, Options()).crops
    splits = {(crop.patient_id, crop.split) for crop in crops}
    assert len(crops) == 20
    assert len(splits) == 10
    assert {split for _, split in splits} == {"train", "test"}


def test_the_release_may_be_a_folder_in_the_source(root: Path) -> None:
    save_film(root, "1")
    save_contours(root, "1", region("Mass", SQUARE))
    assert only(find(root.parent, Options())).name == "1_1"


def test_a_source_that_is_no_release_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="AllDICOMs and AllXML"):
        find(tmp_path, Options())


def test_a_table_without_its_columns_is_refused(root: Path) -> None:
    (root / "INbreast.csv").write_text("File Name;ACR\n1;2\n")
    with pytest.raises(UserError, match=r"INbreast\.csv: no column Bi-Rads"):
        find(root, Options())


def test_the_command_writes_crops_with_masks_that_the_manifest_names(
    root: Path,
    tmp_path: Path,
    save_dicom: Callable[[Path, np.ndarray], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    values = np.random.default_rng(0).integers(0, 2**16, (100, 90))
    for patient in range(5):
        save_dicom(save_film(root, str(patient), f"abc{patient}"), values)
        save_contours(root, str(patient), region("Mass", SQUARE))
    save_dicom(save_film(root, "9", "abc0"), values)
    save_contours(root, "9", region("Mass", [(200, 20), (210, 20), (210, 30)]))
    out = tmp_path / "out"
    command = ["data", "import", "inbreast", str(root), str(out), "--workers", "1"]
    assert main([*command, "--margin", "0.25"]) == 0
    manifest = read_manifest(out / "manifest.csv")
    assert {sample.patient_id for sample in manifest.samples} == {f"abc{n}" for n in range(5)}
    assert {sample.split for sample in manifest.samples} == {"train", "test"}
    for sample in manifest.samples:
        # A lesion of 20 pixels at (30, 20) with a quarter of it on each side.
        assert sample.box == (5, 5, 25, 25)
        assert sample.mask is not None
        crop, mask = read_image(sample.image), read_image(sample.mask)
        np.testing.assert_allclose(crop, values[15:45, 25:55] / 65535, atol=1e-5)
        expected = np.zeros((30, 30))
        expected[5:25, 5:25] = 1
        np.testing.assert_array_equal(mask, expected)
    assert "9_1," in (out / "skipped.csv").read_text()  # its contour is beside the film
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert b"SECRET" not in written
    assert "no margin labels" in capsys.readouterr().out


def test_films_have_the_boxes_of_all_regions_and_points(root: Path) -> None:
    for film in ("1", "2", "3", "4", "5"):
        save_film(root, film)
    save_contours(
        root,
        "1",
        region("Mass", SQUARE),
        region("Calcification", [(7, 9)]),
        region("Cluster", [(60, 10), (64, 18)]),
    )
    save_contours(root, "2")
    save_contours(root, "4", region("Calcification", []))
    (root / "AllXML" / "5.xml").write_bytes(BOMB)
    table = [HEADER, *(f"r;r;R;CC;1;{film};1;{birads};;" for film, birads in ("21", "32"))]
    (root / "INbreast.csv").write_text("\n".join(table) + "\n")
    found = find(root, Options(test_fraction=0))
    assert [(row.image.name.partition("_")[0], row.box) for row in found.films] == [
        ("1", (30, 20, 50, 40)),
        ("1", (6.5, 8.5, 7.5, 9.5)),
        ("1", (60, 10, 64, 18)),
        ("2", None),
    ]
    assert {row.split for row in found.films} == {"train"}
    left_out = {each.item[10:11]: each.reason for each in found.films_left_out}
    assert sorted(left_out) == ["3", "4", "5"]
    assert left_out["3"].endswith("BI-RADS 2, but no lesion is drawn")
    assert left_out["4"].endswith("region 1: unusable outline: it has no points")
    assert "AllXML/5.xml" in left_out["5"]
