"""The public functions, and the one that finishes every run in the same way."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import signal
from pathlib import Path
from typing import Any

import pytest

import protopyramid as pp
from protopyramid import api
from protopyramid.config import dump_config
from protopyramid.config.schema import Config
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.evaluation import split as split_module
from protopyramid.reports.model_card import write_model_card
from protopyramid.studies.crossval import cross_validate

from .harness import Command, Reference, fault, tiny

VERBS = ("train", "evaluate", "predict", "explain", "compare", "export")
# What is done with a run after training adds files; a fold keeps its manifest beside its run.
AFTERWARDS = re.compile(r"evaluation/|manifest\.csv$|\.lock$")


def quick() -> Config:
    """A system with prototypes that trains in a moment."""
    schedule = [{"step": "project"}, {"step": "fit-head"}]
    # In a fold, half of the patients that are left make two for validation: limits need as many.
    return tiny(train__schedule=schedule, data__validation_fraction=0.5)


def files(run: Path) -> set[str]:
    """The files that a finished run holds; the names of event files contain the time."""
    found = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    found = {re.sub(r"tfevents\..*", "tfevents", name) for name in found}
    return {name for name in found if not AFTERWARDS.search(name)}


@pytest.fixture(scope="module")
def trained(phantoms: Path, tmp_path_factory: pytest.TempPathFactory) -> pp.api.Run:
    return pp.train(quick(), phantoms, tmp_path_factory.mktemp("api") / "run")


# -- names ---------------------------------------------------------------------------------------
def test_every_public_name_is_there_and_documented() -> None:
    expected = {*VERBS, "load_config", "dump_config", "build_model", "load_run", "losses"}
    assert set(pp.__all__) == {*expected, "UserError", "__version__"}
    for name in expected:
        assert getattr(pp, name).__doc__
    for name in VERBS:
        assert "Examples:" in getattr(api, name).__doc__ and callable(getattr(pp, name))
        assert inspect.signature(getattr(pp, name)) == inspect.signature(getattr(api, name))


def test_no_module_hides_a_public_function() -> None:
    """Importing a submodule binds its name in the package, so no room may be called like a verb."""
    rooms = {module.name for module in pkgutil.iter_modules(pp.__path__)}
    assert rooms.isdisjoint(VERBS)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="trian"):
        pp.trian  # noqa: B018


# -- finishing a run -----------------------------------------------------------------------------
def test_a_run_is_the_same_whoever_made_it(
    trained: Any, command: Command, phantoms: Path, tmp_path: Path
) -> None:
    toml = tmp_path / "quick.toml"
    toml.write_text(dump_config(quick()))
    done = command("train", toml, "--data", phantoms, "--out", tmp_path / "cli")
    assert done.code == 0, done.stderr
    cross_validate(quick(), phantoms, tmp_path / "crossval", 2, [0])
    study = tmp_path / "study.toml"
    taken = '[[variants]]\nname = "taken"\nrun_of = "plain"\nset = {"model.tta" = 4}\n'
    study.write_text(
        'title = "T"\ndata = "manifest"\nseeds = [0]\n'
        f'[[variants]]\nname = "plain"\npreset = "{toml}"\n{taken}'
    )
    for variant in ("plain", "taken"):
        arguments = ["study", study, "--data", phantoms, "--out", tmp_path / "study"]
        done = command(*arguments, "--only", variant)
        assert done.code == 0, done.stderr
    expected = files(trained.folder.path)
    assert {"thresholds.json", "MODEL_CARD.md", "model.safetensors", "data.json"} <= expected
    assert files(tmp_path / "cli") == expected
    assert files(tmp_path / "study/seed-0/plain") == expected
    for fold in (0, 1):
        assert files(tmp_path / f"crossval/seed-0/fold-{fold}") == expected
    written_in_training = {name for name in expected if "tfevents" in name} | {"metrics.jsonl"}
    of_training = {n for n in expected if n.startswith("checkpoint/")} | written_in_training
    assert files(tmp_path / "study/seed-0/taken") == expected - of_training
    for name in ("thresholds.json", "model.safetensors"):
        assert (tmp_path / "cli" / name).read_bytes() == (trained.folder / name).read_bytes()


@pytest.mark.parametrize(
    "moment",
    [
        fault("protopyramid.inference.ood:write_limits"),
        fault("os:replace", when="thresholds.json"),
        fault("protopyramid.reports.model_card:write_model_card"),
        fault("os:replace", when="MODEL_CARD.md"),
    ],
)
def test_killed_while_finishing_a_run_ends_in_the_same_bytes(
    command: Command, reference: Reference, tmp_path: Path, moment: dict[str, Any]
) -> None:
    out = tmp_path / "run"  # the reference's name, which the card bears
    done = command(*reference.arguments(out), faults=[moment])
    assert done.code == -signal.SIGKILL, done.stderr
    assert (out / "model.safetensors").is_file() and not (out / "MODEL_CARD.md").exists()
    again = command(*reference.arguments(out))
    assert again.code == 2 and "continue it with --resume" in again.stderr
    resumed = command(*reference.arguments(out), "--resume")
    assert resumed.code == 0, resumed.stderr
    assert files(out) == files(reference.folder)
    for name in ("thresholds.json", "MODEL_CARD.md", "model.safetensors", "prototypes.json"):
        assert (out / name).read_bytes() == (reference.folder / name).read_bytes()


def test_finishing_says_what_it_does(
    command: Command, reference: Reference, tmp_path: Path
) -> None:
    done = command(*reference.arguments(tmp_path / "run"))
    said = "scoring training and validation images: "
    assert sum(line.startswith(said) for line in done.stderr.splitlines()) >= 1


def test_a_finished_run_is_left_as_it_is(trained: Any, phantoms: Path) -> None:
    card = trained.folder / "MODEL_CARD.md"
    card.write_text("edited by hand")
    before = {
        name: (trained.folder / name).stat().st_mtime_ns
        for name in files(trained.folder.path)
        if "tfevents" not in name
    }
    again = pp.train(quick(), phantoms, trained.folder.path, resume=True)
    assert card.read_text() == "edited by hand"
    assert {name: (again.folder / name).stat().st_mtime_ns for name in before} == before
    write_model_card(trained)


def test_a_pruned_run_is_finished_too(trained: Any, tmp_path: Path) -> None:
    pruned = api.prune(trained, out=tmp_path / "pruned", remove=[0])
    assert pruned is not None and len(pruned.run.prototypes) == len(trained.prototypes) - 1
    assert {"thresholds.json", "MODEL_CARD.md"} <= files(tmp_path / "pruned")
    with pytest.raises(UserError, match=r"is not empty; give another folder$"):
        api.prune(trained, out=tmp_path / "pruned", remove=[0])


# -- the card ------------------------------------------------------------------------------------
def test_the_card_names_the_software_that_made_the_run_and_where_it_started(
    trained: Any, phantoms: Path, tmp_path: Path
) -> None:
    card = (trained.folder / "MODEL_CARD.md").read_text()
    assert f"protopyramid {pp.__version__}" in card and "started from random weights" in card
    second = pp.train(quick(), phantoms, tmp_path / "second", backbone_from=trained.folder.path)
    data = json.loads((second.folder / "data.json").read_text())
    assert data["backbone"] == f"run {trained.name}"
    data["software"]["version"] = "0.0.1-older"
    (second.folder / "data.json").write_text(json.dumps(data))
    card = write_model_card(pp.load_run(second.folder.path)).read_text()
    assert f"started from the backbone of the run `{trained.name}`" in card
    assert card.count("protopyramid 0.0.1-older") == 2 and pp.__version__ not in card
    del data["software"]
    (second.folder / "data.json").write_text(json.dumps(data))
    card = write_model_card(pp.load_run(second.folder.path)).read_text()
    assert "version not recorded" in card


# -- verbs ---------------------------------------------------------------------------------------
def test_evaluate_looks_at_every_image_of_the_split_once(
    trained: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from protopyramid.cli.main import main

    hashed: list[Path] = []
    original = split_module.hash_files
    monkeypatch.setattr(
        split_module,
        "hash_files",
        lambda paths, *more: hashed.extend(paths) or original(paths, *more),
    )
    assert main(["evaluate", str(trained.folder.path), "--bootstrap", "9", "--flags"]) == 0
    assert len(hashed) == len(set(hashed)) == 8
    shown = capsys.readouterr().out
    result = json.loads((trained.folder / "evaluation/test.json").read_text())
    for row, mean in (
        ("mean without negative", result["auroc"]["mean"]),
        ("mean with negative", result["auroc"]["with_negative"]["mean"]),
    ):
        assert re.search(rf"{row}.* {f'{mean:.3f}'.removeprefix('0')}", shown)
        assert f"AUROC, {row} | {mean:.2f}" in (trained.folder / "MODEL_CARD.md").read_text()
    assert "on images that are not negative" in shown


def test_a_run_is_given_as_such_or_as_its_folder(trained: Any, phantoms: Path) -> None:
    image = read_manifest(phantoms).split("test")[0].image
    by_run, by_path = (pp.predict(run, image) for run in (trained, trained.folder.path))
    assert by_run == by_path and len(by_run) == 1
    everything = pp.predict(trained, phantoms, split="test")
    assert len(everything) == 8
    alike = [record for record in everything if Path(record["image"]).name == image.name]
    assert alike[0]["predicted"] == by_run[0]["predicted"]
    explanation = pp.explain(str(trained.folder.path), image)
    assert explanation.predicted == by_run[0]["predicted"]
    assert explanation.probabilities == pytest.approx(by_run[0]["probabilities"], abs=1e-5)


def test_evaluate_and_compare_agree(trained: Any, tmp_path: Path, phantoms: Path) -> None:
    result = pp.evaluate(trained, bootstrap=9)
    assert (trained.folder / "report.html").is_file()
    black_box = tiny("vgg16", train__schedule=[{"step": "fit-head"}])
    other = pp.train(black_box, phantoms, tmp_path / "vgg16")
    comparison = pp.compare([trained.folder.path, other], bootstrap=9)
    assert comparison.rows[0].auroc.mean == result.auroc.mean
    with pytest.raises(UserError, match="given twice"):
        pp.compare([trained, trained.folder.path])


def test_export_writes_where_it_is_told(trained: Any, tmp_path: Path) -> None:
    done = pp.export(trained, "torch-export", tmp_path / "model.pt2")
    assert done.path == tmp_path / "model.pt2" and done.path.is_file()
    assert done.difference < 1e-4
