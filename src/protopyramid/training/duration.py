"""How long a training will take: the work of each phase, counted, times the pace so far, measured.

The work is counted in multiply-adds of convolutions and linear layers: a phase with a frozen, cached
backbone may be ten times faster than the next one without, so epochs do not measure time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from protopyramid.config.schema import Config, FitHeadPhaseConfig, TrainPhaseConfig
from protopyramid.inference.batches import device_of
from protopyramid.model.backbones import IMAGE
from protopyramid.model.network import PrototypeNetwork
from protopyramid.training.caching import is_cached
from protopyramid.training.parts import frozen_cut
from protopyramid.training.schedule import Phase
from protopyramid.utils.progress import duration

BACKWARD = 2.0  # a backward pass, in forward passes of what learns
HOUR = 3600.0


@dataclass(frozen=True)
class NetworkCost:
    """Multiply-adds of one image: `backbone` up to each cut {cut: cost}, from 0; `rest`: neck and after."""

    backbone: Mapping[int, float]
    rest: float

    def frozen(self, cut: int) -> float:
        """Of the backbone up to a cut."""
        return self.backbone[cut]

    def after(self, cut: int) -> float:
        """Of all that follows a cut."""
        return max(self.backbone.values()) - self.backbone[cut] + self.rest


@dataclass(frozen=True)
class PhaseCost:
    """The work of a phase: `preparation` is the building of its cache, `work` the rest."""

    preparation: float
    work: float


def network_cost(model: PrototypeNetwork, size: int) -> NetworkCost:
    """Count the multiply-adds by a dry run on one image; the model stays as it is."""
    counted = 0.0

    def count(module: nn.Module, _: object, output: Tensor) -> None:
        nonlocal counted
        weight = module.weight
        assert isinstance(weight, Tensor)
        counted += output.numel() * weight[0].numel()

    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            image = {IMAGE: torch.zeros(1, 3, size, size, device=device_of(model))}
            backbone = {0: 0.0}
            for cut in model.backbone.cuts[1:]:
                counted = 0.0
                model.backbone.advance(image, [cut])
                backbone[cut] = counted
            counted = 0.0
            model.evidence_from_pyramid(model.pyramid_from_maps(image))
            return NetworkCost(backbone, max(0.0, counted - max(backbone.values())))
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes:
            module.training = mode


def phase_costs(
    plan: Sequence[Phase],
    model: PrototypeNetwork,
    config: Config,
    images: int,
    validation_images: int,
) -> list[PhaseCost]:
    """The work of each phase of a plan, with `images` training images per epoch."""
    network = network_cost(model, config.data.image_size)
    costs, open_cut, forward = [], 0, network.after(0)
    for phase in plan:
        if not isinstance(phase.config, TrainPhaseConfig):
            validations = 1 if isinstance(phase.config, FitHeadPhaseConfig) else 2
            costs.append(PhaseCost(0.0, (images + validations * validation_images) * forward))
            continue
        cut, copies = frozen_cut(model, phase.config.learns), phase.config.views
        learning = network.after(cut)
        cached = is_cached(model, phase.config, config.train.cache)
        forward = learning if cached else network.after(0)
        rows = (1 + copies) * images + validation_images
        new = cached and cut != open_cut
        open_cut = cut if cached else 0
        epoch = images * (forward + BACKWARD * learning) + validation_images * forward
        preparation = rows * network.frozen(cut) if new else 0.0
        costs.append(PhaseCost(preparation, phase.epochs * epoch))
    return costs


class Timetable:
    """Seconds that are left of a phase and of the whole plan, from the pace so far.

    `start` notes where a phase begins or continues, `advance` how far it is, both as a fraction of
    the phase's work.
    """

    def __init__(
        self, costs: Sequence[PhaseCost], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.costs, self._clock = costs, clock
        self._phase, self._first, self._fraction = 0, 0.0, 0.0
        self._started = self._now = clock()
        self._seconds, self._work = 0.0, 0.0  # of the phases before this one

    def start(self, phase: int, fraction: float = 0.0) -> None:
        """A phase begins here, or continues after so much of its work."""
        self._seconds += self._now - self._started
        self._work += self._phase_work
        self._phase, self._first, self._fraction = phase, fraction, fraction
        self._started = self._now = self._clock()

    def advance(self, fraction: float) -> None:
        """So much of the phase's work is done."""
        self._fraction, self._now = fraction, self._clock()

    @property
    def left_of_phase(self) -> float:
        """Seconds until the phase ends; 0 before any work on it."""
        if not self._phase_work:
            return 0.0
        left = (1 - self._fraction) * self.costs[self._phase].work
        return left * (self._now - self._started) / self._phase_work

    @property
    def left(self) -> float:
        """Seconds until the plan ends; 0 before any work."""
        work = self._work + self._phase_work
        if not work:
            return 0.0
        later = sum(cost.preparation + cost.work for cost in self.costs[self._phase + 1 :])
        pace = (self._seconds + self._now - self._started) / work
        return self.left_of_phase + later * pace

    @property
    def _phase_work(self) -> float:
        """Work of this phase that was done while the clock ran."""
        return (self._fraction - self._first) * self.costs[self._phase].work


def estimate_lines(seconds: float, on_cpu: bool) -> list[str]:
    """What to say of the expected duration; over an hour on a CPU, what helps.

    >>> estimate_lines(600, on_cpu=True)
    ['the schedule will take about 10 min more']
    """
    lines = [f"the schedule will take about {duration(seconds)} more"]
    if on_cpu and seconds > HOUR:
        lines.append(
            "this is slow on a CPU. What helps: fewer epochs (train.scale), a narrower backbone "
            "(model.backbone.width), cached features (views > 0 in train phases that freeze the "
            "backbone), or a GPU"
        )
    return lines
