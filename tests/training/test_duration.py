"""The expected duration: work that is counted by hand, and a clock that is moved by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from protopyramid.data.manifest import read_manifest
from protopyramid.model import build_model
from protopyramid.runs.folder import RunFolder
from protopyramid.training.distributed import start_fabric
from protopyramid.training.duration import (
    NetworkCost,
    PhaseCost,
    Timetable,
    estimate_lines,
    network_cost,
    phase_costs,
)
from protopyramid.training.schedule import make_plan
from protopyramid.training.trainer import Trainer
from protopyramid.utils.faults import observed_by

from ..harness import PARTS, tiny

FINISH = [{"step": "project"}, {"step": "fit-head"}]


def test_multiply_adds_are_those_of_the_convolutions() -> None:
    """VGG-16 at width 1/16: channels 4 4 | 8 8 | 16 16 16 | 32 32 32 | 32 32 32 on 32 px."""
    config = tiny("vgg16")
    model = build_model(config).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    cost = network_cost(model, 32)
    pairs = {
        1: [(3, 4), (4, 4)],
        2: [(4, 8), (8, 8)],
        3: [(8, 16), (16, 16), (16, 16)],
        4: [(16, 32), (32, 32), (32, 32)],
        5: [(32, 32)] * 3,
    }
    sides = {1: 32, 2: 16, 3: 8, 4: 4, 5: 2}
    total = 0
    for block, convolutions in pairs.items():
        total += sum(9 * a * b * sides[block] ** 2 for a, b in convolutions)
        assert cost.backbone[block] == total
    assert cost.rest == 32 * 4  # the head
    assert model.training and all(module.training for module in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_cut_divides_the_work() -> None:
    cost = NetworkCost({0: 0.0, 3: 30.0, 5: 100.0}, rest=7.0)
    assert [cost.frozen(cut) for cut in (0, 3, 5)] == [0, 30, 100]
    assert [cost.after(cut) for cut in (0, 3, 5)] == [107, 77, 7]


def costs(*phases: dict[str, Any], **options: Any) -> tuple[list[PhaseCost], NetworkCost]:
    config = tiny(train__schedule=[*phases, *FINISH], **options)
    model = build_model(config)
    plan = make_plan(config.train)
    return phase_costs(plan, model, config, 100, 10), network_cost(model, 32)


def test_an_uncached_phase_passes_the_whole_network_and_goes_back_through_what_learns() -> None:
    (train, project, fit), network = costs({"step": "train", "learns": PARTS, "epochs": 3})
    whole, learns = network.after(0), network.after(5)
    assert train.preparation == 0
    assert train.work == pytest.approx(3 * (100 * (whole + 2 * learns) + 10 * whole))
    assert project.work == pytest.approx(120 * whole)
    assert fit.work == pytest.approx(110 * whole)


def test_a_cached_phase_passes_the_frozen_part_once_for_every_copy() -> None:
    phase = {"step": "train", "learns": PARTS, "epochs": 3, "views": 4}
    (first, second, project, _), network = costs(phase, phase)
    learns = network.after(5)
    assert first.preparation == pytest.approx((5 * 100 + 10) * network.frozen(5))
    assert first.work == pytest.approx(3 * (300 + 10) * learns)
    assert second == PhaseCost(0.0, first.work)  # its cache is open already
    assert project.work == pytest.approx(120 * learns)
    (uncached, *_), _ = costs(phase, train__cache__enabled=False)
    assert uncached.preparation == 0 and uncached.work > first.work


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_the_time_left_is_the_work_left_at_the_pace_so_far() -> None:
    clock = Clock()
    table = Timetable([PhaseCost(9, 40), PhaseCost(5, 20), PhaseCost(0, 10)], clock)
    assert table.left == table.left_of_phase == 0
    clock.now += 1000  # a cache is built: not part of the pace
    table.start(0)
    clock.now += 20
    table.advance(0.25)  # 10 units in 20 s
    assert table.left_of_phase == pytest.approx(60)
    assert table.left == pytest.approx(60 + 2 * 35)
    clock.now += 20
    table.advance(1.0)  # 40 units in 40 s
    assert table.left_of_phase == 0
    assert table.left == pytest.approx(35)
    table.start(1)
    assert table.left == pytest.approx(10)  # nothing is known of this phase yet
    clock.now += 20
    table.advance(0.5)  # 10 units in 20 s, 50 in 60 s over all
    assert table.left_of_phase == pytest.approx(20)
    assert table.left == pytest.approx(20 + 10 * 60 / 50)


def test_a_resumed_phase_is_timed_from_where_it_continues() -> None:
    clock = Clock()
    table = Timetable([PhaseCost(0, 100)], clock)
    table.start(0, 0.5)
    clock.now += 10
    table.advance(0.75)
    assert table.left == pytest.approx(10)


@pytest.mark.parametrize(
    ("seconds", "on_cpu", "lines"), [(3500, True, 1), (3700, True, 2), (3700, False, 1)]
)
def test_more_than_an_hour_on_a_cpu_is_told_with_what_helps(
    seconds: float, on_cpu: bool, lines: int
) -> None:
    found = estimate_lines(seconds, on_cpu)
    assert len(found) == lines
    if lines == 2:
        for word in ("train.scale", "model.backbone.width", "cached features", "GPU"):
            assert word in found[1]


def test_a_slow_training_estimates_its_duration_once_after_the_first_optimiser_steps(
    phantoms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each optimiser step takes ten minutes by the trainer's clock."""
    clock = Clock()

    def ten_minutes(point: str) -> None:
        clock.now += 600 * (point == "batch")

    phase = {"step": "train", "name": "A", "learns": PARTS, "epochs": 2, "views": 1}
    config = tiny(train__schedule=[phase, *FINISH], train__batch_size=4)
    folder, fabric = RunFolder(tmp_path / "run"), start_fabric(1, "32-true", "cpu")
    with observed_by(ten_minutes):
        Trainer(config, read_manifest(phantoms), folder, fabric, clock=clock).run(resume=False)
    lines = capsys.readouterr().err.splitlines()
    (estimate,) = [line for line in lines if line.startswith("the schedule will take about")]
    # Eight more optimiser steps are 80 minutes; projection and head fit come on top of that.
    hours = re.fullmatch(r"the schedule will take about (\d) h .*more", estimate)
    assert hours and 1 <= int(hours[1]) <= 3
    (advice,) = [line for line in lines if "slow on a CPU" in line]
    assert "train.scale" in advice
    steps = [line for line in lines if line.startswith("phase A, epoch 1: ")]
    assert "1 of 6 batches (17 %), about 50 min left; cross entropy" in steps[0]
    assert lines.index(steps[3]) < lines.index(estimate) < lines.index(steps[4])
    epochs = [line for line in lines if line.startswith("phase A  epoch ")]
    assert "left: about 1 h of this phase" in epochs[0]
