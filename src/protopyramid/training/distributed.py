"""One process or many: starting them, sharing work among them, gathering results."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from protopyramid.errors import UserError

T = TypeVar("T")

FAST_BF16 = ("AVX512", "SVE256")  # CPU capabilities, in torch's words, that may have native bf16


class ErrorElsewhere(Exception):
    """Rank zero met an error of the user and reports it; this process ends silently."""


def start_fabric(devices: int, precision: str, accelerator: str = "auto") -> Fabric:
    """The processes of this training: those that torchrun started, or `devices` of our own."""
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    nodes = 1
    if "LOCAL_WORLD_SIZE" in os.environ and "WORLD_SIZE" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = max(1, int(os.environ["WORLD_SIZE"]) // devices)
    strategy = "ddp" if devices * nodes > 1 else "auto"
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            precision=precision,  # type: ignore[arg-type]
        )
    except (ValueError, RuntimeError) as error:  # fabric's own errors are RuntimeErrors too
        reason = " ".join(str(error).split())
        raise UserError(
            f"--devices {devices} --accelerator {accelerator}: not available on this machine ({reason})"
        ) from error
    fabric.launch()
    if fabric.device.type == "cpu" and fabric.is_global_zero:  # one warning is enough
        warn_of_slow_precision(precision)
    return fabric


def warn_of_slow_precision(precision: str) -> None:
    """Warn where the CPU has to emulate a precision, which is many times slower."""
    kind = torch.backends.cpu.get_cpu_capability()
    if precision != "32-true" and kind not in FAST_BF16:
        warnings.warn(
            f"train.precision = {precision}: this CPU ({kind}) has to emulate it, which can be tens of "
            "times slower; 32-true is faster here",
            stacklevel=3,
        )


def is_rank_zero() -> bool:
    """Whether this process is the one that writes files and prints; true without other processes."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def rank_share(fabric: Fabric, parts: Sequence[T]) -> list[T]:
    """The parts that this process works on, every world_size-th one.

    Parts are never divided, so that one process and many compute the very same numbers.
    """
    return list(parts[fabric.global_rank :: fabric.world_size])


def node_share(fabric: Fabric, parts: Sequence[T]) -> list[T]:
    """As `rank_share`, but among the processes of this machine only."""
    return list(parts[fabric.local_rank :: getattr(fabric.strategy, "num_processes", 1)])


def gather(fabric: Fabric, value: T) -> list[T]:
    """The values of all processes, in the order of their ranks.

    With several processes, all tensors are on the CPU.
    """
    if fabric.world_size == 1:
        return [value]
    values: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(values, to_device(value, "cpu"))
    return values


def to_device(value: T, device: str | torch.device) -> T:
    """The same value with all its tensors on a device; looks into tuples, lists, dicts and dataclasses."""
    moved: Any = value
    if isinstance(value, Tensor):
        moved = value.to(device)
    elif isinstance(value, dict):
        moved = {key: to_device(each, device) for key, each in value.items()}
    elif isinstance(value, tuple | list):
        parts = [to_device(each, device) for each in value]
        moved = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif is_dataclass(value) and not isinstance(value, type):
        columns = {field.name: getattr(value, field.name) for field in fields(value)}
        moved = replace(value, **to_device(columns, device))
    return moved  # type: ignore[no-any-return]


def all_reduce_max(fabric: Fabric, flag: int) -> int:
    """The largest flag of all processes, so that all of them take the same branch."""
    if fabric.world_size == 1:
        return flag
    flags = torch.tensor([flag], device=fabric.device)
    torch.distributed.all_reduce(flags, torch.distributed.ReduceOp.MAX)
    return int(flags)


def on_rank_zero(fabric: Fabric, work: Callable[[], T]) -> T:
    """Call `work` on rank zero alone, and return its result on every rank.

    A `UserError` on rank zero is raised there; the other ranks raise `ErrorElsewhere`.
    """
    if fabric.world_size == 1:
        return work()
    failure: UserError | None = None
    outcome: list[Any] = [None, False]
    if fabric.is_global_zero:
        try:
            outcome[0] = work()
        except UserError as error:
            failure, outcome[1] = error, True
    torch.distributed.broadcast_object_list(outcome, src=0)
    if failure is not None:
        raise failure
    if outcome[1]:
        raise ErrorElsewhere
    result: T = outcome[0]
    return result


@torch.no_grad()
def broadcast_model(fabric: Fabric, model: nn.Module, buffers_only: bool = False) -> None:
    """Copy the model of rank zero to all ranks, in place.

    `buffers_only` is enough after training: gradients are averaged over the processes, batch statistics
    are not.
    """
    if fabric.world_size == 1:
        return
    parameters = [] if buffers_only else list(model.parameters())
    for tensor in [*parameters, *model.buffers()]:
        whole = tensor.detach().contiguous()
        torch.distributed.broadcast(whole, src=0)
        tensor.copy_(whole)
