"""`protopyramid compare`: tables of several runs, and what it refuses."""

from __future__ import annotations

from protopyramid.cli.main import main

FEW = ["--bootstrap", "20"]


def test_tables_are_shown_and_written(new_run, tmp_path, capsys) -> None:
    runs = [str(new_run(name, name).folder.path) for name in ("fpn-iaia-bl", "vgg16")]
    out = tmp_path / "comparison"
    assert main(["compare", *runs, "--out", str(out), *FEW]) == 0
    shown = capsys.readouterr().out
    assert "FPN-IAIA-BL" in shown and "Grad-CAM++" in shown
    text = (out / "comparison.md").read_text()
    assert "| VGG-16, Grad-CAM |" in text and "| VGG-16 |" in text
    assert {path.name for path in out.iterdir()} == {
        "comparison.md",
        "comparison.csv",
        "comparison.json",
        "comparison.png",
        "teaser.png",
    }


def test_wrong_input_is_exit_2(new_run, tmp_path, capsys) -> None:
    run = str(new_run().folder.path)
    out = ["--out", str(tmp_path / "out")]
    assert main(["compare", *out]) == 2
    assert main(["compare", run, run, *out]) == 2
    assert main(["compare", str(tmp_path / "nothing"), *out]) == 2
    (tmp_path / "file").write_text("")
    assert main(["compare", run, "--out", str(tmp_path / "file")]) == 2
    assert main(["evaluate", run, "--split", "train", "--force", *FEW]) == 0
    capsys.readouterr()
    assert main(["compare", run, "--split", "train", *out]) == 2
    assert "leaked" in capsys.readouterr().err
