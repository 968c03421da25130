"""What a training must not lose: checkpoints, the records of metrics.jsonl and the best model."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from protopyramid.metrics.validation import ValidationMetrics
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.training.checkpoint import Restored, restore_model, save_best, save_checkpoint
from protopyramid.training.distributed import on_rank_zero
from protopyramid.training.state import Position, State
from protopyramid.training.tensorboard import Board
from protopyramid.utils.progress import metrics_text


class Keeper:
    """Keeps the state of one training, in memory and in its run folder; rank zero alone writes."""

    def __init__(self, folder: RunFolder, fabric: Fabric, model: nn.Module, board: Board) -> None:
        self.folder, self.fabric, self.model, self.board = folder, fabric, model, board
        self.state = State(Position())
        self._checkpoints = 0  # written so far, at the end of an epoch or a step

    @property
    def saved(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return self._checkpoints > 0

    def restore(self, restored: Restored) -> None:
        """Continue from a checkpoint: its model, its state, and the records up to it."""
        restore_model(self.model, restored.model)
        self.state = restored.state
        self._checkpoints = restored.number - restored.state.position.within_epoch
        on_rank_zero(self.fabric, self._drop_later_records)

    def save(
        self,
        position: Position,
        optimiser: torch.optim.Optimizer | None = None,
        sums: Mapping[str, float] | None = None,
        count: int = 0,
    ) -> None:
        """Write a checkpoint; within a train phase, with its optimiser and the epoch's loss terms.

        One within an epoch has the number of the next, which replaces it: a training that was stopped leaves
        the same files as one that was not.
        """
        self.state.position = position
        self.state.sums, self.state.count = dict(sums or {}), count
        number = self._checkpoints + 1
        on_rank_zero(
            self.fabric,
            lambda: save_checkpoint(
                self.folder, number, self.state, self.model.state_dict(), optimiser
            ),
        )
        self._checkpoints = number - position.within_epoch

    def record(self, position: Position, record: Mapping[str, Any]) -> None:
        """Append a record to metrics.jsonl, and its scalars to TensorBoard."""
        self.board.add(record)
        line = json.dumps({**record, "position": list(position.order)})
        on_rank_zero(self.fabric, lambda: self.folder.append_line(layout.METRICS, line))

    def offer(self, validated: ValidationMetrics, place: str) -> bool:
        """Keep the model if it is the best on validation so far; says whether it is."""
        if self.state.best_key is not None and validated.key <= self.state.best_key:
            return False
        self.state.best_key = validated.key
        note = place + metrics_text(asdict(validated))
        model, records = self.model.state_dict(), self.state.records
        on_rank_zero(self.fabric, lambda: save_best(self.folder, model, records, note))
        return True

    def _drop_later_records(self) -> None:
        """Drop what was recorded after the checkpoint: that work is done again."""
        kept = [
            record
            for record in self.folder.read_lines(layout.METRICS)
            if _order(record) <= self.state.position.order
        ]
        text = "".join(json.dumps(record) + "\n" for record in kept)
        self.folder.write_text(layout.METRICS, text)


def _order(record: Mapping[str, Any]) -> tuple[int, ...]:
    """The position of a record; beyond all others where it has none, so that it is dropped."""
    position = record.get("position")
    if not isinstance(position, list) or not all(isinstance(each, int) for each in position):
        return (sys.maxsize,)
    return tuple(position)
