"""`protopyramid data` writes phantoms and checks manifests."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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
    assert main(["data", "check", str(manifest)]) == 0
    assert "spiculated" in capsys.readouterr().out


def test_a_sheet_of_examples_is_written(manifest: Path, tmp_path: Path) -> None:
    assert main(["data", "check", str(manifest), "--out", str(tmp_path / "sheet.png")]) == 0
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_image_is_an_error_of_the_user(manifest: Path, capsys) -> None:
    next((manifest.parent / "images").iterdir()).unlink()
    assert main(["data", "check", str(manifest)]) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if "error" in x]
    assert str(manifest) in line


@pytest.fixture
def mias(tmp_path: Path) -> Path:
    """A download in part: two films of 1024 x 1024 pixels and a table of four."""
    import numpy as np
    from PIL import Image

    source = tmp_path / "mias"
    source.mkdir()
    for number in (1, 3):
        values = np.random.default_rng(number).integers(0, 256, (1024, 1024)).astype(np.uint8)
        Image.fromarray(values).save(source / f"mdb00{number}.pgm")
    (source / "Info.txt").write_text(
        "mdb001 G CIRC B 535 425 97\nmdb002 G SPIC M 522 280 69\n"
        "mdb003 D MISC B 400 400 40\nmdb004 D CALC M *NOTE 3*\n"
    )
    return source


def test_an_import_says_what_it_made_and_left_out(mias: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "new" / "crops"
    command = ["data", "import", "mini-mias", str(mias), str(out), "--margin", "0.25"]
    assert main([*command, "--workers", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 crops from 2 images"
    assert any(line.split()[0] == "circumscribed" for line in lines)
    assert "2 items skipped, listed in skipped.csv" in lines
    assert "     1  its film is missing" in lines
    assert lines[-1] == str(out / "manifest.csv")
    rows = (out / "manifest.csv").read_text().splitlines()
    assert rows[1].startswith("images/mdb001.png,circumscribed,")
    # A side of 1.5 * 194 = 291 pixels: 48.5 on each side, and no half pixels.
    assert ",49,49,243,243," in rows[1]
    assert main(["data", "check", str(out / "manifest.csv")]) == 0
    capsys.readouterr()
    assert main([*command, "--workers", "1"]) == 0  # nothing is left to do
    assert capsys.readouterr().out.splitlines() == lines


def test_an_import_with_other_options_is_refused(mias: Path, tmp_path: Path, capsys) -> None:
    command = ["data", "import", "mini-mias", str(mias), str(tmp_path / "out"), "--workers", "1"]
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, "--seed", "5"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "was imported with seed 0, not 5" in line


def test_nothing_imported_is_one_line_and_exit_2(mias: Path, tmp_path: Path, capsys) -> None:
    for film in mias.glob("*.pgm"):
        film.unlink()
    assert main(["data", "import", "mini-mias", str(mias), str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "nothing could be imported" in line and "its film is missing" in line
    assert len((tmp_path / "out" / "skipped.csv").read_text().splitlines()) == 1 + 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mini-mia", "{source}", "{out}"], "the formats are cbis-ddsm, mini-mias"),
        (["mini-mias", "{source}/none", "{out}"], "no such folder"),
        (["mini-mias", "{source}", "{source}/out"], "inside the download"),
        (["mini-mias", "{out}", "{source}"], "no such folder"),
        (["cbis-ddsm", "{source}", "{out}"], "no mass table"),
        (["mini-mias", "{source}", "{out}", "--mixed", "last"], "'drop'"),
        (["mini-mias", "{source}", "{out}", "--margin", "-1"], "--margin"),
    ],
)
def test_mistakes_in_an_import_are_one_line(
    mias: Path, tmp_path: Path, capsys, arguments: list[str], words: str
) -> None:
    places = {"source": str(mias), "out": str(tmp_path / "out")}
    assert main(["data", "import", *(each.format(**places) for each in arguments)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert words in errors[0]
    assert not (tmp_path / "out").exists()


def test_every_format_has_its_finder_and_is_in_the_help(capsys) -> None:
    from protopyramid.data.importers import FORMATS, finder

    assert all(callable(finder(name)) for name in FORMATS)
    assert main(["data", "import", "--help"]) == 0
    words = capsys.readouterr().out.replace(",", " ").replace(".", " ").split()
    assert set(FORMATS) <= set(words)


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Two films, each with one lesion, and their table."""
    folder = tmp_path / "films"
    folder.mkdir()
    y, x = np.mgrid[:300, :200]
    breast = ((y - 150) / 120) ** 2 + (x / 140) ** 2 < 1
    rows = ["image,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1"]
    for number in range(2):
        noise = np.random.default_rng(number).integers(20000, 30000, breast.shape)
        Image.fromarray(np.where(breast, noise, 0).astype(np.uint16)).save(folder / f"{number}.png")
        rows.append(f"{number}.png,patient{number},30,120,50,150")
    (folder / "films.csv").write_text("\n".join(rows) + "\n")
    return folder / "films.csv"


def test_negatives_are_cut_and_joined_with_the_lesions(
    films: Path, manifest: Path, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "negatives"
    few = ["--count", "6", "--workers", "1"]
    assert main(["data", "negatives", str(films), str(out), *few]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("6 negatives (")
    assert said[-1] == str(out / "manifest.csv")
    assert len((out / "manifest.csv").read_text().splitlines()) == 7

    joined = tmp_path / "joined"
    command = ["data", "negatives", str(films), str(joined), "--lesions", str(manifest), *few]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(joined / "combined.csv")
    assert main(["data", "check", str(joined / "combined.csv")]) == 0
    assert main(command) == 0  # again: nothing is left to do


def test_films_of_a_folder_must_be_said_to_show_no_lesion(
    films: Path, manifest: Path, tmp_path: Path, capsys
) -> None:
    command = ["data", "negatives", str(films.parent), str(tmp_path / "out"), "--count", "4"]
    command += ["--lesions", str(manifest), "--workers", "1"]
    assert main(command) == 2
    assert "--lesion-free" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert main([*command, "--lesion-free"]) == 0
    assert "2 of 2 films are listed without a lesion" in capsys.readouterr().out


def test_wrong_input_of_negatives_is_one_line(films: Path, tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "out")
    for command in (
        ["data", "negatives", str(tmp_path / "none.csv"), out],
        ["data", "negatives", str(films), str(films.parent)],
        ["data", "negatives", str(films), out, "--lesions", str(tmp_path / "none.csv")],
        ["data", "negatives", str(films.parent), out, "--lesion-free", "--patient", "("],
    ):
        assert main(command) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_check_draws_bands_and_refuses_widths_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "phantom", str(tmp_path / "p"), "--patients", "2", "--size", "32"]) == 0
    manifest = str(tmp_path / "p/manifest.csv")
    plain, banded = tmp_path / "plain.png", tmp_path / "banded.png"
    assert main(["data", "check", manifest, "--out", str(plain)]) == 0
    assert main(["data", "check", manifest, "--out", str(banded), "--band", "0.05,0.1"]) == 0
    assert plain.read_bytes() != banded.read_bytes()
    for text in ("0.1", "a,b", "0,0", "0.1,2", "nan,1", "-1,1"):
        capsys.readouterr()
        assert main(["data", "check", manifest, "--out", str(banded), f"--band={text}"]) != 0
        assert f"--band {text}: give two fractions" in capsys.readouterr().err
