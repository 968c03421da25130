"""`protopyramid prototypes`: the gallery, and editing with what it costs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch

from protopyramid.cli.main import main
from protopyramid.config import load_config, load_overlay
from protopyramid.data.manifest import read_manifest
from protopyramid.data.phantoms import write_phantoms
from protopyramid.data.store import ImageStore
from protopyramid.model.build import build_model
from protopyramid.prototypes.editing import removal_costs
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.training.finish import finish_run, write_data_facts

from .conftest import Refused

COUNTS = {"model.prototypes.counts": {"4": 1, "5": 1}, "model.prototypes.negative_counts": {"5": 1}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with seven random prototypes beside the data it was made from."""
    base = tmp_path_factory.mktemp("prototypes")
    manifest = read_manifest(
        write_phantoms(base / "phantoms", patients=6, size=64, splits=(0.5, 0.2, 0.3))
    )
    config = load_config("fpn-iaia-bl", {**load_overlay("small"), **COUNTS})
    torch.manual_seed(0)
    model = build_model(config).eval()
    folder = RunFolder(base / "run")
    folder.begin(config)
    samples = manifest.split("train")
    names = [config.data.classes[number] for number in model.prototypes.classes.tolist()]
    records = [
        {
            "index": index,
            "class": name,
            "level": int(model.prototypes.levels[index]),
            "image": next(sample.name for sample in samples if sample.label == name),
            "row": 0,
            "col": 0,
            "similarity": 0.5,
        }
        for index, name in enumerate(names)
    ]
    finish_run(folder, config, model, ImageStore(samples, config.data), records)
    write_data_facts(folder, manifest, config, {})
    return folder.path


def test_gallery_and_nearest_images_are_written(run: Path, tmp_path: Path) -> None:
    assert main(["prototypes", str(run), "--out", str(tmp_path), "--nearest", "2"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert {"prototypes_gallery.png", "prototypes_nearest.json"} <= names
    assert "prototypes_nearest_spiculated.png" in names
    assert {name for name in names if name.startswith("levels-")} == {
        f"levels-{name}.png" for name in ("circumscribed", "indistinct", "spiculated", "negative")
    }


def test_the_gallery_shows_regions_where_they_are_asked_for(run: Path, tmp_path: Path) -> None:
    shown = {}
    for name, options in (("patches", []), ("regions", ["--regions"])):
        out = tmp_path / name
        assert main(["prototypes", str(run), "--out", str(out), "--nearest", "1", *options]) == 0
        shown[name] = (out / "prototypes_gallery.png").read_bytes()
    assert shown["patches"] != shown["regions"]


def test_gallery_alone_where_the_manifest_is_gone(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, tmp_path / "far/away/run")
    assert main(["prototypes", str(tmp_path / "far/away/run"), "--out", str(tmp_path / "out")]) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "prototypes_gallery.png" in names and "levels-spiculated.png" in names
    assert not any("nearest" in name for name in names)
    assert "--data MANIFEST" in capsys.readouterr().err


def test_removing_prototypes_tells_the_cost_and_writes_nothing(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path for path in run.parent.rglob("*") if path.is_file())
    assert main(["prototypes", str(run), "--remove", "0", "4", "--require", "2"]) == 0
    said = capsys.readouterr().out
    assert "removed prototype 0" in said and "removed prototype 4" in said
    assert "required prototype 2" in said and "at least 1, fitted" in said
    assert "2 of 7 prototypes removed, head fitted again" in said
    assert "best achievable loss" in said and "validation AUROC" in said
    assert "predictions change" in said and "nothing is written" in said
    assert sorted(path for path in run.parent.rglob("*") if path.is_file()) == before


def test_an_edited_run_is_what_was_said(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "edited"
    arguments = ["--remove", "0,4", "--require", "2", "--at-least", "2.5", "--out", str(out)]
    assert main(["prototypes", str(run), *arguments]) == 0
    said = capsys.readouterr().out
    fitted = re.search(r"at least 2\.5, fitted (\S+)", said)
    assert fitted and float(fitted[1]) >= 2.5 and said.strip().endswith(str(out))
    edited = load_run(out)
    assert len(edited.prototypes) == 5
    (record,) = edited.provenance.edits
    assert record["removed"] == [0, 4] and record["requirements"] == {"1": 2.5}
    assert f"best achievable loss {record['loss']['after']:.4f}" in said
    assert main(["prototypes", str(out), "--nearest", "1"]) == 0  # it still finds its manifest


def test_bound_lists_what_could_go_alone_by_the_rise_of_the_loss(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prototypes", str(run), "--bound", "0.5"]) == 0
    said = capsys.readouterr().out
    costs = removal_costs(load_run(run))
    could = [each for each in costs if each.loss_increase <= 0.5 and not each.last_of_its_class]
    assert f"{len(could)} prototypes could go alone within 0.5 of it" in said
    table = said.split("exact fit:")[1].split("near-optimal heads")[0]
    listed = [int(line.split()[0]) for line in table.splitlines() if line[:3].strip().isdecimal()]
    expected = sorted(could, key=lambda each: each.loss_increase)
    assert listed == [each.index for each in expected] and listed
    assert "without a ridge (head_fit.ridge) nothing bounds them" in said  # the paper's preset


def test_prune_finds_prototypes_near_other_classes(run: Path, tmp_path: Path) -> None:
    # With this minimum no prototype would remain: refused, and nothing is written.
    out = tmp_path / "pruned"
    command = ["prototypes", str(run), "--prune", "--out", str(out)]
    assert main([*command, "--nearest", "4", "--least", "5"]) == 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--remove", "a"], "expected numbers separated by commas"),
        (["--remove", "70"], "no prototype 70"),
        (["--remove", "6"], 'class "negative" would have no prototype left'),
        (["--prune", "--remove", "1"], "choose one"),
        (["--prune", "--bound", "1"], "choose one"),
        (["--bound", "-1"], "at least 0"),
        (["--bound", "1", "--remove", "1"], "without --remove"),
        (["--at-least", "2"], "belongs to --require"),
        (["--remove", "1", "--require", "1"], "removed and required at once"),
        (["--data", "nothing.csv", "--remove", "1"], "nothing.csv"),
    ],
)
def test_mistakes_are_one_line(
    run: Path, tmp_path: Path, refused: Refused, arguments: list[str], message: str
) -> None:
    (line,) = refused("prototypes", run, *arguments, "--out", tmp_path / "out")
    assert message in line
    assert not (tmp_path / "out").exists()
