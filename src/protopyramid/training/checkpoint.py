"""Checkpoints: everything that training needs to continue as if it had never stopped.

Random choices depend on seed, epoch and index alone, so a position in the plan replaces the state of
random generators. A checkpoint is one safetensors file; its metadata holds the position and a checksum.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.training.state import PrototypeSource, State, read_sources
from protopyramid.utils.faults import reached
from protopyramid.utils.opening import is_folder
from protopyramid.utils.typed_json import first_problem

FOLDER = layout.CHECKPOINT
BEST = f"{FOLDER}/best.safetensors"
KEPT = 2  # the newest, and one to fall back on


def save_checkpoint(
    folder: RunFolder,
    number: int,
    state: State,
    model: Mapping[str, Tensor],
    optimiser: torch.optim.Optimizer | None,
) -> None:
    """Write checkpoint `number` and remove all but the last two."""
    reached("checkpoint")
    tensors = {f"model/{name}": tensor for name, tensor in model.items()}
    if optimiser is not None:
        tensors |= _optimiser_tensors(optimiser)
    text = json.dumps(state.to_json())
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
    """The newest intact checkpoint, or None if there is none; damaged ones are skipped with a warning."""
    numbers = _numbers(folder)
    for number in reversed(numbers):
        name = f"{FOLDER}/{number:08d}.safetensors"
        try:
            return _read(folder, number)
        except (UserError, ValueError, KeyError, TypeError) as error:
            warnings.warn(
                f"{folder / name}: damaged ({_reason(error)}); using the one before it",
                stacklevel=2,
            )
            (folder / name).unlink(missing_ok=True)
    if numbers:
        raise UserError(
            f"{folder / FOLDER}: no checkpoint is intact; train again in another folder"
        )
    return None


def has_checkpoint(folder: RunFolder) -> bool:
    """Whether there is a checkpoint to continue from."""
    return bool(_numbers(folder))


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back the state that `save_checkpoint` took from an optimiser of the same parameters."""
    state: dict[int, dict[str, Tensor]] = {}
    groups = optimiser.state_dict()["param_groups"]
    try:
        for name, tensor in tensors.items():
            number, key = name.split("/")
            state.setdefault(int(number), {})[key] = tensor
        optimiser.load_state_dict({"state": state, "param_groups": groups})
    except (ValueError, KeyError, RuntimeError) as error:
        raise _misfit(error) from None
    for parameter, values in optimiser.state.items():
        for key, value in values.items():
            if value.shape == parameter.shape:  # in the memory order of the parameter
                values[key] = torch.empty_like(parameter).copy_(value)


def restore_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back the weights that were taken from a model of the same settings."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise _misfit(error) from None


def _misfit(error: Exception) -> UserError:
    reason = str(error).strip().splitlines()[-1].strip()
    return UserError(
        f"{FOLDER}: does not fit this training ({reason}); train again in another folder"
    )


def save_best(
    folder: RunFolder, model: Mapping[str, Tensor], records: list[PrototypeSource], note: str
) -> None:
    """Keep a candidate: a model that has just been projected and fitted, with its prototypes' sources."""
    reached("best")
    text = json.dumps(records)
    metadata = {"records": text, "note": note, "checksum": str(checksum(model, text))}
    folder.write_tensors(BEST, dict(model), metadata)


def load_best(folder: RunFolder) -> tuple[dict[str, Tensor], list[PrototypeSource], str]:
    """The best candidate so far, its prototypes' sources, and the note on it."""
    tensors, metadata = folder.read_tensors(BEST)
    try:
        if str(checksum(tensors, metadata["records"])) != metadata["checksum"]:
            raise ValueError("checksum mismatch")
        return tensors, read_sources(metadata["records"]), metadata["note"]
    except (KeyError, ValueError) as error:
        raise UserError(
            f"{folder / BEST}: damaged ({_reason(error)}); train again in another folder"
        ) from None


def checksum(tensors: Mapping[str, Tensor], text: str = "") -> int:
    """CRC-32 over a text, names and values, to tell a damaged file from an intact one."""
    value = zlib.crc32(text.encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(name.encode(), value)
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        value = zlib.crc32(plain.view(torch.uint8).numpy().data if plain.numel() else b"", value)
    return value


def _read(folder: RunFolder, number: int) -> Restored:
    tensors, metadata = folder.read_tensors(f"{FOLDER}/{number:08d}.safetensors")
    if str(checksum(tensors, metadata["state"])) != metadata["checksum"]:
        raise ValueError("checksum mismatch")
    state = State.from_json(metadata["state"])
    return Restored(number, state, _part(tensors, "model/"), _part(tensors, "optimiser/"))


def _reason(error: Exception) -> str:
    return first_problem(error) if isinstance(error, ValidationError) else str(error)


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): value for k, value in tensors.items() if k.startswith(prefix)}


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"optimiser/{number}/{key}": torch.as_tensor(value)
        for number, values in optimiser.state_dict()["state"].items()
        for key, value in values.items()
    }


def _numbers(folder: RunFolder) -> list[int]:
    if not is_folder(folder / FOLDER):  # also for a name that no folder can have
        return []
    names = (folder / FOLDER).glob("*.safetensors")
    return sorted(int(path.stem) for path in names if path.stem.isdigit())
