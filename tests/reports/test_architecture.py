"""The architecture of every preset and of a run is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from protopyramid import api
from protopyramid.cli.main import main
from protopyramid.config import load_config
from protopyramid.config.schema import BackboneConfig
from protopyramid.reports.architecture import architecture_data, backbone_name
from protopyramid.runs.run import Run

SMALL = {"data.image_size": 96, "model.backbone.width": 0.0625}


@pytest.mark.parametrize("preset", ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16", "demo"])
def test_a_preset_is_drawn(preset: str, tmp_path: Path) -> None:
    path = api.draw_architecture(load_config(preset, SMALL), tmp_path / "drawing.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_run_is_drawn_with_its_own_numbers(run: Run, tmp_path: Path, capsys) -> None:
    out = tmp_path / "drawing.svg"
    assert main(["presets", "draw", str(run.folder.path), "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out) and out.is_file()
    found = architecture_data(run.config)
    assert found.architecture.image == (64, 64, 3)
    assert found.architecture.prototypes == len(run.prototypes) == 13
    assert found.backbone == "VGG-16, channels × 0.125, batch norm"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["iaia"], 'did you mean "iaia-bl"?'),
        (["vgg16", "--out", "a.gif"], "use .png, .pdf or .svg"),
    ],
)
def test_mistakes_are_one_line(arguments, message, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["presets", "draw", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and not list(tmp_path.iterdir())


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path, capsys) -> None:
    assert main(["presets", "draw", str(tmp_path)]) == 2
    assert "not a run folder" in capsys.readouterr().err


def test_a_backbone_is_named_with_what_is_special_about_it() -> None:
    assert backbone_name(BackboneConfig()) == "VGG-16"
    assert backbone_name(BackboneConfig(name="timm:resnet18")) == "resnet18"
