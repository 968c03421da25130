"""A run that cannot be loaded says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from protopyramid.errors import UserError
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run

from ..harness import tiny


def test_an_unfinished_run_names_the_command_that_finishes_it(tmp_path: Path) -> None:
    RunFolder(tmp_path).begin(tiny())
    with pytest.raises(UserError, match=r"not finished .*protopyramid train … --out .* --resume"):
        load_run(tmp_path)


def test_tensors_of_another_model_are_refused(new_run, tmp_path: Path) -> None:
    run = new_run()
    run.folder.write_config(tiny())
    with pytest.raises(UserError, match=r"model\.safetensors: does not match config\.toml"):
        load_run(run.folder.path)
