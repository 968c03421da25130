"""Mini-MIAS is found with its circles, its pairs of films and its gaps."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.cli.main import main
from protopyramid.data.annotations import Circle
from protopyramid.data.importers.base import Options
from protopyramid.data.importers.mini_mias import find
from protopyramid.data.importers.writer import write_dataset
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError

INFO = """REFNUM BG CLASS SEVERITY X Y RADIUS
mdb001 G CIRC B 535 425 197
mdb002 G CIRC B 522 280 69
mdb003 D NORM
mdb004 D NORM\x20
mdb005 F CIRC B 477 133 30
mdb005 F SPIC M 500 168 26
mdb006 F NORM
mdb012 F MISC B 471 458 40
mdb059 F CIRC B *NOTE 3*
mdb060 F SPIC M
mdb072 G ASYM M 266 517 28
mdb115 G ARCH M 461 532 117
mdb216 D CALC M *NOTE 3*
mdb300 D SPIC M 200 200 20
"""
PRESENT = (1, 2, 3, 4, 5, 6, 12, 59, 60, 72, 115, 216)


def breast(seed: int) -> np.ndarray:
    """A film (1024, 1024): bright tissue from the left edge on, a label in a corner."""
    rng = np.random.default_rng(seed)
    values = np.zeros((1024, 1024), np.uint8)
    values[100:924, 60:620] = rng.integers(120, 220, (824, 560))
    values[40:80, 900:990] = 255
    return values


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A download in part: the film of one line is missing."""
    folder = tmp_path_factory.mktemp("mias") / "all-mias"
    folder.mkdir()
    (folder / "Info.txt").write_text(INFO)
    for number in PRESENT:
        Image.fromarray(breast(number)).save(folder / f"mdb{number:03d}.pgm")
    return folder


