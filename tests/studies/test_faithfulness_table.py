"""The table over the runs of studies: measured once, missing runs named, nothing trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from protopyramid.errors import UserError
from protopyramid.studies.faithfulness_table import main, read_plan, run_table

PLAN = """title = "Test"
[[sources]]
title = "Phantoms"
folder = "phantoms"
variants = ["ours", "gone"]
seeds = [0, 1]
images = 1
"""


@pytest.fixture
def results(new_run, tmp_path: Path) -> Path:
    run = new_run(
        **{
            "model.prototypes.counts": {"2": 1, "5": 1},
            "model.prototypes.negative_counts": {"5": 1},
        }
    )
    target = tmp_path / "results/phantoms/seed-0/ours"
    shutil.copytree(run.folder.path, target)
    content = json.loads((target / "data.json").read_text())
    manifest = (run.folder.path / content["manifest_path"]).resolve()
    (target / "data.json").write_text(json.dumps({**content, "manifest_path": str(manifest)}))
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path / "results"


def test_runs_are_measured_once_and_missing_ones_named(results: Path) -> None:
    plan, said = read_plan(results.parent / "plan.toml"), []
    text = run_table(plan, results, said.append)
    assert "| ours, 2 |" in text and "| ours, 5 |" in text and "gone" not in text
    assert "one run of each system" in text and "prototypes that matter" in text
    assert sum("no run" in line for line in said) == 3 and sum("measuring" in s for s in said) == 1
    assert (results / "faithfulness.md").read_text() == text
    said.clear()
    assert run_table(plan, results, said.append) == text
    assert not any("measuring" in line for line in said)


def test_what_was_measured_elsewhere_is_in_the_table_without_its_run(
    results: Path, tmp_path: Path
) -> None:
    plan, kept, said = read_plan(results.parent / "plan.toml"), tmp_path / "kept", []
    text = run_table(plan, results, kept=kept)
    assert (kept / "phantoms/seed-0/ours.json").is_file()
    assert run_table(plan, tmp_path / "empty", said.append, kept) == text
    assert sum("no run" in line for line in said) == 3  # of four: one was measured


def test_what_was_measured_otherwise_is_not_in_the_table(results: Path, tmp_path: Path) -> None:
    kept, path = tmp_path / "kept", results.parent / "plan.toml"
    run_table(read_plan(path), results, kept=kept)
    path.write_text(PLAN.replace("images = 1", "images = 2"))
    with pytest.raises(UserError, match="no run was found"):
        run_table(read_plan(path), tmp_path / "empty", kept=kept)


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "plan.toml"
    wrong.write_text(PLAN.replace("variants", "variant"))
    assert main([str(wrong), "--results", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    wrong.write_text(PLAN)
    with pytest.raises(UserError, match="no run was found"):
        run_table(read_plan(wrong), tmp_path)


def test_the_plan_of_the_repository_can_be_read() -> None:
    plan = read_plan(Path(__file__).parents[2] / "studies/faithfulness.toml")
    assert [source.folder for source in plan.sources] == [
        "phantoms",
        "phantoms",
        "outlined",
        "cbis",
    ]
    assert [source.split for source in plan.sources if source.split != "test"] == ["validation"]
