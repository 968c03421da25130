"""A renamed setting still works: with a warning in what users write, silently in a saved run."""

import warnings
from pathlib import Path

import pytest

from protopyramid.cli.main import main
from protopyramid.config import dump_config, load_config
from protopyramid.config.aliases import ALIASES, current_key, rename_keys
from protopyramid.config.keys import valid_keys
from protopyramid.errors import UserError
from protopyramid.runs.run import load_run


def old_file(folder: Path, text: str = "[model]\nlooks = 4\n") -> Path:
    path = folder / "old.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("old", "new"), ALIASES.items())
def test_an_alias_leads_from_a_key_that_is_gone_to_one_of_the_same_section(old, new) -> None:
    assert old not in valid_keys()
    if "*" not in new:
        assert new in valid_keys()
    assert old.rpartition(".")[0] == new.rpartition(".")[0]


@pytest.mark.parametrize("text", ["[model]\nlooks = 4\n", 'preset = "vgg16"\nmodel.looks = 4\n'])
def test_an_old_key_in_a_file_works_with_one_warning(tmp_path: Path, text: str) -> None:
    with pytest.warns(DeprecationWarning) as caught:
        config = load_config(old_file(tmp_path, text))
    assert config.model.tta == 4
    assert "looks" not in dump_config(config)
    (warning,) = caught
    assert "model.looks is now called model.tta" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize("overrides", [{"model.looks": 8}, {"model": {"looks": 8}}], ids=str)
def test_an_old_key_in_an_override_works_with_one_warning(overrides) -> None:
    with pytest.warns(DeprecationWarning, match=r"model\.looks is now called model\.tta") as caught:
        assert load_config("fpn-iaia-bl", overrides).model.tta == 8
    assert len(caught) == 1


def test_an_override_by_the_new_name_wins_over_the_old_name_in_a_file(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning):
        assert load_config(old_file(tmp_path), {"model.tta": 8}).model.tta == 8


def test_a_key_under_both_names_is_refused(tmp_path: Path) -> None:
    path = old_file(tmp_path, "[model]\nlooks = 4\ntta = 4\n")
    with pytest.raises(UserError, match=r"old\.toml: model\.looks: is the old name of model\.tta"):
        load_config(path)
    with pytest.raises(UserError, match=r"remove model\.looks"):
        load_config("vgg16", {"model.looks": 4, "model.tta": 4})


def test_an_old_run_folder_loads_in_silence(new_run) -> None:
    run = new_run("old", **{"model.tta": 4})
    path = run.folder / "config.toml"
    text = path.read_text()
    assert "\ntta = 4\n" in text
    path.write_text(text.replace("\ntta = 4\n", "\nlooks = 4\n"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        loaded = load_run(run.folder.path)
    assert (loaded.config.model.tta, loaded.model.tta) == (4, 4)


def test_the_command_line_shows_the_warning_as_one_line(tmp_path: Path, capsys) -> None:
    assert main(["presets", "show", str(old_file(tmp_path))]) == 0
    shown = capsys.readouterr()
    assert "\ntta = 4" in shown.out
    (line,) = shown.err.splitlines()
    assert line.startswith("protopyramid: warning: model.looks is now called model.tta")


def test_keys_of_list_entries_may_be_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALIASES, "train.schedule.*.rate", "train.schedule.*.learning_rate")
    assert current_key("train.schedule.0.rate") == "train.schedule.0.learning_rate"
    tree = {"train": {"schedule": [{"step": "train", "rate": 1}, {"step": "project"}]}}
    renamed, keys = rename_keys(tree)
    assert renamed["train"]["schedule"][0] == {"step": "train", "learning_rate": 1}
    assert keys == {"train.schedule.0.rate": "train.schedule.0.learning_rate"}
    with pytest.warns(DeprecationWarning):
        config = load_config("fpn-iaia-bl", {"train.schedule.0.rate": 0.5})
    assert config.train.schedule[0].learning_rate == 0.5  # type: ignore[union-attr]
