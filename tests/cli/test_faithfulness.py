"""`protopyramid faithfulness`, on a run that was never trained."""

from __future__ import annotations

import json

import pytest

from protopyramid.cli.main import main

SMALL = {"model.prototypes.counts": {"5": 1}, "model.prototypes.negative_counts": {"5": 1}}


def test_the_table_has_levels_and_classes_and_says_what_it_means(
    new_run, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = new_run(**SMALL), tmp_path / "faithfulness.json"
    command = ["faithfulness", str(run.folder.path), "--images", "2", "--out", str(out)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    content = json.loads(out.read_text())
    for name in ("level 5", *content["per_class"], "all"):
        assert name in printed
    mean = content["all"]["evidence"]["area"]["mean"]
    assert f"{mean:.3f}".removeprefix("0") in printed
    assert "is replaced (faithful: near 1)" in " ".join(printed.split())
    assert str(out) in printed


def test_a_mistake_is_one_line(new_run, refused) -> None:
    run = new_run(**SMALL)
    (line,) = refused("faithfulness", run.folder.path, "--split", "train")
    assert "were used in training" in line
