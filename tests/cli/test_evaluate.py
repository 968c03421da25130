"""`protopyramid evaluate`: figures on the terminal and in the run, and its exit codes."""

from __future__ import annotations

import json

import pytest

from protopyramid.cli.main import main


def test_figures_are_shown_and_written(new_run, capsys) -> None:
    run = new_run()
    assert main(["evaluate", str(run.folder.path), "--bootstrap", "50"]) == 0
    shown = capsys.readouterr().out
    path = run.folder / "evaluation/test.json"
    assert shown.splitlines()[-2:] == [str(path), str(run.folder / "report.html")]
    assert (run.folder / "report.html").is_file() and (run.folder / "MODEL_CARD.md").is_file()
    assert "circumscribed" in shown and "chance" in shown and "accuracy" in shown
    result = json.loads(path.read_text())
    assert f"{result['auroc']['mean']:.3f}".removeprefix("0") in shown
    assert result["bootstrap"]["resamples"] == 50


def test_training_images_are_refused_unless_forced(new_run, refused, capsys) -> None:
    run = new_run()
    folder = str(run.folder.path)
    (line,) = [text for text in refused("evaluate", folder, "--split", "train") if "error" in text]
    assert "were used in training" in line and "--force" in line
    assert not (run.folder / "evaluation").exists()
    assert main(["evaluate", folder, "--split", "train", "--force", "--bootstrap", "9"]) == 0
    assert "LEAKED" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--split", "tset"], ["--data", "nowhere.csv"], ["--bootstrap", "0"], ["--seed", "-1"]],
)
def test_wrong_input_is_one_line_and_exit_2(arguments: list[str], new_run, refused) -> None:
    first, *others = refused("evaluate", new_run().folder.path, *arguments)
    assert first.startswith("protopyramid: error:")
    assert all(line.startswith("try '") for line in others)


def test_a_folder_that_is_not_a_run_is_refused(tmp_path, refused) -> None:
    (line,) = refused("evaluate", tmp_path)
    assert "not a run folder" in line


def test_a_model_without_prototypes_is_shown(new_run, capsys) -> None:
    run = new_run(preset="vgg16")
    assert main(["evaluate", str(run.folder.path), "--bootstrap", "9"]) == 0
    assert "–" in capsys.readouterr().out


def test_flags_are_counted_once_there_are_limits(new_run, capsys) -> None:
    run = new_run()
    folder = str(run.folder.path)
    assert main(["evaluate", folder, "--bootstrap", "5", "--flags"]) == 2
    assert "--split validation" in capsys.readouterr().err
    command = ["evaluate", folder, "--split", "validation", "--bootstrap", "5", "--flags"]
    assert main(command) == 0
    assert "checkerboard" in capsys.readouterr().out
    found = json.loads((run.folder / "evaluation/validation-flags.json").read_text())
    assert found["nominal"] == 0.05 and found["strange"]["noise"] == 1
