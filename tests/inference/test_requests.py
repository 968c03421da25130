"""What a user asks about becomes samples: files, folders, tables, and lesions marked on an image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid import api
from protopyramid.data.geometry import Region
from protopyramid.data.images import prepare
from protopyramid.errors import UserError
from protopyramid.inference.requests import Marks, framing_problem, requested
from protopyramid.runs.run import Run

from ..pictures import save_dicom_noise, save_noise


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("films") / "film.png"
    save_noise(path, (300, 200), bits=16)
    return path


def crop_of(film: Path, region: Region, folder: Path) -> Path:
    values = np.pad(np.asarray(Image.open(film)), 400)
    path = folder / "crop.png"
    rows = slice(region.y0 + 400, region.y1 + 400)
    Image.fromarray(values[rows, region.x0 + 400 : region.x1 + 400]).save(path)
    return path


def test_a_region_is_predicted_as_its_crop_would_be(run: Run, film: Path, tmp_path: Path) -> None:
    """Not square, and partly outside the film: made square around its centre, black beyond."""
    region = Region(-20, 60, 80, 160)
    (found,) = api.predict(run, film, regions=[(-20, 80, 80, 140)])
    (expected,) = api.predict(run, crop_of(film, region, tmp_path))
    assert found["logits"] == expected["logits"]
    assert found["region"] == {"x0": -20, "y0": 60, "x1": 80, "y1": 160}
    assert run.predict([film], [(-20, 80, 80, 140)])[0]["logits"] == expected["logits"]


def test_a_lesion_gets_the_margin_of_the_run(run: Run, film: Path) -> None:
    (found,) = api.predict(run, film, lesions=[(80, 100, 120, 130)])
    assert found["region"] == {"x0": 60, "y0": 75, "x1": 140, "y1": 155}


def test_several_regions_are_several_records(run: Run, film: Path) -> None:
    boxes = [(0, 0, 50, 50), (50, 50, 120, 120)]
    records = api.predict(run, film, regions=boxes, lesions=[(80, 100, 120, 130)])
    assert [Path(each["image"]).name for each in records] == [
        "film.png",
        "film.png#2",
        "film.png#3",
    ]
    assert [each["region"]["x0"] for each in records] == [0, 50, 60]
    again = run.predict([film, film, film], [*boxes, None])
    for one, other in zip(again[:2], records[:2], strict=True):
        assert one["logits"] == pytest.approx(other["logits"], abs=1e-5)
    assert again[2]["region"] == {"x0": 0, "y0": 0, "x1": 200, "y1": 300}


def test_a_table_of_films_is_cut_where_its_boxes_are(run: Run, film: Path, tmp_path: Path) -> None:
    table = tmp_path / "films.csv"
    header = "image,label,lesion_x0,lesion_y0,lesion_x1,lesion_y1\n"
    table.write_text(f"{header}{film},a,80,100,120,130\n{film},b,10,10,50,50\n")
    records = api.predict(run, table, crop="lesion")
    assert [each["region"]["x0"] for each in records] == [60, 0]
    assert [each["label"] for each in records] == ["a", "b"]
    (lesion,) = api.predict(run, film, lesions=[(80, 100, 120, 130)])
    assert records[0]["logits"] == pytest.approx(lesion["logits"], abs=1e-5)
    with pytest.warns(UserWarning, match="2 of 2 images are whole films.*--crop none"):
        films = api.predict(run, table)
    assert [each["region"] for each in films] == [each["region"] for each in records]
    assert films[0]["logits"] == pytest.approx(records[0]["logits"], abs=1e-5)
    with pytest.warns(UserWarning, match="lesion boxes are not used.*--crop lesion"):
        whole = api.predict(run, table, crop="none")
    assert whole[0]["logits"] == pytest.approx(whole[1]["logits"], abs=1e-5)
    table.write_text(f"{header}{film},a,80,100,120,130\n{film},b,,,,\n")
    with pytest.warns(UserWarning, match=r"1 of 2 rows have no lesion box \(first row 3\)"):
        api.predict(run, table, crop="lesion")
    table.write_text(f"{header}{film},a,80,100,12,130\n")
    with pytest.raises(
        UserError, match="row 2, lesion_x0 to lesion_y1: the box is empty or inverted"
    ):
        api.predict(run, table, crop="lesion")


def test_the_boxes_of_a_table_of_crops_are_not_used_but_told(run: Run, manifest) -> None:
    with pytest.warns(UserWarning, match="lesion boxes are not used.*--crop lesion"):
        records = api.predict(run, manifest.path, split="test")
    assert all(each["region"] == {"x0": 0, "y0": 0, "x1": 64, "y1": 64} for each in records)


def test_a_run_of_lesion_crops_uses_the_boxes_of_a_table(
    make_run, film: Path, tmp_path: Path
) -> None:
    lesions = make_run("vgg16", data__crop="lesion", data__region={"margin": 0.25})
    table = tmp_path / "films.csv"
    table.write_text(f"image,lesion_x0,lesion_y0,lesion_x1,lesion_y1\n{film},80,100,120,130\n")
    (found,) = api.predict(lesions, table)
    assert found["region"] == {"x0": 70, "y0": 85, "x1": 130, "y1": 145}


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (Marks(regions=[(5, 5, 5, 9)]), "--region: 5,5,5,9 is empty"),
        (Marks(lesions=[(5, 5, float("nan"), 9)]), "--lesion: needs four numbers"),
        (Marks(regions_mm=[(0, 0, 10, 10)]), "has no pixel spacing"),
    ],
)
def test_wrong_marks_are_refused_in_words(run: Run, film: Path, marks: Marks, message: str) -> None:
    with pytest.raises(UserError, match=message):
        requested(run, [film], marks=marks)


def test_marks_are_for_one_image(run: Run, film: Path, tmp_path: Path) -> None:
    marks = Marks(regions=[(0, 0, 9, 9)])
    table = tmp_path / "a.csv"
    table.write_text(f"image\n{film}\n")
    for paths in ([film, film], [film.parent]):
        with pytest.raises(UserError, match="marks lesions on one image"):
            requested(run, paths, marks=marks)
    with pytest.raises(UserError, match=r"a\.csv: regions can be marked on one image"):
        requested(run, [table], marks=marks)
    with pytest.raises(UserError, match="2 regions for 1 images"):
        run.predict([film], [None, None])
    with pytest.raises(UserError, match="is outside the image of 200 x 300"):
        api.predict(run, film, regions=[(300, 300, 400, 400)])


def test_millimetres_are_those_of_the_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "film.dcm"
    values = save_dicom_noise(path, (300, 200), ImagerPixelSpacing=[0.2, 0.1])
    (found,) = api.predict(run, path, regions_mm=[(1, 4, 5, 12)])
    assert found["region"] == {"x0": 10, "y0": 20, "x1": 50, "y1": 60}
    assert run.explain(path, region=(10, 20, 50, 60)).logits == pytest.approx(
        found["logits"], abs=1e-5
    )
    # MONOCHROME1: what is stored high is dark, wherever it is.
    seen = run.explain(path, region=(10, 20, 74, 84)).picture
    expected = prepare(
        (1 - values[20:84, 10:74] / 4095).astype(np.float32), None, None, 64, "stretch"
    )
    torch.testing.assert_close(torch.from_numpy(seen), expected.image[0], atol=3e-5, rtol=0)


# --- whole films ----------------------------------------------------------------------------------


def test_a_whole_film_is_noticed_and_a_marked_one_is_not(
    run: Run, tmp_path: Path, lesion: Path
) -> None:
    path = tmp_path / "film.png"
    Image.fromarray(np.zeros((900, 500), np.uint8)).save(path)
    with pytest.warns(
        UserWarning, match=r"500 x 900 pixels.*64 pixels: a whole film\? Mark the lesion"
    ):
        api.predict(run, path)
    sample = requested(run, [path]).samples[0]
    marked = requested(run, [path], marks=Marks(regions=[(0, 0, 64, 64)])).samples[0]
    ordinary = requested(run, [lesion]).samples[0]
    assert framing_problem(run, sample, run.config.data)
    assert framing_problem(run, marked, run.config.data) is None
    assert framing_problem(run, ordinary, run.config.data) is None


# --- unreadable images ----------------------------------------------------------------------------


def test_an_unreadable_image_is_left_out_and_told(run: Run, manifest, tmp_path: Path) -> None:
    good = [sample.image for sample in manifest.samples[:5]]
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG and no more")
    failed: list[Path] = []
    records = api.predict(
        run, [*good[:2], broken, *good[2:]], unreadable=lambda path, error: failed.append(path)
    )
    assert failed == [broken]
    assert [each["image"] for each in records] == [path.as_posix() for path in good]
    expected = api.predict(run, good)
    for found, known in zip(records, expected, strict=True):
        assert found["logits"] == pytest.approx(known["logits"], abs=1e-5)
    with pytest.raises(UserError, match=r"broken\.png: cannot read the image"):
        api.predict(run, [*good, broken])
    with pytest.raises(UserError, match=r"broken\.png: cannot read the image"):
        api.predict(run, broken, unreadable=lambda path, error: None)


def test_labels_stay_with_their_rows_when_one_is_left_out(
    run: Run, manifest, tmp_path: Path
) -> None:
    good = [sample.image for sample in manifest.samples[:3]]
    (tmp_path / "broken.png").write_bytes(b"\x89PNG and no more")
    table = tmp_path / "table.csv"
    rows = [f"{good[0]},a", "broken.png,b", f"{good[1]},c", f"{good[2]},d"]
    table.write_text("image,label\n" + "\n".join(rows) + "\n")
    records = api.predict(run, table, unreadable=lambda path, error: None)
    assert [each["label"] for each in records] == ["a", "c", "d"]
    assert [each["image"] for each in records] == [str(path) for path in good]
