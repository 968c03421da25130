"""The state of a training: how far it is, and what a checkpoint keeps beside the tensors."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic takes that of typing from Python 3.12 on

Count = Annotated[int, Field(ge=0)]
PrototypeSource = TypedDict(  # what projection found for a prototype
    "PrototypeSource",
    {
        "index": Count,
        "class": str,
        "level": Count,
        "image": str,
        "row": Count,
        "col": Count,
        "similarity": float,
    },
)


class StoredPosition(TypedDict):
    """A position in a checkpoint."""

    stage: Count
    epoch: Count
    batch: Count


@dataclass(frozen=True)
class Position:
    """How far training is: phases done, epochs done in this phase, batches done in this epoch."""

    phase: Count = 0
    epoch: Count = 0
    batch: Count = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """For comparing two positions."""
        return (self.phase, self.epoch, self.batch)

    @property
    def within_epoch(self) -> bool:
        """Whether an epoch has begun and is not done."""
        return self.batch > 0


@dataclass
class State:
    """What a checkpoint holds beside the tensors of the model and the optimiser.

    `records`: the source of each prototype. `sums` and `count`: loss terms, added up over the batches of
    the epoch so far.
    """

    position: Position
    best_key: tuple[float, float] | None = None
    records: list[PrototypeSource] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def to_json(self) -> dict[str, Any]:
        """The state as it stands in a checkpoint, where a phase is called `stage`."""
        phase, epoch, batch = self.position.order
        position = {"stage": phase, "epoch": epoch, "batch": batch}
        return {**asdict(self), "position": position}

    @classmethod
    def from_json(cls, text: str) -> State:
        """The state of a checkpoint; ValueError where it has another shape."""
        stored = _STORED.validate_json(text, strict=True)
        place = stored.position
        position = Position(place["stage"], place["epoch"], place["batch"])
        return cls(position, stored.best_key, stored.records, stored.sums, stored.count)


@dataclass
class _Stored:
    """A state as `State.to_json` writes it."""

    position: StoredPosition
    best_key: tuple[float, float] | None
    records: list[PrototypeSource]
    sums: dict[str, float]
    count: Count


_STORED = TypeAdapter(_Stored)
_SOURCES = TypeAdapter(list[PrototypeSource])


def read_sources(text: str) -> list[PrototypeSource]:
    """The sources of all prototypes, from JSON; ValueError where it has another shape."""
    return _SOURCES.validate_json(text, strict=True)
