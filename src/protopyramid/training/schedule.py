"""The plan: a schedule written out phase by phase, with its numbers of epochs and learning rates."""

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
    """One phase of the plan: training, projection or the fit of the head.

    `epochs` is 0 for phases that do not train. `first_epoch` numbers its first epoch over the whole
    run; `before` and `total` count the epochs of its name before it and in all, for the decay.
    """

    number: int
    config: TrainPhaseConfig | ProjectPhaseConfig | FitHeadPhaseConfig
    epochs: int = 0
    first_epoch: int = 0
    before: int = 0
    total: int = 0

    @property
    def name(self) -> str:
        """What logs call it."""
        return self.config.name if isinstance(self.config, TrainPhaseConfig) else self.config.step


def make_plan(settings: TrainConfig) -> list[Phase]:
    """The phases of a schedule, repeats written out and epochs scaled."""
    configs = list(unrolled(settings.schedule))
    totals: Counter[str] = Counter()
    for config in configs:
        if isinstance(config, TrainPhaseConfig):
            totals[config.name] += scaled(config.epochs, settings.scale)
    plan, done, first = [], Counter[str](), 0
    for number, config in enumerate(configs):
        if not isinstance(config, TrainPhaseConfig):
            plan.append(Phase(number, config, first_epoch=first))
            continue
        epochs = scaled(config.epochs, settings.scale)
        plan.append(Phase(number, config, epochs, first, done[config.name], totals[config.name]))
        done[config.name] += epochs
        first += epochs
    return plan


def scaled(epochs: float, scale: float) -> int:
    """Whole epochs after scaling, at least one.

    >>> scaled(10, 0.25), scaled(1, 0.01)
    (2, 1)
    """
    return max(1, round(epochs * scale))


def rate_factor(phase: Phase, epoch: float, scale: float) -> float:
    """What multiplies the learning rates `epoch` epochs into a phase (fractions count).

    The decay continues over all phases of the same name; each phase has its own warm-up.
    """
    config = phase.config
    if not isinstance(config, TrainPhaseConfig):
        raise ValueError(f"expected a train phase, got {config.step}")
    warmup = config.warmup * scale
    rise = min(1.0, (epoch + 1e-9) / warmup) if warmup else 1.0
    gone = phase.before + epoch
    if config.decay == "step":
        return rise * config.decay_factor ** math.floor(gone / (config.decay_every * scale) + 1e-9)
    if config.decay == "cosine":
        floor = config.decay_factor
        return rise * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * gone / phase.total)))
    return rise
