"""Parts of the network: what learns in a phase, and where the frozen beginning of the backbone ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn

from protopyramid.config.schema import MAX_BLOCKS, TrainPhaseConfig
from protopyramid.errors import UserError
from protopyramid.model.network import PrototypeNetwork

BLOCKS = tuple(range(1, MAX_BLOCKS + 1))


def learning_blocks(model: PrototypeNetwork, learns: Sequence[str]) -> tuple[int, ...]:
    """The blocks of the backbone that learn."""
    if "backbone" in learns:
        return BLOCKS
    blocks = tuple(number for number in BLOCKS if f"backbone.{number}" in learns)
    if blocks and blocks[0] - 1 not in model.backbone.cuts:
        raise UserError(
            f"train.schedule: this backbone learns as a whole or not at all, got learns = {list(learns)}; "
            'use "backbone" instead of single blocks'
        )
    return blocks


def frozen_blocks(learns: Sequence[str]) -> tuple[int, ...]:
    """The blocks of the backbone below the first that learns; all where none does."""
    if "backbone" in learns:
        return ()
    first = next((number for number in BLOCKS if f"backbone.{number}" in learns), BLOCKS[-1] + 1)
    return BLOCKS[: first - 1]


def frozen_cut(model: PrototypeNetwork, learns: Sequence[str]) -> int:
    """The last frozen block: 5 where the whole backbone is frozen, 0 where its first block learns."""
    learning_blocks(model, learns)  # refuses single blocks of a backbone that has none
    return len(frozen_blocks(learns))


def part_parameters(
    model: PrototypeNetwork, learns: Sequence[str]
) -> dict[str, list[nn.Parameter]]:
    """The learning parameters of each part, by part name."""
    found: dict[str, list[nn.Parameter]] = {}
    blocks = learning_blocks(model, learns)
    if blocks == BLOCKS:
        found["backbone"] = list(model.backbone.parameters())
    elif blocks:
        found["backbone"] = [
            p for number in blocks for p in model.backbone.block(number).parameters()
        ]
    if "neck" in learns:
        found["neck"] = list(model.neck.parameters())
    if "prototypes" in learns and model.prototypes is not None:
        found["prototypes"] = list(model.prototypes.parameters())
    if "head" in learns:
        hidden = [] if model.hidden is None else list(model.hidden.parameters())
        found["head"] = [*hidden, *model.head.parameters()]
    return {part: parameters for part, parameters in found.items() if parameters}


def set_learning(model: PrototypeNetwork, learns: Sequence[str]) -> dict[str, list[nn.Parameter]]:
    """Let the named parts learn and freeze the rest; returns the learning parameters by part."""
    chosen = part_parameters(model, learns)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    for parameters in chosen.values():
        for parameter in parameters:
            parameter.requires_grad_(True)
    return chosen


def set_modes(model: PrototypeNetwork, learns: Sequence[str]) -> None:
    """Training mode for what learns, evaluation mode for what is frozen (batch norm must not drift)."""
    model.train()
    if "neck" not in learns:
        model.neck.eval()
    if "head" not in learns and model.hidden is not None:
        model.hidden.eval()  # dropout is for what learns
    blocks = learning_blocks(model, learns)
    if not blocks:
        model.backbone.eval()
        return
    for number in BLOCKS:
        if number not in blocks:
            model.backbone.block(number).eval()


def make_optimiser(
    chosen: dict[str, list[nn.Parameter]],
    phase: TrainPhaseConfig,
    kind: Literal["adamw", "adam"] = "adamw",
) -> torch.optim.Optimizer:
    """AdamW or Adam with a rate for each part.

    AdamW shrinks weights beside the step; Adam, as in the ancestors' code, adds the weight decay to the
    gradient. Prototypes are points in space, so they have none.
    """
    groups = [
        {
            "params": parameters,
            "lr": phase.learning_rates.get(part, phase.learning_rate),
            "weight_decay": 0.0 if part == "prototypes" else phase.weight_decay,
            "part": part,
        }
        for part, parameters in chosen.items()
    ]
    for group in groups:
        group["first_lr"] = group["lr"]
    return torch.optim.Adam(groups) if kind == "adam" else torch.optim.AdamW(groups)


def set_rates(optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rate of every part to its first one times a factor."""
    for group in optimiser.param_groups:
        group["lr"] = group["first_lr"] * factor
