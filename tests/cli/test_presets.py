"""`protopyramid presets` lists the systems and shows each in full."""

from pathlib import Path

import pytest

from protopyramid.cli.main import main
from protopyramid.config import departure_reason, differences, load_config, preset_names
from protopyramid.config.differences import own_choices


def test_the_list_has_one_line_per_preset_with_its_size(capsys) -> None:
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == preset_names()
    assert "40 prototypes on levels 2-5" in lines[0]
    assert "20 prototypes on level 5" in lines[1]
    assert "no prototypes" in lines[4]
    assert not any("[" in line for line in lines[:5])


def test_the_list_says_how_far_each_preset_is_from_the_paper(capsys) -> None:
    assert main(["presets"]) == 0
    shown = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert shown["fpn-iaia-bl"].endswith("; paper to the letter)")
    for name in ("protopyramid", "demo", "cbis-margins"):
        count = len(differences(load_config(name)))
        assert shown[name].endswith(f"; {count} differences from FPN-IAIA-BL)")


def test_differences_are_shown_one_per_line(capsys) -> None:
    assert main(["presets", "show", "cbis-margins", "--differences"]) == 0
    shown = capsys.readouterr().out
    config = load_config("cbis-margins")
    for each in differences(config):
        why = departure_reason(config, each.key)
        assert f"| `{each.key}` | {each.paper} | {each.run} | {why} |" in shown
    assert main(["presets", "show", "fpn-iaia-bl", "--differences"]) == 0
    assert capsys.readouterr().out.startswith("fpn-iaia-bl: paper to the letter\n")


@pytest.mark.parametrize("name", ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"])
def test_what_is_ours_in_a_published_preset_is_shown_with_its_reason(name: str, capsys) -> None:
    assert main(["presets", "show", name, "--differences"]) == 0
    shown = capsys.readouterr().out
    chosen = own_choices(name)
    assert chosen and all(f"| `{key}` | {why} |" in shown for key, why in chosen.items())


def test_the_list_marks_what_is_not_a_system(capsys) -> None:
    assert main(["presets"]) == 0
    shown = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "[recipe]" in shown["cbis-margins"]
    assert "[demo]" in shown["demo"] and "[demo]" in shown["demo-iaia-bl"]


@pytest.mark.parametrize("options", [[], ["--plain"]])
@pytest.mark.parametrize("name", preset_names())
def test_what_is_shown_can_be_saved_and_loaded(name: str, options, tmp_path: Path, capsys) -> None:
    assert main(["presets", "show", name, *options]) == 0
    path = tmp_path / "mine.toml"
    path.write_text(capsys.readouterr().out)
    assert load_config(path) == load_config(name)


def test_settings_are_shown_with_their_descriptions_unless_plain(capsys) -> None:
    assert main(["presets", "show", "fpn-iaia-bl"]) == 0
    commented = capsys.readouterr().out
    assert "# Side length of the model's square input in pixels; a multiple of 16. " in commented
    assert main(["presets", "show", "fpn-iaia-bl", "--plain"]) == 0
    plain = capsys.readouterr().out
    assert "#" not in plain
    assert [
        line for line in commented.splitlines() if not line.startswith("#")
    ] == plain.splitlines()


def test_an_unknown_preset_is_one_line(capsys) -> None:
    assert main(["presets", "show", "iaia"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert 'did you mean "iaia-bl"?' in line
