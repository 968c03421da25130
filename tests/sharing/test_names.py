"""A model's name stands for its run folder, in every command and in Python."""

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

import protopyramid as pp
from protopyramid.cli.main import main
from protopyramid.errors import UserError
from protopyramid.reports.model_card import differences_section
from protopyramid.runs import shelf
from protopyramid.runs.archive import write_archive
from protopyramid.runs.shelf import find_run, model_names, shipped_names

from ..runs.archives import honest

EXAMPLE = "cases/spiculated-1.png"


def test_phantoms_is_shipped_with_pictures_and_cases_to_open(capsys) -> None:
    assert "phantoms" in shipped_names()
    run = pp.load_run("phantoms")
    assert run.name == "phantoms"
    assert all(run.cases.has_picture(record.index) for record in run.prototypes)
    found = pp.load_run("phantoms").predict([run.folder / EXAMPLE])
    assert found[0]["predicted"] == "spiculated"
    assert main(["models"]) == 0
    assert "phantoms" in capsys.readouterr().out


def test_every_figure_of_the_shipped_card_is_in_its_results() -> None:
    run = pp.load_run("phantoms")
    mean = run.folder.read_json("evaluation/test.json")["auroc"]["mean"]
    card = (run.folder / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert f"{mean:.2f}" in card
    assert card.startswith("# phantoms\n")


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_card_lists_what_differs_from_the_paper(name: str) -> None:
    run = pp.load_run(name)
    card = (run.folder / "MODEL_CARD.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in differences_section(run).splitlines() if line.startswith("| `")]
    assert rows and [line for line in rows if line not in card] == []


def test_the_card_of_margins_has_every_lesion_of_the_three_folds() -> None:
    card = (find_run("margins") / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "| all sources | 1240 |" in card and "so far" not in card


def test_a_shipped_model_is_unpacked_once(cache: Path) -> None:
    first = find_run("phantoms")
    stamp = (first / "model.json").stat().st_mtime_ns
    assert find_run("phantoms") == first
    assert first.is_relative_to(cache)
    assert (first / "model.json").stat().st_mtime_ns == stamp


def test_explain_takes_a_name(tmp_path: Path, capsys) -> None:
    image = find_run("phantoms") / EXAMPLE
    assert main(["explain", "phantoms", str(image), "--out", str(tmp_path / "why")]) == 0
    assert (tmp_path / "why" / "spiculated-1.png").is_file()


def test_an_unknown_name_is_one_line_with_near_names(capsys) -> None:
    assert main(["explain", "phantom", "x.png", "--out", "nowhere"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert said == [
        "protopyramid: error: phantom: no such run folder, and no model of that name; did you mean "
        "phantoms?"
    ]


def test_a_run_folder_of_that_name_wins_and_that_is_said(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("phantoms").mkdir()
    with pytest.warns(UserWarning, match="the model is used"):  # a folder of data, say
        assert find_run("phantoms") != Path("phantoms")
    Path("phantoms/format").write_text("1\n")
    with pytest.warns(UserWarning, match="run folder of this name is used"):
        assert find_run("phantoms") == Path("phantoms")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_run("./phantoms/.") == Path("phantoms")  # a path, not a name


@pytest.mark.parametrize("name", ["../models/tiny", "models/tiny", "", ".", "tiny\0"])
def test_a_path_is_not_a_name(name: str) -> None:
    with pytest.raises(UserError):
        pp.load_run(name)


def test_a_packed_file_given_as_a_run_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "tiny.zip"
    write_archive(path, {"package": 1, "name": "tiny"}, honest())
    with pytest.raises(UserError, match="models pull"):
        pp.load_run(path)


def test_models_are_listed_by_name_and_removed(tmp_path: Path, capsys) -> None:
    path = tmp_path / "tiny.zip"
    write_archive(path, {"package": 1, "name": "tiny", "summary": "small"}, honest())
    assert main(["models", "pull", str(path)]) == 0
    assert model_names()[-1] == "tiny"
    assert main(["models", "remove", "tiny"]) == 0
    assert "tiny" not in model_names()
    assert [path.name for path in shelf.pulled_folder().glob("*")] == [".lock"]
    assert main(["models", "remove", "phantoms"]) == 2


def test_a_killed_unpacking_leaves_nothing_that_is_taken_for_a_model(
    tmp_path: Path, cache: Path
) -> None:
    """Killed at any moment: either the model is whole, or it is not there and can be pulled again."""
    archive = tmp_path / "tiny.zip"
    files = honest() | {
        f"prototypes/{n:03d}.png": honest()["prototypes/000.png"] for n in range(200)
    }
    write_archive(archive, {"package": 1, "name": "tiny"}, files)
    script = (
        "import sys; from protopyramid.sharing.pull import pull; print('go', flush=True); "
        "pull(sys.argv[1])"
    )
    for pause in (0.0, 0.02, 0.08):
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(archive)], stdout=subprocess.PIPE, env=os.environ
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(pause)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        if "tiny" in model_names():
            assert len(list((cache / "models/tiny/prototypes").iterdir())) == 200
            main(["models", "remove", "tiny"])
    assert main(["models", "pull", str(archive)]) == 0
    assert sorted(path.name for path in (cache / "models").iterdir() if path.name != ".lock") == [
        "tiny"
    ]
