"""One process or many: starting them, sharing out batches, bringing results together."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn

from protopyramid.errors import UserError

T = TypeVar("T")

FAST_BF16 = ("AVX512", "SVE256")  # what torch calls the processors that may have bf16 of their own


class ErrorElsewhere(Exception):
    """The first process has met a mistake of the user and tells of it; this one ends in silence."""


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
            f"--devices {devices} --accelerator {accelerator}: cannot be had here ({reason})"
        ) from error
    fabric.launch()
    if fabric.device.type == "cpu" and fabric.is_global_zero:  # said once
        warn_of_slow_precision(precision)
    return fabric


def warn_of_slow_precision(precision: str) -> None:
    """Say so where the processor has to imitate an arithmetic: that is many times slower."""
    kind = torch.backends.cpu.get_cpu_capability()
    if precision != "32-true" and kind not in FAST_BF16:
        warnings.warn(
            f"train.precision = {precision}: this processor ({kind}) has no such arithmetic and can be "
            "tens of times slower with it; 32-true is faster here",
            stacklevel=3,
        )


def is_rank_zero() -> bool:
    """Whether this process is the one that writes and speaks."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def rank_share(fabric: Fabric, parts: Sequence[T]) -> list[T]:
    """The parts that this process works on. Whole parts are dealt out, so that one process and many
    compute the very same numbers."""
    return list(parts[fabric.global_rank :: fabric.world_size])


def node_share(fabric: Fabric, parts: Sequence[T]) -> list[T]:
    """As `own_share`, among the processes of this machine alone."""
    return list(parts[fabric.local_rank :: getattr(fabric.strategy, "num_processes", 1)])


def gather(fabric: Fabric, value: T) -> list[T]:
    """The values of all processes, in the order of their ranks, their tensors on the CPU."""
    if fabric.world_size == 1:
        return [value]
    values: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(values, to_device(value, "cpu"))
    return values


def to_device(value: T, device: str | torch.device) -> T:
    """The same with all its tensors on a device; looks into lists, dicts and dataclasses."""
    moved: T = apply_to_collection(value, Tensor, lambda tensor: tensor.to(device))
    return moved


def all_reduce_max(fabric: Fabric, flag: int) -> int:
    """The largest flag of all processes, so that all of them take the same way."""
    if fabric.world_size == 1:
        return flag
    flags = torch.tensor([flag], device=fabric.device)
    torch.distributed.all_reduce(flags, torch.distributed.ReduceOp.MAX)
    return int(flags)


def on_rank_zero(fabric: Fabric, work: Callable[[], T]) -> T:
    """What `work` gives in the first process, in all of them.

    A mistake of the user that it meets ends them all, and the first tells of it.
    """
    if fabric.world_size == 1:
        return work()
    mistake: UserError | None = None
    outcome: list[Any] = [None, False]
    if fabric.is_global_zero:
        try:
            outcome[0] = work()
        except UserError as error:
            mistake, outcome[1] = error, True
    torch.distributed.broadcast_object_list(outcome, src=0)
    if mistake is not None:
        raise mistake
    if outcome[1]:
        raise ErrorElsewhere
    result: T = outcome[0]
    return result


@torch.no_grad()
def broadcast_model(fabric: Fabric, model: nn.Module, buffers_only: bool = False) -> None:
    """Give the model of the first process to all.

    Gradients are shared but batch statistics are not: after training, the buffers differ.
    """
    if fabric.world_size == 1:
        return
    parameters = [] if buffers_only else list(model.parameters())
    for tensor in [*parameters, *model.buffers()]:
        whole = tensor.detach().contiguous()
        torch.distributed.broadcast(whole, src=0)
        tensor.copy_(whole)
