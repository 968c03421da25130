"""VinDr-Mammo: masses from boxes, with the official split; all other rows are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from protopyramid.cli.main import main
from protopyramid.data.importers.base import Crop, ImportPlan, Options
from protopyramid.data.importers.reading import Unusable
from protopyramid.data.importers.vindr_mammo import find, read_categories
from protopyramid.data.io.decoding import read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError

from .conftest import SaveDicom, only, reasons

HEADER = (
    "study_id,series_id,image_id,laterality,view_position,height,width,breast_birads,breast_density,"
    "finding_categories,finding_birads,xmin,ymin,xmax,ymax,split"
)
BOX = (30.5, 20.0, 50.5, 30.0)


def row(
    image: str = "i1",
    findings: str = "['Mass']",
    box: tuple[object, ...] = BOX,
    split: str = "training",
    study: str = "s1",
) -> str:
    edges = ",".join(str(edge) for edge in box)
    return f'{study},e1,{image},L,MLO,100,90,BI-RADS 4,DENSITY C,"{findings}",BI-RADS 5,{edges},{split}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A release of two films of one study, without a table."""
    folder = tmp_path / "src/images/s1"
    folder.mkdir(parents=True)
    for name in ("i1", "i2"):
        (folder / f"{name}.dicom").write_bytes(b"pixels are not looked at")
    return tmp_path / "src"


def found(root: Path, *rows: str) -> ImportPlan:
    (root / "finding_annotations.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return find(root, Options())


def test_a_mass_is_its_box_in_the_official_split(root: Path) -> None:
    result = found(root, row(), row("i2", "['Skin Retraction', 'Mass']", split="test"))
    extra = {"laterality": "L", "view": "MLO", "birads": "5", "density": "C", "findings": "Mass"}
    assert result.crops[0] == Crop(
        name="i1_2",
        image=root / "images/s1/i1.dicom",
        label="mass",
        split="train",
        patient_id="s1",
        box=BOX,
        extra=extra,
    )
    assert result.crops[1].split == "test"
    assert result.crops[1].extra["findings"] == "Skin Retraction; Mass"
    assert not result.skipped
    assert "no margin labels" in result.notes[0]


def test_other_findings_and_none_are_told_by_their_names(root: Path) -> None:
    empty = ("", "", "", "")
    result = found(
        root,
        row(),
        row("i1", "['Suspicious Calcification']"),
        row("i2", "['No Finding']", empty),
    )
    assert len(result.crops) == 1
    assert reasons(result) == {
        "finding_annotations.csv row 3 (i1)": "not a mass, but suspicious calcification",
        "finding_annotations.csv row 4 (i2)": "not a mass, but no finding",
    }
    assert "1 film(s) without a finding are left out" in result.notes


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (row(box=("", "", "", "")), "not a number: ''"),
        (row(box=(30, 20, 30, 30)), "unusable box: it is empty or inverted"),
        (row(box=(95, 20, 99, 30)), "outside its image: the image has 90 x 100 pixels"),
        (row(split="validation"), "split is neither training nor test: 'validation'"),
        (row("i9"), "film is missing: images/s1/i9.dicom"),
        (row("../s1/i1"), "invalid image_id: '../s1/i1'"),
        (row(study=".."), "invalid study_id: '..'"),
        (row(findings="Mass"), "finding_categories is not a list of names: 'Mass'"),
        (row(), "duplicate box: same as row 2"),
    ],
)
def test_a_row_that_cannot_be_used_is_told(root: Path, line: str, reason: str) -> None:
    result = found(root, row(), row("i2"), line)
    assert len(result.crops) == 2
    assert [skip.reason for skip in result.skipped] == [reason]
    assert result.skipped[0].item.startswith("finding_annotations.csv row 4 ")


def test_a_film_of_another_size_than_its_row_says_is_told(
    root: Path, save_dicom: SaveDicom
) -> None:
    for name, shape in (("i1", (100, 90)), ("i2", (50, 45))):
        save_dicom(root / f"images/s1/{name}.dicom", np.zeros(shape, np.uint16))
    result = found(root, row(), row("i2"))
    assert only(result).name == "i1_2"
    (reason,) = reasons(result).values()
    assert reason == "image size differs from its annotation: 45 x 50 pixels, not 90 x 100"
    assert [film.image.name for film in result.films] == ["i1.dicom"]


def test_films_and_files_that_no_row_names_are_told(root: Path) -> None:
    (root / "images/index.html").touch()
    assert reasons(found(root, row())) == {
        "images/index.html": "file that no row refers to",
        "images/s1/i2.dicom": "film that no row refers to",
    }


@pytest.mark.parametrize(
    "text",
    ["", "Mass", "{'Mass'}", "[1]", "[]", "['Mass'", "__import__('os')", "[" * 900, "['a'] * 9**9"],
)
def test_findings_that_are_no_list_of_names_are_refused(text: str) -> None:
    with pytest.raises(Unusable):
        read_categories(text)


def test_a_source_without_its_parts_is_refused_with_what_was_expected(
    root: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"finding_annotations\.csv"):
        find(root, Options())
    (tmp_path / "finding_annotations.csv").write_text(HEADER)
    with pytest.raises(UserError, match="no images in it"):
        find(tmp_path, Options())
    (root / "finding_annotations.csv").write_text("study_id,image_id\n1,2\n")
    with pytest.raises(UserError, match="no column laterality"):
        find(root, Options())


def test_the_command_writes_crops_with_lesion_boxes(
    root: Path, tmp_path: Path, save_dicom: Callable[[Path, np.ndarray], None]
) -> None:
    values = np.random.default_rng(0).integers(0, 2**16, (100, 90))
    for name in ("i1", "i2"):
        save_dicom(root / f"images/s1/{name}.dicom", values)
    lines = [row(box=(30, 20, 50, 30)), row("i2", box=(80, 90, 95, 110), split="test")]
    (root / "finding_annotations.csv").write_text("\n".join([HEADER, *lines]))
    out = tmp_path / "out"
    command = ["data", "import", "vindr-mammo", str(root), str(out), "--workers", "1"]
    assert main([*command, "--margin", "0.25"]) == 0
    first, second = read_manifest(out / "manifest.csv").samples
    assert (first.label, first.split, first.mask) == ("mass", "train", None)
    assert first.box == (5, 10, 25, 20)
    np.testing.assert_allclose(read_image(first.image), values[10:40, 25:55] / 65535, atol=1e-5)
    # The part of its box inside the film, in the corner: 10 x 10 pixels and 3 more on each side.
    assert (second.split, second.box) == ("test", (5, 5, 15, 15))
    np.testing.assert_allclose(read_image(second.image), values[85:, 75:] / 65535, atol=1e-5)


def test_films_have_the_boxes_of_all_findings_and_others_none(root: Path) -> None:
    (root / "images/s1/i3.dicom").touch()
    other, empty = (1.0, 2.0, 9.0, 8.0), ("", "", "", "")
    result = found(
        root,
        row(),
        row("i1", "['Suspicious Calcification']", other),
        row("i2", "['No Finding']", empty),
        row("i3", "['Asymmetry']", empty),
        row("i3"),
    )
    assert [(film.image.stem, film.box) for film in result.films] == [
        ("i1", BOX),
        ("i1", other),
        ("i2", None),
    ]
    assert {(film.patient_id, film.split) for film in result.films} == {("s1", "train")}
    assert [(each.item, each.reason) for each in result.films_left_out] == [
        ("images/s1/i3.dicom", "film left out of films.csv: row 5: not a number: ''")
    ]
