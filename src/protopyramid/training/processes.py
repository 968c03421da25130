"""One process or many: starting them, sharing out batches, bringing results together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from lightning_fabric import Fabric

T = TypeVar("T")


def start_fabric(devices: int, precision: str, accelerator: str = "auto") -> Fabric:
    """The processes of this training: those that torchrun started, or `devices` of our own."""
    nodes = 1
    if "LOCAL_WORLD_SIZE" in os.environ and "WORLD_SIZE" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = max(1, int(os.environ["WORLD_SIZE"]) // devices)
    strategy = "ddp" if devices * nodes > 1 else "auto"
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy=strategy,
        precision=precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric


def own_share(fabric: Fabric, parts: Sequence[T]) -> list[T]:
    """The parts that this process works on. Whole parts are dealt out, so that one process and many
    compute the very same numbers."""
    return list(parts[fabric.global_rank :: fabric.world_size])


def gather(fabric: Fabric, value: T) -> list[T]:
    """The values of all processes, in the order of their ranks."""
    if fabric.world_size == 1:
        return [value]
    values: list[Any] = [None] * fabric.world_size
    torch.distributed.all_gather_object(values, value)
    return values


def any_process(fabric: Fabric, flag: int) -> int:
    """The largest flag of all processes, so that all of them stop at the same batch."""
    return max(gather(fabric, flag))
