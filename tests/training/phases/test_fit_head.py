"""The fit-head phase: an optimal head, on prototypes or without, and a candidate to keep."""

from __future__ import annotations

from pathlib import Path

import torch

from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import load_run
from protopyramid.training.engine import train_run

from ...harness import Reference, tiny


def test_the_head_is_at_the_optimum_of_its_problem(reference: Reference) -> None:
    lines = RunFolder(reference.folder).read_lines("metrics.jsonl")
    for line in lines:
        if line["kind"] == "fit-head":
            assert line["optimality"] <= load_run(reference.folder).config.head_fit.tolerance


def test_the_head_of_a_black_box_may_be_fitted_and_is_a_candidate_then(
    phantoms: Path, tmp_path: Path
) -> None:
    schedule = [
        {"step": "train", "name": "all", "learns": ["backbone", "head"], "epochs": 1},
        {"step": "fit-head"},
    ]
    config = tiny("vgg16", train__schedule=schedule)
    out = train_run(config, phantoms, tmp_path / "run")
    epoch, fit = RunFolder(out).read_lines("metrics.jsonl")
    assert fit["candidate"] and fit["optimality"] <= config.head_fit.tolerance
    better = fit["validation"]["auroc"] > epoch["validation"]["auroc"]
    assert not better or fit["best"]
    again = train_run(config, phantoms, tmp_path / "run", resume=True)
    assert len(RunFolder(again).read_lines("metrics.jsonl")) == 2


def test_a_head_may_be_fitted_on_the_backbone_of_another_run(
    phantoms: Path, tmp_path: Path
) -> None:
    """Trained and fitted, or fitted on what was trained: the same head."""
    train = {"step": "train", "name": "all", "learns": ["backbone", "head"], "epochs": 1}
    fit = {"step": "fit-head"}
    runs = {}
    for name, schedule in {"trained": [train], "both": [train, fit], "fitted": [fit]}.items():
        config = tiny("vgg16", train__schedule=schedule)
        start = runs["trained"] if name == "fitted" else None
        runs[name] = train_run(config, phantoms, tmp_path / name, backbone_from=start)
    figures = [RunFolder(runs[name]).read_lines("metrics.jsonl")[-1] for name in ("both", "fitted")]
    assert figures[0]["validation"] == figures[1]["validation"]
    assert figures[0]["objective"] == figures[1]["objective"]
    model = load_run(runs["fitted"]).model
    trained = load_run(runs["trained"]).model
    for ours, theirs in zip(
        model.backbone.parameters(), trained.backbone.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
