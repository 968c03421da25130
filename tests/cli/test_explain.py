"""`protopyramid explain`, on a run that was never trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from protopyramid.api import distinct_stems
from protopyramid.cli.main import main
from protopyramid.config import load_config, load_overlay
from protopyramid.data.manifest import read_manifest
from protopyramid.data.phantoms import write_phantoms
from protopyramid.data.store import ImageStore
from protopyramid.model.build import build_model
from protopyramid.runs.folder import RunFolder
from protopyramid.training.finish import finish_run

from .conftest import Refused


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_phantoms(tmp_path_factory.mktemp("phantoms"), patients=3, size=64)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, manifest: Path) -> Path:
    """A black box: nothing but scores and Grad-CAM is needed to test the command."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "vgg16")
    config = load_config("vgg16", load_overlay("small"))
    torch.manual_seed(0)
    folder.begin(config)
    finish_run(folder, config, build_model(config), ImageStore((), config.data), [])
    return folder.path


def test_each_image_gets_figure_and_numbers(
    run: Path, manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = read_manifest(manifest).samples[0].image
    assert main(["explain", str(run), str(image), "--out", str(tmp_path / "why")]) == 0
    names = sorted(path.name for path in (tmp_path / "why").iterdir())
    assert names == [f"{image.stem}.{kind}" for kind in ("json", "png")]
    content = json.loads((tmp_path / f"why/{image.stem}.json").read_text())
    assert content["image"] == image.name
    assert content["predicted"] in capsys.readouterr().out


def test_a_result_is_one_line_whatever_its_file_is_called(
    run: Path, manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = tmp_path / "li\nne\x1b[31m.png"
    image.write_bytes(read_manifest(manifest).samples[0].image.read_bytes())
    assert main(["explain", str(run), str(image), "--out", str(tmp_path / "why")]) == 0
    said = capsys.readouterr().out
    assert "why/li\\nne\\x1b[31m.png" in said
    assert len(said.splitlines()) == 1 and "\x1b" not in said


def test_formats_and_the_class_to_compare_with_are_chosen(
    run: Path, manifest: Path, tmp_path: Path, refused: Refused
) -> None:
    image = read_manifest(manifest).samples[0].image
    command = ["explain", str(run), str(image), "--out", str(tmp_path), "--format", "pdf,json"]
    for name in ("indistinct", "negative"):
        assert main([*command, "--against", name]) == 0
        content = json.loads((tmp_path / f"{image.stem}.json").read_text())
        assert content["against"] == name or content["predicted"] == name
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".pdf"]
    (line,) = refused("explain", run, image, "--against", "benign", "--out", tmp_path)
    assert "circumscribed, indistinct, spiculated, negative" in line
    (line,) = refused("explain", run, image, "--format", "bmp", "--out", tmp_path)
    assert "png, pdf, svg, json" in line


def test_an_unreadable_image_is_reported_and_the_others_are_explained(
    run: Path, manifest: Path, tmp_path: Path, refused: Refused
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for number, sample in enumerate(read_manifest(manifest).samples[:2]):
        (images / f"{number}.png").write_bytes(sample.image.read_bytes())
    (images / "0-torn.png").write_bytes(b"not an image")
    out = tmp_path / "why"
    (line,) = refused("explain", run, images, "--out", out)
    assert "1 of 3 images" in line and "0-torn.png" in line
    assert sorted(path.name for path in out.glob("*.json")) == ["0.json", "1.json"]
    (line,) = refused("explain", run, images / "0-torn.png", "--out", out)  # none is left
    assert "0-torn.png" in line and "left out" not in line


def test_rows_of_a_manifest_are_explained(run: Path, manifest: Path, tmp_path: Path) -> None:
    split = read_manifest(manifest).samples[0].split
    command = ["explain", str(run), str(manifest), "--split", split, "--limit", "2", "--jet"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    content = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*.json"))]
    assert len(content) == 2 and all(each["image"].startswith("images/") for each in content)


def test_a_list_of_images_alone_is_explained(run: Path, manifest: Path, tmp_path: Path) -> None:
    image = read_manifest(manifest).samples[0].image
    table = tmp_path / "list.csv"
    table.write_text(f"image\n{image}\n")
    assert main(["explain", str(run), str(table), "--out", str(tmp_path / "why")]) == 0
    assert (tmp_path / f"why/{image.stem}.json").is_file()


def test_images_of_one_name_do_not_overwrite_each_other(
    run: Path, manifest: Path, tmp_path: Path
) -> None:
    content = read_manifest(manifest).samples[0].image.read_bytes()
    paths = [tmp_path / folder / "lesion.png" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(content)
    assert main(["explain", str(run), *map(str, paths), "--out", str(tmp_path / "why")]) == 0
    assert {path.stem for path in (tmp_path / "why").iterdir()} == {"lesion", "lesion-2"}


def test_names_are_made_distinct() -> None:
    assert distinct_stems(["a.png", "a.tif", "A.png", "b.png"]) == ["a", "a-2", "A-3", "b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.png"], "nothing.png: no such image"),
        (["nothing.png", "--colour-map", "plaid"], 'unknown colour map "plaid"'),
        (["nothing.png", "--split", "test"], "--split: only applies to a manifest"),
    ],
)
def test_mistakes_are_one_line(
    run: Path, tmp_path: Path, refused: Refused, arguments: list[str], message: str
) -> None:
    (line,) = refused("explain", run, *arguments, "--out", tmp_path)
    assert message in line


def test_evidence_of_a_black_box_is_refused_in_one_line(
    run: Path, manifest: Path, tmp_path: Path, refused: Refused
) -> None:
    image = read_manifest(manifest).samples[0].image
    (line,) = refused("explain", run, image, "--evidence", "--out", tmp_path)
    assert "black box" in line
