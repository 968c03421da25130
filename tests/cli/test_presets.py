"""`protopyramid presets` lists the systems and shows each in full."""

from pathlib import Path

import pytest

from protopyramid.cli.main import main
from protopyramid.config import load_config, preset_names


def test_the_list_has_a_line_a_preset_with_its_size(capsys) -> None:
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == preset_names()
    assert "40 prototypes on levels 2-5" in lines[0]
    assert "20 prototypes on level 5" in lines[1]
    assert "no prototypes" in lines[3]


@pytest.mark.parametrize("name", ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"])
def test_what_is_shown_can_be_saved_and_loaded(name: str, tmp_path: Path, capsys) -> None:
    assert main(["presets", "show", name]) == 0
    path = tmp_path / "mine.toml"
    path.write_text(capsys.readouterr().out)
    assert load_config(path) == load_config(name)


def test_an_unknown_preset_is_one_line(capsys) -> None:
    assert main(["presets", "show", "iaia"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert 'did you mean "iaia-bl"?' in line
