"""The old name of a setting still works, with a warning; both names at once are refused."""

import subprocess
import sys
import warnings

import pytest

from protopyramid.config import dump_config, load_config
from protopyramid.errors import UserError
from protopyramid.runs.run import load_run

OLD = "[model]\nlooks = 4\n"


@pytest.fixture
def old_file(tmp_path):
    path = tmp_path / "old.toml"
    path.write_text('preset = "fpn-iaia-bl"\n' + OLD)
    return path


def test_an_old_key_in_a_file_has_the_value_of_the_new_one_and_warns_here(old_file):
    with pytest.warns(DeprecationWarning, match=r"model\.looks .* now called model\.tta") as caught:
        config = load_config(old_file)
    assert config == load_config("fpn-iaia-bl", {"model.tta": 4})
    assert [each.filename for each in caught] == [__file__]
    assert "looks" not in dump_config(config)


def test_an_old_key_as_override_warns_here():
    with pytest.warns(DeprecationWarning, match=r"model\.tta") as caught:
        assert load_config("vgg16", {"model.looks": 8}).model.tta == 8
    assert [each.filename for each in caught] == [__file__]


def test_a_file_without_preset_takes_the_old_key_too(tmp_path):
    (tmp_path / "own.toml").write_text(OLD)
    with pytest.warns(DeprecationWarning):
        assert load_config(tmp_path / "own.toml").model.tta == 4


def test_both_names_in_one_file_are_refused(tmp_path):
    (tmp_path / "both.toml").write_text(OLD + "tta = 1\n")
    with pytest.raises(UserError, match=r"both\.toml: model\.looks and model\.tta are the same"):
        load_config(tmp_path / "both.toml", warn=False)


def test_an_old_run_folder_loads_in_silence(new_run):
    run = new_run("old", **{"model.tta": 4})
    path = run.folder / "config.toml"
    text = path.read_text()
    assert "\ntta = 4\n" in text
    path.write_text(text.replace("\ntta = 4\n", "\nlooks = 4\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        loaded = load_run(run.folder.path)
    assert (loaded.config.model.tta, loaded.model.tta) == (4, 4)


def test_the_command_line_says_it_in_one_line(old_file, tmp_path):
    command = [sys.executable, "-m", "protopyramid", "train", str(old_file)]
    command += ["--data", str(tmp_path / "none.csv"), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    warned = [line for line in done.stderr.splitlines() if "deprecated" in line]
    expected = "protopyramid: warning: model.looks is deprecated: it is now called model.tta"
    assert warned == [expected]
