"""Regions on the command line: explain and predict a part of a film."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protopyramid.cli.main import main
from protopyramid.runs.run import Run

from ..pictures import save_noise
from .conftest import Refused, rows_of


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("films") / "film.png"
    save_noise(path, (400, 200))
    return path


def test_each_region_is_explained(run: Run, film: Path, tmp_path: Path) -> None:
    folder = str(run.folder.path)
    regions = ["--region", "10,20,74,84", "--region", "100,100,140,180", "--lesion", "50,50,90,90"]
    command = ["explain", folder, str(film), *regions, "--top", "1", "--out", str(tmp_path)]
    assert main(command) == 0
    assert sorted(path.name for path in tmp_path.glob("*.json")) == [
        "film-2.json",
        "film-3.json",
        "film.json",
    ]
    found = [
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("film", "film-2", "film-3")
    ]
    assert [list(each["region"].values()) for each in found] == [
        [10, 20, 74, 84],
        [80, 100, 160, 180],
        [30, 30, 110, 110],
    ]
    assert [each["image"] for each in found] == ["film.png", "film.png#2", "film.png#3"]


def test_a_table_of_films_is_explained_and_predicted(
    run: Run, film: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, table = str(run.folder.path), tmp_path / "films.csv"
    header = "image,lesion_x0,lesion_y0,lesion_x1,lesion_y1\n"
    table.write_text(f"{header}{film},50,50,90,90\n{film},100,300,140,340\n")
    out = ["--top", "1", "--out", str(tmp_path / "why")]
    assert main(["explain", folder, str(table), "--crop", "lesion", *out]) == 0
    found = [json.loads((tmp_path / f"why/{name}.json").read_text()) for name in ("film", "film-2")]
    assert [each["region"]["y0"] for each in found] == [30, 280]
    predictions = tmp_path / "out.csv"
    assert main(["predict", folder, str(table), "--crop", "lesion", "--out", str(predictions)]) == 0
    rows = rows_of(predictions)
    assert [(row["region_x0"], row["region_y1"]) for row in rows] == [("30", "110"), ("80", "360")]
    assert [row["predicted"] for row in rows] == [each["predicted"] for each in found]
    capsys.readouterr()
    assert main(["predict", folder, str(table), "--out", str(predictions)]) == 0
    assert "2 of 2 images are whole films" in capsys.readouterr().err
    assert rows_of(predictions) == rows
    assert main(["predict", folder, str(table), "--crop", "none", "--out", str(predictions)]) == 0
    told = capsys.readouterr().err
    assert "lesion boxes are not used" in told and "--crop lesion" in told


def test_a_whole_film_is_answered_with_how_to_mark_the_lesion(
    run: Run, film: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(run.folder.path)
    for command in (["explain", "--top", "1"], ["predict"]):
        out = tmp_path / command[0] / "out.csv" if command == ["predict"] else tmp_path / "why"
        arguments = [command[0], folder, str(film), *command[1:], "--out", str(out)]
        assert main(arguments) == 0
        lines = [line for line in capsys.readouterr().err.splitlines() if "whole film" in line]
        assert len(lines) == 1
        assert "200 x 400 pixels" in lines[0] and "--region x0,y0,x1,y1" in lines[0]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--region", "1,2,3"], "--region: '1,2,3' is not a box; give four numbers"),
        (["--region", "1,2,x,4"], "'1,2,x,4' is not a box"),
        (["--region", "9,2,3,4"], "--region: 9,2,3,4 is empty"),
        (["--region-mm", "1,2,3,4"], "film.png: has no pixel spacing"),
        (["--lesion", "900,900,950,950"], "outside its image"),
    ],
)
def test_wrong_regions_are_one_line(
    run: Run, film: Path, tmp_path: Path, refused: Refused, option, message
) -> None:
    for command, out in (("explain", tmp_path), ("predict", tmp_path / "out.csv")):
        told = refused(command, run.folder.path, film, *option, "--out", out)
        errors = [line for line in told if "error" in line]
        assert len(errors) == 1 and message in errors[0]


def test_an_unreadable_file_in_a_folder_is_reported_and_the_others_are_predicted(
    run: Run, manifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for number, sample in enumerate(manifest.samples[:3]):
        (folder / f"{number}.png").write_bytes(sample.image.read_bytes())
    (folder / "1-broken.png").write_bytes(b"\x89PNG and no more")
    out = tmp_path / "out.csv"
    assert main(["predict", str(run.folder.path), str(folder), "--out", str(out)]) == 2
    told = capsys.readouterr()
    assert "1 of 4 images are left out of" in told.err and "1-broken.png" in told.err
    assert "Traceback" not in told.err
    assert [Path(row["image"]).name for row in rows_of(out)] == ["0.png", "1.png", "2.png"]
