"""The plan: a schedule written out step by step, with its numbers of epochs and learning rates."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from protopyramid.config.schema import (
    FitHeadPhaseConfig,
    ProjectPhaseConfig,
    TrainConfig,
    TrainPhaseConfig,
    unrolled,
)


@dataclass(frozen=True)
class Phase:
    """One step of the plan.

    `epochs` is 0 for steps that do not train. `first_epoch` numbers its first epoch over the whole
    run; `before` and `total` count the epochs of its name before it and in all, for the decay.
    """

    number: int
    step: TrainPhaseConfig | ProjectPhaseConfig | FitHeadPhaseConfig
    epochs: int = 0
    first_epoch: int = 0
    before: int = 0
    total: int = 0

    @property
    def name(self) -> str:
        """What logs call it."""
        return self.step.name if isinstance(self.step, TrainPhaseConfig) else self.step.step


def make_plan(settings: TrainConfig) -> list[Phase]:
    """The stages of a schedule, repeats written out and epochs scaled."""
    steps = list(unrolled(settings.schedule))
    totals: Counter[str] = Counter()
    for step in steps:
        if isinstance(step, TrainPhaseConfig):
            totals[step.name] += scaled(step.epochs, settings.scale)
    plan, done, first = [], Counter[str](), 0
    for number, step in enumerate(steps):
        if not isinstance(step, TrainPhaseConfig):
            plan.append(Phase(number, step, first_epoch=first))
            continue
        epochs = scaled(step.epochs, settings.scale)
        plan.append(Phase(number, step, epochs, first, done[step.name], totals[step.name]))
        done[step.name] += epochs
        first += epochs
    return plan


def scaled(epochs: float, scale: float) -> int:
    """Whole epochs after scaling, at least one.

    >>> scaled(10, 0.25), scaled(1, 0.01)
    (2, 1)
    """
    return max(1, round(epochs * scale))


def rate_factor(stage: Phase, epoch: float, scale: float) -> float:
    """What multiplies the learning rates `epoch` epochs into a stage (fractions count).

    The decay goes on over all stages of the same name; the warm-up belongs to each stage.
    """
    step = stage.step
    if not isinstance(step, TrainPhaseConfig):
        raise ValueError(f"expected a train step, got {step.step}")
    warmup = step.warmup * scale
    rise = min(1.0, (epoch + 1e-9) / warmup) if warmup else 1.0
    gone = stage.before + epoch
    if step.decay == "step":
        return rise * step.decay_factor ** math.floor(gone / (step.decay_every * scale) + 1e-9)
    if step.decay == "cosine":
        floor = step.decay_factor
        return rise * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * gone / stage.total)))
    return rise
