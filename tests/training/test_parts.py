"""Which parameters learn, and in which mode each part runs."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import nn

from protopyramid.config.schema import TrainPhaseConfig
from protopyramid.errors import UserError
from protopyramid.model import build_model
from protopyramid.model.network import PrototypeNetwork
from protopyramid.training.parts import (
    frozen_cut,
    make_optimiser,
    part_parameters,
    set_learning,
    set_modes,
    set_rates,
)

from ..harness import tiny


@pytest.fixture(scope="module")
def model() -> PrototypeNetwork:
    return build_model(tiny())


@pytest.mark.parametrize(
    ("learns", "cut"),
    [
        (["neck", "prototypes", "head"], 5),
        (["backbone"], 0),
        (["backbone.1"], 0),
        (["backbone.5"], 4),
        (["head", "backbone.5", "backbone.4"], 3),
        (["backbone.3", "backbone.5"], 2),
        (["head", "backbone", "backbone.5"], 0),
    ],
)
def test_the_cut_is_the_last_block_before_which_nothing_learns(
    model: PrototypeNetwork, learns: list[str], cut: int
) -> None:
    assert frozen_cut(model, learns) == cut


def test_parts_together_are_the_whole_model(model: PrototypeNetwork) -> None:
    parts = part_parameters(model, ["backbone", "neck", "prototypes", "head"])
    found = [id(p) for parameters in parts.values() for p in parameters]
    assert sorted(found) == sorted(id(p) for p in model.parameters())
    blocks = [f"backbone.{number}" for number in range(1, 6)]
    (one_by_one,) = part_parameters(model, blocks).values()
    assert [id(p) for p in one_by_one] == [id(p) for p in parts["backbone"]]


def test_only_what_is_named_learns(model: PrototypeNetwork) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    set_learning(model, ["neck", "backbone.5"])
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    last = {id(p) for p in model.backbone.block(5).parameters()}
    expected = {
        name for name, p in model.named_parameters() if name.startswith("neck.") or id(p) in last
    }
    assert learning == expected
    assert all(p.grad is None for p in model.parameters())


def test_frozen_batch_norm_is_in_evaluation_mode(model: PrototypeNetwork) -> None:
    def modes(number: int) -> set[bool]:
        norms = [m for m in model.backbone.block(number) if isinstance(m, nn.BatchNorm2d)]
        return {norm.training for norm in norms}

    set_modes(model, ["backbone.4", "backbone.5", "neck"])
    assert [modes(number) for number in range(1, 6)] == [{False}] * 3 + [{True}] * 2
    set_modes(model, ["neck"])
    assert [modes(number) for number in range(1, 6)] == [{False}] * 5
    assert model.neck.training
    set_modes(model, ["backbone"])
    assert [modes(number) for number in range(1, 6)] == [{True}] * 5


def test_the_pyramids_batch_norm_is_frozen_with_it() -> None:
    model = build_model(tiny(model__neck__batch_norm=True))
    for learns, training in (
        (["neck"], True),
        (["head"], False),
        (["backbone"], False),
        (["backbone.5", "prototypes"], False),
        (["backbone", "neck"], True),
    ):
        set_modes(model, learns)
        norms = [m for m in model.neck.modules() if isinstance(m, nn.BatchNorm2d)]
        assert {norm.training for norm in norms} == {training}, learns


def test_each_part_has_its_rate_and_prototypes_do_not_decay(model: PrototypeNetwork) -> None:
    step = TrainPhaseConfig(
        learns=["backbone.5", "neck", "prototypes", "head"],
        learning_rates={"backbone": 1e-4, "prototypes": 3e-3},
        learning_rate=1e-2,
        weight_decay=0.5,
    )
    optimiser = make_optimiser(set_learning(model, step.learns), step)
    rates = {group["part"]: group["lr"] for group in optimiser.param_groups}
    assert rates == {"backbone": 1e-4, "neck": 1e-2, "prototypes": 3e-3, "head": 1e-2}
    decays = {group["part"]: group["weight_decay"] for group in optimiser.param_groups}
    assert decays == {"backbone": 0.5, "neck": 0.5, "prototypes": 0.0, "head": 0.5}
    set_rates(optimiser, 0.5)
    set_rates(optimiser, 0.1)
    halved = {group["part"]: group["lr"] for group in optimiser.param_groups}
    assert halved == pytest.approx({part: 0.1 * rate for part, rate in rates.items()})


def test_a_backbone_without_cuts_learns_as_a_whole_or_not_at_all(model: PrototypeNetwork) -> None:
    cuts, model.backbone.cuts = model.backbone.cuts, (0, 5)
    try:
        with pytest.raises(UserError, match="learns as a whole or not at all"):
            frozen_cut(model, ["backbone.4"])
        assert frozen_cut(model, ["backbone"]) == 0
        assert frozen_cut(model, ["neck"]) == 5
    finally:
        model.backbone.cuts = cuts


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_weight_decay_is_coupled_in_adam_and_decoupled_in_adamw(
    kind: Literal["adam", "adamw"],
) -> None:
    """Two steps by the published formulae: in Adam, the decay passes through the moments."""
    rate, decay = 1e-2, 0.3
    weights, start = [0.7, -1.3, 0.02], torch.tensor([0.7, -1.3, 0.02], dtype=torch.float64)
    slopes = [[0.1, -0.2, 0.0], [0.3, 0.1, -0.4]]
    parameter, point = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    step = TrainPhaseConfig(learning_rate=rate, weight_decay=decay)
    optimiser = make_optimiser({"neck": [parameter], "prototypes": [point]}, step, kind)
    for slope in slopes:
        parameter.grad = point.grad = torch.tensor(slope, dtype=torch.float64)
        optimiser.step()

    def naive(weight: float, column: int, decay: float) -> float:
        first = second = 0.0
        for t, row in enumerate(slopes, start=1):
            slope = row[column] + (decay * weight if kind == "adam" else 0.0)
            first = 0.9 * first + 0.1 * slope
            second = 0.999 * second + 0.001 * slope**2
            move = first / (1 - 0.9**t) / ((second / (1 - 0.999**t)) ** 0.5 + 1e-8)
            shrunk = weight if kind == "adam" else weight * (1 - rate * decay)
            weight = shrunk - rate * move
        return weight

    assert parameter.tolist() == pytest.approx([naive(w, j, decay) for j, w in enumerate(weights)])
    assert point.tolist() == pytest.approx([naive(w, j, 0.0) for j, w in enumerate(weights)])
