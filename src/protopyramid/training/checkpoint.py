"""Checkpoints: everything that training needs to go on as if it had never stopped.

Random choices depend on seed, epoch and index alone, so a position in the plan replaces the state of
random generators. A checkpoint is one safetensors file; its metadata holds the position and a checksum.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder

FOLDER = layout.CHECKPOINT
BEST = f"{FOLDER}/best.safetensors"
KEPT = 2


@dataclass(frozen=True)
class Position:
    """How far training has come: stages done, epochs done in this stage, batches done in this epoch."""

    stage: int = 0
    epoch: int = 0
    batch: int = 0

    @property
    def order(self) -> tuple[int, int, int]:
        """For comparing two positions."""
        return (self.stage, self.epoch, self.batch)


@dataclass
class State:
    """What a checkpoint holds beside the tensors of the model and the optimiser."""

    position: Position
    best_key: tuple[float, float] | None = None
    records: list[dict[str, Any]] = field(default_factory=list)
    sums: dict[str, float] = field(default_factory=dict)
    count: int = 0


def save_checkpoint(
    folder: RunFolder,
    number: int,
    state: State,
    model: Mapping[str, Tensor],
    optimiser: torch.optim.Optimizer | None,
) -> None:
    """Write checkpoint `number` and remove all but the last two."""
    tensors = {f"model/{name}": tensor for name, tensor in model.items()}
    if optimiser is not None:
        tensors |= _optimiser_tensors(optimiser)
    text = json.dumps(asdict(state))
    metadata = {"state": text, "checksum": str(checksum(tensors, text))}
    folder.write_tensors(f"{FOLDER}/{number:08d}.safetensors", tensors, metadata)
    for old in _numbers(folder)[:-KEPT]:
        (folder / f"{FOLDER}/{old:08d}.safetensors").unlink(missing_ok=True)


@dataclass
class Restored:
    """A checkpoint that was read back."""

    number: int
    state: State
    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]


def load_checkpoint(folder: RunFolder) -> Restored | None:
    """The newest whole checkpoint; a damaged one is passed over with a warning. None where none is."""
    numbers = _numbers(folder)
    for number in reversed(numbers):
        name = f"{FOLDER}/{number:08d}.safetensors"
        try:
            return _read(folder, number)
        except (UserError, ValueError, KeyError, TypeError) as error:
            warnings.warn(f"{folder / name}: damaged ({error}); using the one before", stacklevel=2)
            (folder / name).unlink(missing_ok=True)
    if numbers:
        raise UserError(f"{folder / FOLDER}: no checkpoint is whole; train again in another folder")
    return None


def has_checkpoint(folder: RunFolder) -> bool:
    """Whether there is anything to go on from."""
    return bool(_numbers(folder))


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back the state that `save_checkpoint` took from an optimiser of the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, key = name.split("/")
        state.setdefault(int(number), {})[key] = tensor
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
    for parameter, values in optimiser.state.items():
        for key, value in values.items():
            if value.shape == parameter.shape:  # in the parameter's memory order, as it was made
                values[key] = torch.empty_like(parameter).copy_(value)


def save_best(
    folder: RunFolder, model: Mapping[str, Tensor], records: list[dict[str, Any]], note: str
) -> None:
    """Keep a candidate: a model that has just been projected and fitted, with its prototypes' sources."""
    text = json.dumps(records)
    metadata = {"records": text, "note": note, "checksum": str(checksum(model, text))}
    folder.write_tensors(BEST, dict(model), metadata)


def load_best(folder: RunFolder) -> tuple[dict[str, Tensor], list[dict[str, Any]], str]:
    """The best candidate so far, its prototypes' sources, and the note on it."""
    tensors, metadata = folder.read_tensors(BEST)
    if str(checksum(tensors, metadata["records"])) != metadata["checksum"]:
        raise UserError(f"{folder / BEST}: damaged (its checksum differs); train again")
    records: list[dict[str, Any]] = json.loads(metadata["records"])
    return tensors, records, metadata["note"]


def checksum(tensors: Mapping[str, Tensor], text: str = "") -> int:
    """CRC-32 over a text, names and values, to tell a damaged file from a whole one."""
    value = zlib.crc32(text.encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(name.encode(), value)
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        value = zlib.crc32(plain.view(torch.uint8).numpy().data if plain.numel() else b"", value)
    return value


def _read(folder: RunFolder, number: int) -> Restored:
    tensors, metadata = folder.read_tensors(f"{FOLDER}/{number:08d}.safetensors")
    if str(checksum(tensors, metadata["state"])) != metadata["checksum"]:
        raise ValueError("its checksum differs")
    content = json.loads(metadata["state"])
    content["position"] = Position(**content["position"])
    best = content["best_key"]
    content["best_key"] = None if best is None else (best[0], best[1])
    return Restored(
        number, State(**content), _part(tensors, "model/"), _part(tensors, "optimiser/")
    )


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): value for k, value in tensors.items() if k.startswith(prefix)}


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"optimiser/{number}/{key}": torch.as_tensor(value)
        for number, values in optimiser.state_dict()["state"].items()
        for key, value in values.items()
    }


def _numbers(folder: RunFolder) -> list[int]:
    names = (folder / FOLDER).glob("*.safetensors")
    return sorted(int(path.stem) for path in names if path.stem.isdigit())
