"""`protopyramid demo`, with everything made tiny; what it does is the same."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from protopyramid.cli.main import main
from protopyramid.config import load_config
from protopyramid.config.schema import Config
from protopyramid.data import phantoms
from protopyramid.runs.run import load_run
from protopyramid.studies import demo as studies_demo

TINY = {
    "data.image_size": 48,
    "model.backbone.width": 0.0625,
    "model.neck.dim": 8,
    "train.scale": 0.01,
}


def shrunk(name: str, overrides: dict[str, Any]) -> Config:
    """The demo's settings with one epoch per phase and a smaller network; its phases are kept."""
    counts = {5: 1} if name == "demo-iaia-bl" else {2: 1, 5: 1}
    return load_config(name, {**TINY, "model.prototypes.counts": counts, **overrides})


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a demo that has been run; while the fixture lives, demos stay tiny."""
    few = partial(phantoms.write_phantoms, patients=16, size=64)
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies_demo, "load_config", shrunk)
        patch.setattr(phantoms, "write_phantoms", few)
        assert main(["demo", "--out", str(folder), "--seed", "3"]) == 0
        yield folder


def test_demo_goes_from_phantoms_to_a_report(demo: Path) -> None:
    for part in ("phantoms/manifest.csv", "iaia-bl/model.safetensors", "run/report.html"):
        assert (demo / part).is_file()
    assert (demo / "run/evaluation/test.json").is_file()
    assert (demo / "run/MODEL_CARD.md").is_file()
    names = {path.name for path in (demo / "explanations").iterdir()}
    assert {"circumscribed.png", "negative.json"} <= names


def test_the_second_training_starts_from_the_backbone_of_the_first(demo: Path) -> None:
    run = load_run(demo / "run")
    assert run.config.train.seed == 3
    assert run.folder.read_json("data.json")["backbone"] == "run iaia-bl"


def test_a_finished_demo_is_shown_again_not_trained_again(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = demo / "run/model.safetensors"
    before = model.stat().st_mtime_ns
    assert main(["demo", "--out", str(demo), "--seed", "3"]) == 0
    assert model.stat().st_mtime_ns == before
    shown = capsys.readouterr().out
    assert str(demo / "run/report.html") in shown
    assert "lesion" in shown and "AUROC" in shown


def test_a_folder_with_phantoms_of_another_seed_is_refused(
    demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(demo), "--seed", "1"]) == 2
    assert "another seed" in capsys.readouterr().err


def test_the_demo_trains_the_presets_in_small() -> None:
    first, second = load_config("demo-iaia-bl"), load_config("demo")
    assert (first.system, second.system) == ("iaia-bl", "protopyramid")
    assert first.model.backbone == second.model.backbone and not second.model.backbone.weights
    assert second.model.prototypes.counts == {2: 3, 3: 3, 4: 3, 5: 3}
