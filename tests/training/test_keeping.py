"""What a training keeps: the best model, checkpoints, and no record of work that is done again."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from protopyramid.metrics.validation import ValidationMetrics
from protopyramid.runs.folder import RunFolder
from protopyramid.training.checkpoint import load_best, load_checkpoint
from protopyramid.training.distributed import start_fabric
from protopyramid.training.keeping import Keeper
from protopyramid.training.state import Position
from protopyramid.training.tensorboard import Board


def keeper(folder: Path) -> Keeper:
    board = Board(folder / "tensorboard", enabled=False, say=print)
    return Keeper(RunFolder(folder), start_fabric(1, "32-true", "cpu"), nn.Linear(2, 1), board)


def metrics(auroc: float | None, cross_entropy: float) -> ValidationMetrics:
    return ValidationMetrics(accuracy=0.5, auroc=auroc, cross_entropy=cross_entropy)


def set_weight(kept: Keeper, value: float) -> None:
    with torch.no_grad():
        kept.model.weight.fill_(value)


def test_the_best_model_is_the_first_with_the_highest_auroc_then_the_lowest_cross_entropy(
    tmp_path: Path,
) -> None:
    kept = keeper(tmp_path)
    offers = [(0.5, 1.0), (0.7, 2.0), (0.6, 0.1), (0.7, 1.5), (0.7, 1.5)]
    best = []
    for number, (auroc, cross_entropy) in enumerate(offers):
        set_weight(kept, number)
        best.append(kept.offer(metrics(auroc, cross_entropy), f"phase {number}, "))
    assert best == [True, True, False, True, False]
    tensors, _, note = load_best(RunFolder(tmp_path))
    assert float(tensors["weight"][0, 0]) == 3
    assert note.startswith("phase 3, validation AUROC 0.700")


def test_nothing_is_saved_before_the_first_checkpoint(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    assert not kept.saved
    kept.save(Position())
    assert kept.saved


def test_a_restored_training_drops_the_records_after_its_checkpoint(tmp_path: Path) -> None:
    kept = keeper(tmp_path)
    for epoch in range(1, 4):
        set_weight(kept, epoch)
        kept.record(Position(0, epoch), {"kind": "epoch", "epoch": epoch})
        if epoch < 3:  # killed before the third checkpoint
            kept.save(Position(0, epoch), sums={"fine": 1.0}, count=epoch)
    restored = load_checkpoint(RunFolder(tmp_path))
    assert restored is not None
    again = keeper(tmp_path)
    again.restore(restored)
    assert again.saved
    assert again.state.position == Position(0, 2)
    assert (again.state.sums, again.state.count) == ({"fine": 1.0}, 2)
    assert float(again.model.weight.detach()[0, 0]) == 2
    lines = RunFolder(tmp_path).read_lines("metrics.jsonl")
    assert [line["epoch"] for line in lines] == [1, 2]
    again.save(Position(0, 3))
    numbers = sorted(path.name for path in (tmp_path / "checkpoint").glob("0*"))
    assert numbers == ["00000002.safetensors", "00000003.safetensors"]


def test_a_training_that_was_stopped_within_epochs_leaves_the_checkpoints_of_one_that_was_not(
    tmp_path: Path,
) -> None:
    def train(folder: Path, stops: dict[int, list[int]]) -> dict[str, bytes]:
        torch.manual_seed(0)
        kept = keeper(folder)
        for epoch in range(4):
            for batch in stops.get(epoch, []):
                kept.save(Position(0, epoch, batch))
                restored = load_checkpoint(RunFolder(folder))
                assert restored is not None
                assert restored.state.position == Position(0, epoch, batch)
                kept = keeper(folder)
                kept.restore(restored)
            set_weight(kept, epoch)
            kept.save(Position(0, epoch + 1))
        return {path.name: path.read_bytes() for path in (folder / "checkpoint").glob("0*")}

    whole = train(tmp_path / "whole", {})
    assert sorted(whole) == ["00000003.safetensors", "00000004.safetensors"]
    assert train(tmp_path / "stopped", {1: [2], 2: [1, 1, 3]}) == whole
