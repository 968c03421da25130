"""The train phase: some parts of the network learn for some epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from protopyramid.config.schema import TrainPhaseConfig
from protopyramid.errors import UserError
from protopyramid.losses.objective import Losses, Objective
from protopyramid.metrics.validation import ValidationMetrics
from protopyramid.model.network import PrototypeNetwork
from protopyramid.training.checkpoint import restore_optimiser
from protopyramid.training.distributed import (
    ErrorElsewhere,
    all_reduce_max,
    broadcast_model,
    gather,
)
from protopyramid.training.duration import Timetable, estimate_lines
from protopyramid.training.features import FeatureBatch
from protopyramid.training.keeping import Keeper
from protopyramid.training.parts import make_optimiser, set_learning, set_modes, set_rates
from protopyramid.training.passes import Passes
from protopyramid.training.sampling import Draw, epoch_batches
from protopyramid.training.schedule import Phase, rate_factor
from protopyramid.training.state import Position
from protopyramid.training.surroundings import FILLINGS, Exchange, in_other_surroundings
from protopyramid.utils.faults import reached
from protopyramid.utils.progress import terms
from protopyramid.utils.signals import Stopped, StopRequest

FIRST_STEPS = 4  # optimiser steps, after which the duration is estimated
NAMED_IMAGES = 8  # of a batch whose loss is not finite


class LossModule(nn.Module):
    """The network and its objective as one module, so that processes share one backward pass."""

    def __init__(self, model: PrototypeNetwork, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(
        self,
        batch: FeatureBatch,
        labels: Tensor,
        overrides: dict[str, float] | None = None,
        exchange: Exchange = Exchange(),  # noqa: B008 (immutable)
    ) -> Losses:
        """Losses of a batch that starts from the maps of any cut; `exchange`: of the context loss."""
        model, objective = self.model, self.objective
        evidence = model.evidence_from_pyramid(model.pyramid_from_maps(batch.maps))
        surroundings = None
        if objective.weights_with(overrides)["context"] and model.prototypes is not None:
            share = objective.options.context_share
            surroundings = in_other_surroundings(
                model, batch.maps, evidence, labels, share, exchange
            )
        losses: Losses = objective(
            evidence,
            labels,
            batch.masks,
            batch.annotated,
            model.prototypes,
            overrides,
            surroundings,
        )
        return losses


class TrainPhase:
    """Trains the parts that a phase names, from the epoch and batch where it was left."""

    def __init__(
        self,
        phase: Phase,
        config: TrainPhaseConfig,
        objective: Objective,
        passes: Passes,
        keeper: Keeper,
        timetable: Timetable,
        stop: StopRequest,
        optimiser_state: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.phase, self.config = phase, config
        self.passes, self.keeper, self.timetable, self.stop = passes, keeper, timetable, stop
        self.fabric, self.model = passes.fabric, passes.model
        parts = set_learning(self.model, config.learns)
        if not parts:
            raise UserError(f"train.schedule: this model has none of the parts {config.learns}")
        optimiser = make_optimiser(parts, config, passes.config.train.optimizer)
        if optimiser_state:
            restore_optimiser(optimiser, optimiser_state)
        self.module, self.optimiser = self.fabric.setup(
            LossModule(self.model, objective), optimiser
        )
        self.sums, self.count = dict(keeper.state.sums), keeper.state.count
        self.steps = 0  # of the optimiser, in this process
        self.images = 0  # of this epoch, in this process

    def run(self) -> None:
        """Train to the end of the phase; raises `Stopped` after a signal, with everything saved."""
        start = self.keeper.state.position
        batches = len(self._batches(self.phase.first_epoch + start.epoch))
        done = start.epoch + start.batch / batches
        self.timetable.start(self.phase.number, done / self.phase.epochs)
        for epoch in range(start.epoch, self.phase.epochs):
            self._epoch(epoch, self.keeper.state.position.batch)
        self.keeper.save(Position(self.phase.number + 1))

    def _epoch(self, epoch: int, first: int) -> None:
        """One epoch, from its batch `first`."""
        phase, number = self.phase, self.phase.first_epoch + epoch
        reporter, scale = self.passes.reporter, self.passes.config.train.scale
        batches = self._batches(number)
        set_modes(self.model, self.config.learns)
        started, self.images = reporter.clock(), 0
        what = f"phase {phase.name}, epoch {number + 1}"
        with reporter.activity(what, len(batches), "batches", first, checked=False) as activity:
            for place in range(first, len(batches)):
                if place + 1 < len(batches):
                    self.passes.train.source.prefetch(batches[place + 1].images)
                gone = epoch + place / len(batches)
                set_rates(self.optimiser, rate_factor(phase, gone, scale))
                losses = self._step(batches[place], number, place)
                activity.advance(note=terms(losses))
                self._tell_time(epoch, (place + 1) / len(batches))
                if place + 1 < len(batches):
                    self._stop_if_asked(Position(phase.number, epoch, place + 1))
        self._end_epoch(epoch, self.images / max(1e-9, reporter.clock() - started))

    def _weights(self, place: int) -> dict[str, float]:
        """The weights of the terms in the batch at a place of the epoch, where not the objective's."""
        weights = {str(name): weight for name, weight in self.config.losses.items()}
        if place % self._context_every:
            weights["context"] = 0.0
        return weights

    def _exchange(self, epoch: int, place: int) -> Exchange:
        """What the context loss changes in the batch at a place of the epoch: the same after a restart."""
        turn = place // self._context_every
        seed = int(np.random.SeedSequence([self._seed, epoch, turn]).generate_state(1)[0])
        return Exchange((epoch + turn) % FILLINGS, seed)

    @property
    def _seed(self) -> int:
        return self.passes.config.train.seed

    @property
    def _context_every(self) -> int:
        return self.passes.config.loss.context_every

    def _step(self, draw: Draw, epoch: int, place: int) -> dict[str, float]:
        """One step of the optimiser, in the batch at a place of the epoch; returns the terms of the loss."""
        reached("batch")
        batch = self._features(draw, epoch)
        labels = torch.from_numpy(self.passes.train.labels[draw.images]).to(self.fabric.device)
        exchange = self._exchange(epoch, place)
        losses: Losses = self.module(batch, labels, self._weights(place), exchange)
        values = {name: float(value.detach()) for name, value in losses.terms.items()}
        diverged = not np.isfinite(float(losses.total.detach()))
        if all_reduce_max(self.fabric, int(diverged)):
            self._raise_diverged(draw, values, diverged)
        self.fabric.backward(losses.total)
        if self.config.clip:
            self.fabric.clip_gradients(self.module, self.optimiser, max_norm=self.config.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        self.count += 1
        self.steps += 1
        self.images += len(draw.images) * self.fabric.world_size
        return values

    def _end_epoch(self, epoch: int, speed: float) -> None:
        """Validate, record and save."""
        phase, keeper = self.phase, self.keeper
        broadcast_model(self.fabric, self.model, buffers_only=True)
        number = phase.first_epoch + epoch + 1
        candidate = self.model.prototypes is None
        validated = self._validate(number, epoch + 1 == phase.epochs or candidate)
        record: dict[str, Any] = {
            "kind": "epoch",
            "stage": phase.name,
            "epoch": number,
            "losses": self._mean_losses(),
            "validation": asdict(validated) if validated else None,
            "images_per_second": speed,
        }
        if candidate and validated is not None:
            record["best"] = keeper.offer(validated, f"epoch {number}, ")
        position = Position(phase.number, epoch + 1)
        keeper.record(position, record)
        self._tell_time(epoch + 1, 0.0)
        self.passes.reporter.epoch(record, self.timetable.left_of_phase, self.timetable.left)
        self.sums, self.count = {}, 0
        keeper.save(position, self.optimiser)
        self._stop_if_asked(position, saved=True)

    def _validate(self, epoch: int, always: bool) -> ValidationMetrics | None:
        if always or epoch % self.passes.config.train.validate_every == 0:
            return self.passes.validate()
        return None

    def _batches(self, epoch: int) -> list[Draw]:
        """The batches of an epoch, or this process's equal share of each."""
        train, split = self.passes.config.train, self.passes.train
        batches = epoch_batches(
            split.labels,
            split.lesions,
            self.passes.config.data,
            train.batch_size,
            train.seed,
            epoch,
            split.sources,
        )
        rank, world = self.fabric.global_rank, self.fabric.world_size
        shares = []
        for draw in batches:
            whole = len(draw.images) - len(draw.images) % world
            part = slice(rank, whole, world)
            shares.append(Draw(draw.images[part], draw.repeats[part]))
        return [share for share in shares if len(share.images)]

    def _features(self, draw: Draw, epoch: int) -> FeatureBatch:
        source, copies = self.passes.train.source, self.config.views
        if copies:
            return source.fixed(draw.images, draw.repeats, epoch, copies)
        return source.fresh(draw.images, draw.repeats, epoch)

    def _mean_losses(self) -> dict[str, float]:
        """The mean of each loss term over the epoch's batches of all processes that have it."""
        parts = gather(self.fabric, (self.sums, self.count))
        means = {}
        for name in parts[0][0]:
            every = self._context_every if name == "context" else 1
            batches = sum(math.ceil(count / every) for _, count in parts)
            means[name] = sum(sums[name] for sums, _ in parts) / max(1, batches)
        return means

    def _tell_time(self, epoch: int, share: float) -> None:
        """Show how long the schedule will take, and say so once, after the first optimiser steps."""
        reporter, timetable = self.passes.reporter, self.timetable
        timetable.advance((epoch + share) / self.phase.epochs)
        reporter.schedule(self.phase.first_epoch + epoch + share, timetable.left)
        if self.steps >= FIRST_STEPS or not share:
            on_cpu = self.fabric.device.type == "cpu"
            for number, line in enumerate(estimate_lines(timetable.left, on_cpu)):
                reporter.say_once(f"duration {number}", line)

    def _stop_if_asked(self, position: Position, saved: bool = False) -> None:
        """Stop all processes, with everything saved, if any of them has noted a signal."""
        number = all_reduce_max(self.fabric, self.stop.number)
        if number:
            if not saved:
                self.keeper.save(position, self.optimiser, self.sums, self.count)
            raise Stopped(number)

    def _raise_diverged(self, draw: Draw, values: dict[str, float], diverged: bool) -> NoReturn:
        """End all processes; rank zero names the images of those whose loss is not finite."""
        found = gather(self.fabric, (draw.images.tolist() if diverged else [], values))
        if not self.fabric.is_global_zero:
            raise ErrorElsewhere
        images, values = next(part for part in found if part[0])
        names = self.passes.train.names
        shown = ", ".join(names[index] for index in images[:NAMED_IMAGES])
        more = " …" if len(images) > NAMED_IMAGES else ""
        losses = ", ".join(f"{name} {value:g}" for name, value in values.items())
        raise UserError(
            f"the loss is not finite ({losses}) in the batch of {shown}{more}; check these images, or "
            "lower the learning rates in train.schedule; the last good checkpoint is kept in "
            f"{self.keeper.folder.path}"
        )
