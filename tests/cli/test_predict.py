"""`protopyramid predict`: a table of predictions from images, folders or a manifest."""

from __future__ import annotations

from pathlib import Path

from protopyramid.cli.main import main

from .conftest import rows_of


def test_images_a_folder_and_a_manifest_agree(new_run, phantom_manifest, tmp_path, capsys) -> None:
    run = str(new_run().folder.path)
    images = sorted((phantom_manifest.parent / "images").iterdir())
    few, all_, named = tmp_path / "new" / "few.csv", tmp_path / "all.csv", tmp_path / "named.csv"
    assert main(["predict", run, *map(str, images[:3]), "--out", str(few)]) == 0
    assert capsys.readouterr().out == f"{few}\n"
    assert main(["predict", run, str(images[0].parent), "--out", str(all_)]) == 0
    assert (
        main(["predict", run, str(phantom_manifest), "--split", "test", "--out", str(named)]) == 0
    )
    by_file = {Path(row["image"]).name: row for row in rows_of(all_)}
    assert len(by_file) == len(images)
    for row in rows_of(few) + rows_of(named):
        twin = by_file[Path(row["image"]).name]
        assert abs(float(row["probability_negative"]) - float(twin["probability_negative"])) < 1e-4
    assert {row["split"] for row in rows_of(named)} == {"test"}


def test_wrong_input_is_exit_2(new_run, phantom_manifest, tmp_path, capsys) -> None:
    run = str(new_run().folder.path)
    image = str(next((phantom_manifest.parent / "images").iterdir()))
    out = ["--out", str(tmp_path / "out.csv")]
    manifest = str(phantom_manifest)
    assert main(["predict", run, "nothing.png", *out]) == 2
    assert main(["predict", run, manifest, image, *out]) == 2
    assert main(["predict", run, image, "--split", "test", *out]) == 2
    assert main(["predict", run, manifest, "--split", "tset", *out]) == 2
    assert main(["predict", run, image, "--out", str(tmp_path)]) == 2
    assert main(["predict", run, str(phantom_manifest.parent / "no.csv"), *out]) == 2
    assert main(["predict", run, image]) == 2
    assert not (tmp_path / "out.csv").exists()
    assert "Traceback" not in capsys.readouterr().err


def test_a_run_without_thresholds_says_how_to_get_them(
    new_run, phantom_manifest, tmp_path, capsys
) -> None:
    run = str(new_run().folder.path)
    out = tmp_path / "out.csv"
    command = ["predict", run, str(phantom_manifest), "--out", str(out)]
    assert main(command) == 0
    assert "create it with: protopyramid evaluate" in capsys.readouterr().err
    assert main(["evaluate", run, "--split", "validation", "--bootstrap", "5"]) == 0
    capsys.readouterr()
    assert main(command) == 0
    assert "create it with" not in capsys.readouterr().err
    rows = rows_of(out)
    assert {row["unlike_training"] for row in rows} <= {"yes", "no"}
    assert all((float(row["unlikeness"]) > 1) == (row["unlike_training"] == "yes") for row in rows)


def test_a_list_of_images_alone_is_predicted(new_run, phantom_manifest, tmp_path, capsys) -> None:
    run = str(new_run().folder.path)
    images = sorted((phantom_manifest.parent / "images").iterdir())[:3]
    table, out = tmp_path / "list.csv", tmp_path / "out.csv"
    table.write_text("image\n" + "".join(f"{image}\n" for image in images))
    assert main(["predict", run, str(table), "--out", str(out)]) == 0
    assert [row["image"] for row in rows_of(out)] == [str(image) for image in images]
    assert main(["predict", run, str(table), "--split", "test", "--out", str(out)]) == 2
    assert "no row has a split" in capsys.readouterr().err
