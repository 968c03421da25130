"""The plan of a schedule: epochs, repeats and learning rates."""

from __future__ import annotations

import math

import pytest

from protopyramid.config.schema import TrainConfig
from protopyramid.training.schedule import Phase, make_plan, rate_factor


def plan(*steps: dict[str, object], scale: float = 1.0) -> list[Phase]:
    return make_plan(TrainConfig.model_validate({"schedule": list(steps), "scale": scale}))


def train(name: str = "A", epochs: float = 4, **options: object) -> dict[str, object]:
    return {"step": "train", "name": name, "epochs": epochs, **options}


def repeat(times: int, *steps: dict[str, object]) -> dict[str, object]:
    return {"step": "repeat", "times": times, "steps": list(steps)}


PROJECT, FIT = {"step": "project"}, {"step": "fit-head"}


def test_repeats_are_written_out_and_epochs_numbered_over_the_run() -> None:
    phases = plan(train("A", 2), PROJECT, repeat(2, train("C", 3), PROJECT, FIT))
    names = ["A", "project", "C", "project", "fit-head", "C", "project", "fit-head"]
    assert [phase.name for phase in phases] == names
    assert [phase.number for phase in phases] == list(range(8))
    assert [phase.epochs for phase in phases] == [2, 0, 3, 0, 0, 3, 0, 0]
    trained = [phase for phase in phases if phase.epochs]
    assert [phase.first_epoch for phase in trained] == [0, 2, 5]
    assert [(phase.before, phase.total) for phase in trained] == [(0, 2), (0, 6), (3, 6)]


@pytest.mark.parametrize(
    ("epochs", "scale", "expected"), [(10, 0.25, 2), (10, 2, 20), (1, 0.01, 1), (3, 0.5, 2)]
)
def test_one_number_scales_every_phase(epochs: float, scale: float, expected: int) -> None:
    assert plan(train(epochs=epochs), scale=scale)[0].epochs == expected


def test_constant_rates_stay() -> None:
    (phase,) = plan(train())
    assert [rate_factor(phase, epoch, 1.0) for epoch in (0, 1.5, 3.9)] == [1, 1, 1]


def test_warm_up_rises_from_zero_in_its_epochs() -> None:
    (phase,) = plan(train(warmup=2))
    assert rate_factor(phase, 0, 1.0) == pytest.approx(0, abs=1e-8)
    assert rate_factor(phase, 0.5, 1.0) == pytest.approx(0.25)
    assert rate_factor(phase, 2, 1.0) == 1
    (half,) = plan(train(warmup=2), scale=0.5)
    assert rate_factor(half, 0.5, 0.5) == pytest.approx(0.5)


def test_cosine_goes_from_one_to_its_factor() -> None:
    (phase,) = plan(train(epochs=8, decay="cosine", decay_factor=0.1))
    for epoch in (0, 1, 4, 6.5, 8):
        expected = 0.1 + 0.9 * (1 + math.cos(math.pi * epoch / 8)) / 2
        assert rate_factor(phase, epoch, 1.0) == pytest.approx(expected)
    assert rate_factor(phase, 8, 1.0) == pytest.approx(0.1)


def test_steps_fall_by_their_factor() -> None:
    (phase,) = plan(train(epochs=12, decay="step", decay_every=5, decay_factor=0.1))
    found = [rate_factor(phase, epoch, 1.0) for epoch in (0, 4.99, 5, 9.9, 10)]
    assert found == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    (scaled,) = plan(train(epochs=12, decay="step", decay_every=5), scale=0.2)
    assert rate_factor(scaled, 1, 0.2) == pytest.approx(0.1)


def test_decay_continues_over_the_phases_of_one_name() -> None:
    phases = plan(repeat(3, train("C", 2, decay="cosine", decay_factor=1e-12), PROJECT))
    trained = [phase for phase in phases if phase.epochs]
    for number, phase in enumerate(trained):
        expected = (1 + math.cos(math.pi * (2 * number + 1) / 6)) / 2
        assert rate_factor(phase, 1, 1.0) == pytest.approx(expected)
    mixed = plan(train("A", 2, decay="cosine"), train("C", 2, decay="cosine"))
    assert rate_factor(mixed[1], 0, 1.0) == 1


def test_a_phase_that_does_not_train_has_no_rate() -> None:
    with pytest.raises(ValueError, match="expected a train phase, got project"):
        rate_factor(plan(train(), PROJECT)[1], 0, 1.0)
