"""The trainer: builds what a training needs, restores its state, and walks its plan phase by phase.

The state of a training is its position in the plan, the model, the optimiser and the sources of the
prototypes. It is saved after every epoch and every other phase. All random choices are functions of
seed, epoch and index, so a run that was stopped anywhere continues to the same bytes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import torch
from lightning_fabric import Fabric

from protopyramid.config.schema import Config, FitHeadPhaseConfig, TrainPhaseConfig
from protopyramid.data.images import read_image
from protopyramid.data.manifest import Manifest
from protopyramid.errors import UserError
from protopyramid.losses.build import build_objective
from protopyramid.model.build import build_model
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.training.caching import PhaseCaches
from protopyramid.training.checkpoint import (
    BEST,
    Restored,
    load_best,
    load_checkpoint,
    restore_model,
)
from protopyramid.training.distributed import broadcast_model, on_rank_zero
from protopyramid.training.duration import Timetable, phase_costs
from protopyramid.training.features import CachePlace
from protopyramid.training.finish import finish_run, write_data_facts
from protopyramid.training.keeping import Keeper
from protopyramid.training.passes import Passes
from protopyramid.training.phases.fit_head import run_fit_head
from protopyramid.training.phases.project import run_project
from protopyramid.training.phases.train import TrainPhase
from protopyramid.training.same_files import note_files
from protopyramid.training.schedule import Phase, make_plan
from protopyramid.training.split import make_split
from protopyramid.training.start import initialise_model, load_start_weights, start_provenance
from protopyramid.training.state import Position, PrototypeSource
from protopyramid.training.tensorboard import Board
from protopyramid.utils.faults import reached
from protopyramid.utils.files import part_of
from protopyramid.utils.progress import Reporter
from protopyramid.utils.signals import Stopped, StopRequest

CACHE = "cache"
TENSORBOARD = "tensorboard"


class Trainer:
    """Trains one run to its end, from the beginning or from its newest checkpoint."""

    def __init__(
        self,
        config: Config,
        manifest: Manifest,
        folder: RunFolder,
        fabric: Fabric,
        backbone_from: Path | None = None,
        cache: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config, self.manifest, self.folder, self.fabric = config, manifest, folder, fabric
        self.backbone_from = backbone_from
        self.plan = make_plan(config.train)
        self.model = _build(config, fabric)
        self.objective = build_objective(config, fabric.world_size).to(fabric.device)
        self.stop = StopRequest()
        epochs = sum(phase.epochs for phase in self.plan)
        self.reporter = Reporter(epochs, not fabric.is_global_zero, self._check_signal, clock)
        place = (
            CachePlace(part_of(folder.path, CACHE))
            if cache is None
            else CachePlace(cache, shared=True)
        )
        train, validation = (
            make_split(name, manifest, config, self.model, place)
            for name in ("train", "validation")
        )
        self.passes = Passes(config, fabric, self.model, train, validation, self.reporter)
        self.caches = PhaseCaches(
            self.plan, self.model, train, validation, place, config.train.cache
        )
        self.board = Board(
            part_of(folder.path, TENSORBOARD), fabric.is_global_zero, self.reporter.say
        )
        self.keeper = Keeper(folder, fabric, self.model, self.board)

    def run(self, resume: bool) -> None:
        """Train to the end; raises `Stopped` after a signal, which tells whether anything is saved."""
        restored = (
            on_rank_zero(self.fabric, lambda: load_checkpoint(self.folder)) if resume else None
        )
        on_rank_zero(self.fabric, self.caches.check_budgets)
        with self.reporter, self.stop, closing(self.board):
            if restored is None:
                self._start()
            else:
                self._restore(restored)
            self.timetable = self._make_timetable()
            for phase in self.plan[self.keeper.state.position.phase :]:
                self.run_phase(phase, restored)
                restored = None
            self._finish()

    def run_phase(self, phase: Phase, restored: Restored | None = None) -> None:
        """Run one phase; the first one after a restart continues with the `restored` optimiser."""
        config, passes, keeper = phase.config, self.passes, self.keeper
        if isinstance(config, TrainPhaseConfig):
            self.caches.prepare(config, self.fabric, self.reporter)
            TrainPhase(
                phase,
                config,
                self.objective,
                passes,
                keeper,
                self.timetable,
                self.stop,
                restored.optimiser if restored else None,
            ).run()
            return
        self.timetable.start(phase.number)
        if isinstance(config, FitHeadPhaseConfig):
            before = self.plan[phase.number - 1].config.step if phase.number else ""
            run_fit_head(phase, before == "project", passes, keeper)
        else:
            run_project(phase, passes, keeper)
        self.timetable.advance(1.0)

    def _start(self) -> None:
        """Everything before the first phase, up to the first checkpoint."""
        reached("start")
        train, validation = self.passes.train.labels, self.passes.validation.labels
        epochs = sum(phase.epochs for phase in self.plan)
        self.reporter.say(
            f"training on {len(train)} images, validating on {len(validation)}: "
            f"{len(self.plan)} phases, {epochs} epochs"
        )
        on_rank_zero(self.fabric, self._begin)
        broadcast_model(self.fabric, self.model)
        self.caches.open_for(0, self.fabric, self.reporter)
        initialise_model(self.passes)
        self.keeper.save(Position())

    def _begin(self) -> None:
        """Load the weights that training starts from, and write what the run folder begins with."""
        weights = self.config.model.backbone.weights
        # First of all: without its weights a training does not begin.
        load_start_weights(self.model, weights, self.backbone_from, self.reporter)
        self.folder.begin(self.config)
        provenance = start_provenance(weights, self.backbone_from)
        write_data_facts(self.folder, self.manifest, self.config, provenance)
        note_files(self.folder, self.manifest)

    def _restore(self, restored: Restored) -> None:
        self.keeper.restore(restored)
        position = self.keeper.state.position
        self.reporter.say(
            f"resumed at phase {position.phase + 1} of {len(self.plan)}, epoch {position.epoch}"
        )
        number = position.phase
        if number < len(self.plan) and not isinstance(self.plan[number].config, TrainPhaseConfig):
            self.caches.open_for(number, self.fabric, self.reporter)

    def _make_timetable(self) -> Timetable:
        images, validation = len(self.passes.pool()), len(self.passes.validation.labels)
        costs = phase_costs(self.plan, self.model, self.config, images, validation)
        return Timetable(costs, self.reporter.clock)

    def _finish(self) -> None:
        """Write the model that was best on validation, and all that explains it."""
        self.fabric.barrier()
        self.caches.close()
        on_rank_zero(self.fabric, self._write_best)
        self.fabric.barrier()

    def _write_best(self) -> None:
        tensors, records, note = load_best(self.folder)
        restore_model(self.model, tensors)
        self._check_sources(records)
        shutil.rmtree(self.folder / CACHE, ignore_errors=True)
        store = self.passes.train.source.store
        finish_run(self.folder, self.config, self.model, store, records)
        for record in records:
            name = f"{record['class']}/level {record['level']}/prototype {record['index']}"
            picture = read_image(self.folder / layout.picture(record["index"]))
            self.board.add_picture(name, picture)
        self.reporter.say(f"best on validation: {note}")

    def _check_sources(self, records: Sequence[PrototypeSource]) -> None:
        """Refuse sources that are not of this model and these images."""
        layer = self.model.prototypes
        levels = [] if layer is None else layer.levels.tolist()
        known = set(self.passes.train.names)
        found = [record["level"] for record in sorted(records, key=lambda each: each["index"])]
        unknown = [record["image"] for record in records if record["image"] not in known]
        if unknown or found != levels:
            what = f"names the image {unknown[0]!r}" if unknown else "has other prototypes"
            raise UserError(
                f"{self.folder / BEST}: {what}, so it is not of this training; "
                "train again in another folder"
            )

    def _check_signal(self) -> None:
        """Stop between batches that change nothing: the last checkpoint is still good.

        Several processes stop together, at their next optimiser step.
        """
        if self.stop.number and self.fabric.world_size == 1:
            raise Stopped(self.stop.number, self.keeper.saved)


def _build(config: Config, fabric: Fabric) -> PrototypeNetwork:
    """The network with the random weights of its seed, on its device and in its memory order."""
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    torch.manual_seed(config.train.seed)
    model = build_model(config).to(fabric.device)
    memory = torch.channels_last if config.train.channels_last else torch.contiguous_format
    return model.to(memory_format=memory)  # type: ignore[call-overload,no-any-return]