def test_a_circle_without_end_is_no_size_of_tissue(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "spoilt"
    folder.mkdir()
    for film in source.glob("*.pgm"):
        (folder / film.name).write_bytes(film.read_bytes())
    (folder / "Info.txt").write_text(INFO.replace("522 280 69", f"522 280 {'9' * 400}"))
    crops = {crop.name: crop for crop in find(folder, Options()).crops}
    assert crops["mdb003"].tissue.side <= 1024 * 2


def test_labels_names_and_patients(source: Path) -> None:
    crops = {crop.name: crop for crop in find(source, Options()).crops}
    assert {name: crop.label for name, crop in crops.items()} == {
        "mdb001": "circumscribed",
        "mdb002": "circumscribed",
        "mdb003": "negative",
        "mdb004": "negative",
        "mdb005_1": "circumscribed",
        "mdb005_2": "spiculated",
        "mdb006": "negative",
        "mdb012": "indistinct",
    }
    patients = {name: crop.patient_id for name, crop in crops.items()}
    assert patients["mdb001"] == patients["mdb002"] != patients["mdb003"] == patients["mdb004"]
    assert patients["mdb005_1"] == patients["mdb005_2"] == patients["mdb006"]
    assert crops["mdb001"].extra == {
        "laterality": "RIGHT",
        "view": "MLO",
        "pathology": "BENIGN",
        "tissue": "fatty-glandular",
    }
    assert crops["mdb004"].extra["laterality"] == "LEFT"
    assert crops["mdb004"].extra["pathology"] == ""


def test_y_is_counted_from_the_lower_edge(source: Path) -> None:
    crops = {crop.name: crop for crop in find(source, Options()).crops}
    assert crops["mdb002"].annotation == Circle((522, 1024 - 280), 69)
    assert crops["mdb002"].box == (453, 675, 591, 813)


def test_what_is_left_out_has_a_reason(source: Path) -> None:
    skipped = {each.item: each.reason for each in find(source, Options()).skipped}
    assert skipped == {
        "Info.txt: mdb059": "no coordinates",
        "Info.txt: mdb060": "no coordinates",
        "Info.txt: mdb072": "not a mass, but ASYM (asymmetry)",
        "Info.txt: mdb115": "not a mass, but ARCH (architectural distortion)",
        "Info.txt: mdb216": "not a mass, but CALC (calcification)",
        "Info.txt: mdb300": "its film is missing",
    }


def test_the_dataset_has_circles_and_tissue(source: Path) -> None:
    folder, options = source.parent / "out", Options(margin=0.5)
    imported = write_dataset(find(source, options), source, folder, "mini-mias", options)
    samples = {Path(each.name).stem: each for each in read_manifest(imported.manifest).samples}
    lesion = samples["mdb002"]
    film = np.asarray(Image.open(source / "mdb002.pgm")).astype(np.uint16) * 257
    image = np.asarray(Image.open(lesion.image))
    assert image.shape == (276, 276)
    assert (image == film[744 - 138 : 744 + 138, 522 - 138 : 522 + 138]).all()
    assert lesion.box == (69, 69, 207, 207)
    mask = np.asarray(Image.open(lesion.mask)) > 0
    assert mask.sum() == pytest.approx(np.pi * 69**2, rel=0.01)
    assert np.argwhere(mask).mean(0) == pytest.approx([137.5, 137.5])
    sides = {2 * 2 * radius for radius in (197, 69, 30, 26, 40, 20)}
    for name in ("mdb003", "mdb004", "mdb006"):
        square = np.asarray(Image.open(samples[name].image))
        assert square.shape[0] == square.shape[1]
        assert any(square.shape[0] in (side, side * 3 // 4, side // 2) for side in sides)
        assert 120 * 257 <= np.median(square) <= 220 * 257
        assert samples[name].mask is None and samples[name].box is None
    with (folder / "skipped.csv").open(newline="") as file:
        left_out = [row["item"] for row in csv.DictReader(file)]
    assert len(left_out) == 9
    assert left_out[6:] == ["mdb059.pgm", "mdb060.pgm", "mdb216.pgm"]  # of films.csv


def test_films_have_all_abnormalities_and_normal_ones_none(source: Path) -> None:
    found = find(source, Options(test_fraction=0))
    rows = [(row.image.stem, row.box) for row in found.films]
    assert rows == [
        ("mdb001", (535 - 197, 1024 - 425 - 197, 535 + 197, 1024 - 425 + 197)),
        ("mdb002", (453, 675, 591, 813)),
        ("mdb003", None),
        ("mdb004", None),
        ("mdb005", (447, 861, 507, 921)),
        ("mdb005", (474, 830, 526, 882)),
        ("mdb006", None),
        ("mdb012", (431, 526, 511, 606)),
        ("mdb072", (238, 479, 294, 535)),
        ("mdb115", (344, 375, 578, 609)),
    ]
    assert {each.item: each.reason.partition(": ")[2] for each in found.films_left_out} == {
        "mdb059.pgm": "CIRC without coordinates",
        "mdb060.pgm": "SPIC without coordinates",
        "mdb216.pgm": "CALC without coordinates",
    }
    # Women whose films show no mass and are not normal have no split in the manifest.
    unsplit = {row.image.stem for row in found.films if not row.split}
    assert unsplit == {"mdb072", "mdb115"}


def test_negatives_of_an_import_touch_no_abnormality(tmp_path: Path) -> None:
    source, out, negatives = (tmp_path / name for name in ("mias", "out", "negatives"))
    source.mkdir()
    (source / "Info.txt").write_text(
        "mdb001 G CIRC B 200 824 40\nmdb001 G CALC M 420 400 160\nmdb003 D ARCH B 300 600 200\n"
    )
    for number in (1, 3):
        Image.fromarray(breast(number)).save(source / f"mdb00{number}.pgm")
    assert main(["data", "import", "mini-mias", str(source), str(out), "--workers", "1"]) == 0
    command = ["data", "negatives", str(out / "films.csv"), str(negatives), "--count", "16"]
    command += ["--lesions", str(out / "manifest.csv"), "--workers", "1", "--gap", "0"]
    assert main(command) == 0
    circles = {"mdb001": [(200, 200, 40), (420, 624, 160)], "mdb003": [(300, 424, 200)]}
    with (negatives / "manifest.csv").open(newline="") as file:
        squares = list(csv.DictReader(file))
    assert {Path(row["film"]).stem for row in squares} == set(circles)
    for row in squares:
        x0, y0, x1, y1 = (int(row[f"film_{edge}"]) for edge in ("x0", "y0", "x1", "y1"))
        for x, y, radius in circles[Path(row["film"]).stem]:
            nearest = min(max(x, x0), x1), min(max(y, y0), y1)
            assert np.hypot(nearest[0] - x, nearest[1] - y) >= radius


def test_splits_keep_a_woman_together_and_do_not_change_with_the_download(
    source: Path, tmp_path: Path
) -> None:
    options = Options(test_fraction=0.4, seed=3)
    whole = {crop.name: (crop.split, crop.patient_id) for crop in find(source, options).crops}
    assert {split for split, _ in whole.values()} == {"train", "test"}
    assert len(set(whole.values())) == len({patient for _, patient in whole.values()})
    (tmp_path / "Info.txt").write_text(INFO)
    for number in (2, 5):
        (tmp_path / f"mdb{number:03d}.pgm").symlink_to(source / f"mdb{number:03d}.pgm")
    part = {crop.name: (crop.split, crop.patient_id) for crop in find(tmp_path, options).crops}
    assert set(part) == {"mdb002", "mdb005_1", "mdb005_2"}
    assert all(whole[name] == found for name, found in part.items())


def test_tissue_squares_follow_the_seed(source: Path) -> None:
    def squares(seed: int) -> list[object]:
        return [crop.tissue for crop in find(source, Options(seed=seed)).crops if crop.tissue]

    assert squares(0) == squares(0) != squares(1)


def test_films_that_no_line_names_and_films_of_another_size_are_listed(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("Lines look like this:\n\n" + INFO)
    for name, side in (("MDB001", 1024), ("mdb002", 512), ("mdb322", 1024)):
        Image.new("L", (side, side), 9).save(tmp_path / f"{name}.PGM", "PPM")
    found = find(tmp_path, Options())
    assert [crop.name for crop in found.crops] == ["mdb001"]
    reasons = {each.item: each.reason for each in found.skipped}
    assert "not 1024 x 1024" in reasons["README: mdb002"]
    assert reasons["mdb322.PGM"] == "the table does not name this film"


def test_lines_that_are_not_understood_are_listed_and_their_films_are_not_called_unnamed(
    tmp_path: Path,
) -> None:
    odd = "mdb003 G MASS B 300 300 20\nmdb001 X SPIC M 300 300 20\n"
    (tmp_path / "Info.txt").write_text(f"mdb001 G CIRC B 535 425 197\nmdb002 G NORM\n{odd}")
    for number in (1, 2, 3):
        Image.new("L", (1024, 1024), 9).save(tmp_path / f"mdb{number:03d}.pgm")
    found = find(tmp_path, Options())
    assert [(each.item, each.reason) for each in found.skipped] == [
        ("Info.txt: mdb003", "line not understood: mdb003 G MASS B 300 300 20"),
        ("Info.txt: mdb001", "line not understood: mdb001 X SPIC M 300 300 20"),
    ]
    assert [crop.name for crop in found.crops] == ["mdb001", "mdb002"]
    # A lesion whose place is not known may be anywhere on these films.
    assert [row.image.name for row in found.films] == ["mdb002.pgm"]
    assert [each.item for each in found.films_left_out] == ["mdb003.pgm", "mdb001.pgm"]


def test_images_that_are_no_film_or_a_copy_of_one_are_listed(tmp_path: Path) -> None:
    (tmp_path / "Info.txt").write_text("mdb001 G CIRC B 535 425 197\n")
    for name in ("mdb001.pgm", "mdb001.png", "breast.pgm"):
        Image.new("L", (1024, 1024), 9).save(tmp_path / name)
    found = find(tmp_path, Options())
    assert [crop.image.name for crop in found.crops] == ["mdb001.pgm"]
    assert {each.item: each.reason for each in found.skipped} == {
        "breast.pgm": "image not named like a film: mdb001.pgm is expected",
        "mdb001.png": "copy of a film: mdb001.pgm is used",
    }


def test_without_a_table_the_user_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mdb001 is a film\n")
    with pytest.raises(UserError, match=r"Info\.txt"):
        find(tmp_path, Options())
