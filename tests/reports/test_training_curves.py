"""The curves of a training log."""

from __future__ import annotations

from typing import Any

from protopyramid.reports.training_curves import training_plots


def epoch(number: int, stage: str, loss: float | None, auroc: float | None) -> dict[str, Any]:
    losses = {} if loss is None else {"cross_entropy": loss}
    validation = None if auroc is None else {"auroc": auroc, "accuracy": 0.5}
    return {
        "kind": "epoch",
        "epoch": number,
        "stage": stage,
        "losses": losses,
        "validation": validation,
    }


def test_training_plots_of_nothing_are_none() -> None:
    assert training_plots([]) == []
    assert training_plots([{"kind": "project"}]) == []


def test_losses_are_relative_to_their_first_value_and_phases_are_marked() -> None:
    log = [epoch(1, "A", -2.0, None), epoch(2, "A", -1.0, 0.6), epoch(3, "C", 4.0, 0.7)]
    losses, validation = training_plots(log)
    assert losses.curves[0].name == "cross entropy"
    assert list(losses.curves[0].y) == [-1.0, -0.5, 2.0]
    assert list(losses.marks) == [(0.5, " phase A"), (2.5, " phase C")]
    assert (validation.curves[0].x, validation.curves[0].y) == ([2.0, 3.0], [0.6, 0.7])
