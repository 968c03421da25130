"""The project phase: what it records, what it says, and what it says only once."""

from __future__ import annotations

from pathlib import Path

import pytest

from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.training.engine import train_run

from ...harness import Reference, tiny


def test_a_projection_reports_moves_second_choices_and_accuracy(reference: Reference) -> None:
    count = len(load_run(reference.folder).prototypes)
    for line in RunFolder(reference.folder).read_lines("metrics.jsonl"):
        if line["kind"] == "project":
            assert len(line["moved"]) == count
            assert -1 <= line["nearest_similarity"]["worst"] <= line["nearest_similarity"]["mean"]
            assert {"accuracy", "auroc", "cross_entropy"} <= set(line["before"])
            assert set(line["second_choices"]) <= set(range(count))


def test_the_advice_is_printed_once_and_the_figures_after_every_projection(
    phantoms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prototypes far from every patch: they learn at a high rate, and the fine loss is strong."""
    train = {"step": "train", "learns": ["prototypes"], "learning_rate": 1.0, "epochs": 2}
    schedule = [train, {"step": "project"}, train, {"step": "project"}, {"step": "fit-head"}]
    train_run(tiny(train__schedule=schedule), phantoms, tmp_path / "run")
    lines = capsys.readouterr().err.splitlines()
    assert sum("prototypes projected" in line and " below 0.8" in line for line in lines) == 2
    assert sum("train longer, or lower loss.fine.weight" in line for line in lines) == 1
