"""The first commands of README and of the tutorial, run in order as a new user would, with a tiny network.

Only what would take hours is changed: training gets tiny settings on top of what is written, and phantoms are
few. What needs a dataset or a film of the reader's own is parsed by test_snippets.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from protopyramid.cli.main import main

from .harness import TINY
from .snippets import PROJECT, snippets

README = PROJECT / "README.md"
OWN_DATA = PROJECT / "docs/tutorials/own-data.md"
SMALLER = {**TINY, "train.scale": 0.01, "model.tta": 1, "train.cache.enabled": False}
FEW = ["--patients", "10", "--size", "64", "--force"]


def shrunk(words: list[str]) -> list[str]:
    """A command as written, with options at its end that make it quick."""
    if words[0] == "train":
        return [
            *words,
            *(
                part
                for key, value in SMALLER.items()
                for part in ("--set", f"{key}={_toml(value)}")
            ),
        ]
    if words[:2] == ["data", "phantom"]:
        return [*words, *FEW]
    return words


def _toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def run_all(document: Path, folder: Path) -> list[list[str]]:
    """Run every protopyramid command of a document in a folder; all must end well."""
    done = []
    for snippet in snippets("sh"):
        for words in snippet.commands if snippet.document == document else []:
            if words[0] != "protopyramid":
                continue
            assert main(shrunk(words[1:])) == 0, words
            done.append(words[1:])
            if words[1:3] == ["data", "phantom"]:
                shutil.copy(next((folder / "phantoms/images").glob("*.png")), folder / "lesion.png")
    return done


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("document", [README, OWN_DATA], ids=lambda path: path.name)
def test_the_first_commands_work_in_order(document: Path, in_folder: Path) -> None:
    done = run_all(document, in_folder)
    assert {"train", "evaluate", "explain"} <= {words[0] for words in done}
    assert (in_folder / "runs/first/report.html").is_file()
    assert list((in_folder / "why").glob("*.json"))


def test_the_readme_s_python_runs(in_folder: Path, new_run: Callable[..., Any]) -> None:
    made = new_run("first")
    shutil.copytree(made.folder.path, in_folder / "runs/first")
    shutil.copy(next(made.folder.path.glob("prototypes/*.png")), in_folder / "lesion.png")
    (block,) = (each for each in snippets("python") if each.document == README)
    exec(block.text, {"images": torch.zeros(1, 3, 224, 224)})
    assert (in_folder / "why.png").stat().st_size > 10_000
