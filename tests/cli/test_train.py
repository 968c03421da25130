"""`train` and `crossval` on the command line: their options, their errors, their exit codes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from protopyramid.cli.main import main
from protopyramid.cli.train import resume_command
from protopyramid.config import load_config
from protopyramid.runs.run import load_run

from .conftest import Refused

TINY = {
    "data.image_size": "32",
    "model.backbone.width": "0.0625",
    "model.backbone.batch_norm": "true",
    "model.backbone.weights": "none",
    "model.neck.dim": "8",
    "train.batch_size": "16",
    "train.threads": "1",
    "train.schedule": "[{step='project'}, {step='fit-head'}]",
}
SETTINGS = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def run(phantoms: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    code = main(["train", "fpn-iaia-bl", "--data", str(phantoms), "--out", str(out), *SETTINGS])
    assert code == 0
    return out


def test_train_makes_a_run_with_the_settings_given(run: Path) -> None:
    found = load_run(run)
    assert len(found.prototypes) == 40
    plain = {key: value for key, value in TINY.items() if key != "train.schedule"}
    assert found.config.data.image_size == int(plain["data.image_size"])
    assert found.config.model.neck.dim == 8
    assert [step.step for step in found.config.train.schedule] == ["project", "fit-head"]
    assert found.config == load_config(run / "config.toml")


def test_results_go_to_stdout_and_progress_to_stderr(
    phantoms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    options = ["--data", str(phantoms), "--out", str(out), *SETTINGS]
    assert main(["train", "fpn-iaia-bl", *options]) == 0
    told = capsys.readouterr()
    assert told.out == f"{out}\n"
    assert "head fitted" in told.err
    assert "\x1b" not in told.err  # plain lines in a log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fpn-iaia", "--out", "OUT", "--data", "DATA"], "fpn-iaia"),
        (["fpn-iaia-bl", "--out", "OUT", "--data", "nowhere.csv"], "nowhere.csv"),
        (["fpn-iaia-bl", "--out", "OUT", "--data", "DATA", "--set", "train.sed=1"], "sed"),
        (["fpn-iaia-bl", "--out", "OUT", "--data", "DATA", "--accelerator", "x"], "accelerator x"),
        (["fpn-iaia-bl", "--out", "OUT", "--data", "DATA", "--devices", "0"], "devices"),
        (["fpn-iaia-bl", "--out", "OUT", "--data", "DATA", "--backbone-from", "no"], "no"),
        (["fpn-iaia-bl", "--out", "DATA", "--data", "DATA"], "manifest.csv"),
        (["fpn-iaia-bl", "--data", "DATA"], "--out"),
    ],
)
def test_mistakes_end_with_exit_code_2_and_one_line(
    phantoms: Path, tmp_path: Path, refused: Refused, arguments: list[str], message: str
) -> None:
    places = {"OUT": str(tmp_path / "run"), "DATA": str(phantoms)}
    words = [places.get(word, word) for word in arguments]
    errors = [line for line in refused("train", *words, *SETTINGS) if "error" in line]
    assert len(errors) == 1
    assert message in errors[0]


def test_crossval_refuses_seeds_that_are_not_numbers(
    phantoms: Path, tmp_path: Path, refused: Refused
) -> None:
    options = ["--data", phantoms, "--out", tmp_path, "--seeds", "0,one"]
    (line,) = refused("crossval", "fpn-iaia-bl", *options)
    assert "--seeds: expected numbers separated by commas, as in 0,1,2; got '0,one'" in line


def test_the_resume_command_repeats_the_words_once(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["x", "train", "a b.toml", "--out", "r", "--resume"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert resume_command() == "protopyramid train 'a b.toml' --out r --resume"
    for name, value in (("TORCHELASTIC_RUN_ID", "1"), ("LOCAL_WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WORLD_SIZE", "8")
    start = "torchrun --nnodes 2 --nproc-per-node 4 -m protopyramid train"
    assert resume_command() == f"{start} 'a b.toml' --out r --resume"
