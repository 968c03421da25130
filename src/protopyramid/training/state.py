"""The state of a training: how far it is, and what a checkpoint keeps beside the tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Position:
    """How far training is: phases done, epochs done in this phase, batches done in this epoch."""

    phase: int = 0
    epoch: int = 0
    batch: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """For comparing two positions."""
        return (self.phase, self.epoch, self.batch)


@dataclass
class State:
    """What a checkpoint holds beside the tensors of the model and the optimiser.

    `records`: the source of each prototype. `sums` and `count`: loss terms, added up over the batches of
    the epoch so far.
    """

    position: Position
    best_key: tuple[float, float] | None = None
    records: list[dict[str, Any]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def to_json(self) -> dict[str, Any]:
        """The state as it stands in a checkpoint, where a phase is called `stage`."""
        phase, epoch, batch = self.position.order
        position = {"stage": phase, "epoch": epoch, "batch": batch}
        return {**asdict(self), "position": position}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> State:
        """The state of a checkpoint."""
        position, best = content["position"], content["best_key"]
        return cls(
            **{
                **content,
                "position": Position(position["stage"], position["epoch"], position["batch"]),
                "best_key": None if best is None else (best[0], best[1]),
            }
        )
