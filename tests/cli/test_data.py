"""`protopyramid data` writes phantoms and checks manifests."""

from pathlib import Path

import pytest

from protopyramid.cli.main import main


def test_phantoms_are_written_and_their_manifest_named(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "new" / "phantoms"
    assert (
        main(["data", "phantom", str(folder), "--patients", "3", "--size", "64", "--workers", "1"])
        == 0
    )
    assert capsys.readouterr().out == f"{folder / 'manifest.csv'}\n"
    rows = (folder / "manifest.csv").read_text().splitlines()
    assert rows[0].startswith("image,label,split")
    assert len(rows) == 1 + 3 * 4


def test_a_folder_in_use_is_refused_unless_forced(tmp_path: Path, capsys) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    few = ["--patients", "1", "--patches", "1", "--size", "64", "--workers", "1"]
    assert main(["data", "phantom", str(tmp_path), *few]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / "notes.txt"]
    assert main(["data", "phantom", str(tmp_path), "--force", *few]) == 0
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path, capsys) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    assert main(["data", "phantom", str(path)]) == 2
    assert main(["data", "phantom", str(path / "below")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.fixture
def manifest(tmp_path: Path, capsys) -> Path:
    folder = tmp_path / "phantoms"
    main(["data", "phantom", str(folder), "--patients", "3", "--size", "64", "--workers", "1"])
    capsys.readouterr()
    return folder / "manifest.csv"


def test_a_good_manifest_passes_and_is_described(manifest: Path, capsys) -> None:
    pytest.importorskip("protopyramid.data.check")
    assert main(["data", "check", str(manifest)]) == 0
    assert "spiculated" in capsys.readouterr().out


def test_a_sheet_of_examples_is_written(manifest: Path, tmp_path: Path) -> None:
    pytest.importorskip("protopyramid.data.check")
    assert main(["data", "check", str(manifest), "--out", str(tmp_path / "sheet.png")]) == 0
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_image_is_an_error_of_the_user(manifest: Path, capsys) -> None:
    pytest.importorskip("protopyramid.data.check")
    next((manifest.parent / "images").iterdir()).unlink()
    assert main(["data", "check", str(manifest)]) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "error" in x]
    assert str(manifest) in line
