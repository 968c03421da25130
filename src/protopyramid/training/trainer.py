"""The trainer: carries out a plan, stage by stage, so that nothing is ever lost.

The state of a training is its position in the plan, the model, the optimiser and the sources of the
prototypes. It is saved after every epoch and every other step. All random choices are functions of
seed, epoch and index, so a run that was stopped anywhere goes on to the same bytes.
"""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn

from protopyramid.config.schema import Config, FitHeadPhaseConfig, TrainPhaseConfig
from protopyramid.data.images import read_image
from protopyramid.data.manifest import Manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.losses.objective import Losses, Objective
from protopyramid.metrics.prototype_health import health_lines, prototype_health
from protopyramid.metrics.validation import ValidationMetrics, validation_metrics
from protopyramid.model.head import first_weights
from protopyramid.model.necks import Pyramid
from protopyramid.model.network import PrototypeNetwork, build_model
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.model.weights import start_backbone
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.training.centring import ChannelMoments, centre_level
from protopyramid.training.checkpoint import (
    Position,
    Restored,
    State,
    load_best,
    load_checkpoint,
    restore_optimiser,
    save_best,
    save_checkpoint,
)
from protopyramid.training.distributed import (
    ErrorElsewhere,
    all_reduce_max,
    broadcast_model,
    gather,
    on_rank_zero,
    rank_share,
    to_device,
)
from protopyramid.training.feature_cache import check_budget, used_bytes
from protopyramid.training.features import CachePlace, FeatureBatch, FeatureSource
from protopyramid.training.finish import finish_run, write_data_facts
from protopyramid.training.head_fit import fit_head
from protopyramid.training.initialise import PatchCollector, start_prototypes
from protopyramid.training.initialise import merge as merge_patches
from protopyramid.training.parts import (
    frozen_cut,
    make_optimiser,
    set_learning,
    set_modes,
    set_rates,
)
from protopyramid.training.projection import CandidateCollector, merge, project
from protopyramid.training.sampling import Draw, epoch_batches, training_pool
from protopyramid.training.schedule import Phase, make_plan, rate_factor
from protopyramid.training.tensorboard import Board
from protopyramid.utils.progress import Reporter, metrics_text
from protopyramid.utils.signals import Stopped, StopRequest

CACHE = "cache"
CENTRING_IMAGES = 256  # a sample is enough for the means and variances of channels
HELD_BYTES = 10**9  # of backbone maps that are kept from one level's centring to the next


class StepModule(nn.Module):
    """The network and its objective as one module, so that processes share one backward pass."""

    def __init__(self, model: PrototypeNetwork, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(
        self, fetched: FeatureBatch, labels: Tensor, overrides: dict[str, float] | None = None
    ) -> Losses:
        """Losses of a batch that starts from the maps of any cut."""
        evidence = self.model.evidence_from_pyramid(self.model.pyramid_from_maps(fetched.maps))
        losses: Losses = self.objective(
            evidence, labels, fetched.masks, fetched.annotated, self.model.prototypes, overrides
        )
        return losses


@dataclass
class Split:
    """The images of one split: their samples' labels and where their maps come from."""

    source: FeatureSource
    labels: NDArray[np.int64]
    lesions: NDArray[np.bool_]  # annotated, and not of the negative class

    @property
    def everything(self) -> NDArray[np.int64]:
        """All indices."""
        return np.arange(len(self.labels))


@dataclass
class Session:
    """What exists while one train stage is under way."""

    stage: Phase
    step: TrainPhaseConfig
    module: nn.Module
    optimiser: torch.optim.Optimizer
    sums: dict[str, float] = field(default_factory=dict)
    count: int = 0
    started: float = field(default_factory=time.monotonic)
    seen: int = 0  # images since `started`


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
    ) -> None:
        self.config, self.manifest, self.folder, self.fabric = config, manifest, folder, fabric
        self.backbone_from = backbone_from
        self.place = CachePlace(folder / CACHE) if cache is None else CachePlace(cache, shared=True)
        if config.train.threads:
            torch.set_num_threads(config.train.threads)
        torch.manual_seed(config.train.seed)
        model = build_model(config).to(fabric.device)
        memory = torch.channels_last if config.train.channels_last else torch.contiguous_format
        self.model: PrototypeNetwork = model.to(memory_format=memory)  # type: ignore[call-overload]
        self.objective = Objective(config).to(fabric.device)
        self.plan = make_plan(config.train)
        self.train_split = self._split("train")
        self.validation = self._split("validation")
        self.state = State(Position())
        self.number = 0
        self.stop = StopRequest()
        self.board = Board(folder / "tensorboard", enabled=fabric.is_global_zero)

    # -- the whole -------------------------------------------------------------------------------
    def run(self, resume: bool) -> None:
        """Train to the end; raises Stopped after a signal, with everything saved."""
        restored = (
            on_rank_zero(self.fabric, lambda: load_checkpoint(self.folder)) if resume else None
        )
        on_rank_zero(self.fabric, self._check_budgets)
        total = sum(stage.epochs for stage in self.plan)
        quiet = not self.fabric.is_global_zero
        with Reporter(total, quiet) as self.reporter, self.stop, closing(self.board):
            if restored is None:
                self._start()
            else:
                self._restore(restored)
                self._reopen_cache()
            for stage in self.plan[self.state.position.stage :]:
                self._stage(stage, restored)
                restored = None
            self._finish()

    def _start(self) -> None:
        """Everything before the first step: weights to start from, prototypes from patches."""
        on_rank_zero(self.fabric, self._begin)
        broadcast_model(self.fabric, self.model)
        self._open_cache_at(0)  # the start reads it too
        if isinstance(self.model.neck, Pyramid) and self.config.model.neck.start == "centred":
            self._centre_pyramid(self.model.neck)
        if self.model.prototypes is not None and self.config.model.prototypes.init == "patches":
            self._start_prototypes()
        self._save(Position())

    def _begin(self) -> None:
        """The run folder, and the weights that training starts from."""
        self.folder.begin(self.config)
        write_data_facts(self.folder, self.manifest, self.config, self._provenance())
        report = start_backbone(self.model.backbone, self.config.model.backbone.weights)
        if report is not None:
            self.reporter.say(
                f"backbone weights from {self.config.model.backbone.weights}: {report}"
            )
        if self.backbone_from is not None:
            count = load_backbone_of_run(self.model, self.backbone_from)
            self.reporter.say(f"backbone from {self.backbone_from}: {count} tensors matched")

    def _restore(self, restored: Restored) -> None:
        self.model.load_state_dict(restored.model)
        self.state, self.number = restored.state, restored.number
        on_rank_zero(self.fabric, self._keep_metrics)
        place = self.state.position
        self.reporter.say(
            f"resumed at stage {place.stage + 1} of {len(self.plan)}, epoch {place.epoch}"
        )

    def _keep_metrics(self) -> None:
        """Drop what was recorded after the checkpoint: it is done again."""
        kept = [
            line
            for line in self.folder.read_lines(layout.METRICS)
            if tuple(line["position"]) <= self.state.position.order
        ]
        text = "".join(_json_line(line) + "\n" for line in kept)
        self.folder.write_text(layout.METRICS, text)

    def _reopen_cache(self) -> None:
        """What is not trained but measured reads the cache as if training had never stopped."""
        number = self.state.position.stage
        if number < len(self.plan) and not isinstance(self.plan[number].step, TrainPhaseConfig):
            self._open_cache_at(number)

    def _open_cache_at(self, number: int) -> None:
        """The cache that serves a stage: that of the last train step before it, or else of the first."""
        before, after = (
            [stage.step for stage in stages if isinstance(stage.step, TrainPhaseConfig)]
            for stages in (self.plan[:number], self.plan[number:])
        )
        for step in [*before[-1:], *after][:1]:
            self._prepare_cache(step)

    def _check_budgets(self) -> None:
        """Refuse a schedule whose caches do not fit, before any work."""
        old = 0 if self.place.shared else used_bytes(self.place.folder)
        for stage in self.plan:
            step = stage.step
            if isinstance(step, TrainPhaseConfig) and self._caches(step):
                cut = frozen_cut(self.model, step.learns)
                layouts = [
                    *self.train_split.source.layouts(cut, step.views),
                    *self.validation.source.layouts(cut, 0),
                ]
                budget = self.config.train.cache.disk_budget
                check_budget(self.place.folder, layouts, budget, old)

    def _finish(self) -> None:
        """Write the model that was best on validation, and all that explains it."""
        self.fabric.barrier()
        self.train_split.source.close_cache()
        self.validation.source.close_cache()
        on_rank_zero(self.fabric, self._write_best)
        self.fabric.barrier()

    def _write_best(self) -> None:
        tensors, records, note = load_best(self.folder)
        self.model.load_state_dict(tensors)
        shutil.rmtree(self.folder / CACHE, ignore_errors=True)
        finish_run(self.folder, self.config, self.model, self.train_split.source.store, records)
        for record in records:
            name = f"{record['class']}/level {record['level']}/prototype {record['index']}"
            picture = read_image(self.folder / layout.picture(record["index"]))
            self.board.add_picture(name, picture)
        self.reporter.say(f"best on validation: {note}")

    # -- stages ----------------------------------------------------------------------------------
    def _stage(self, stage: Phase, restored: Restored | None) -> None:
        if isinstance(stage.step, TrainPhaseConfig):
            self._train_stage(stage, stage.step, restored)
        elif isinstance(stage.step, FitHeadPhaseConfig):
            self._fit_head_stage(stage)
        else:
            self._project_stage(stage)

    def _train_stage(self, stage: Phase, step: TrainPhaseConfig, restored: Restored | None) -> None:
        chosen = set_learning(self.model, step.learns)
        if not chosen:
            raise UserError(f"train.schedule: nothing of {step.learns} exists in this model")
        self._prepare_cache(step)
        optimiser = make_optimiser(chosen, step)
        if restored is not None and restored.optimiser:
            restore_optimiser(optimiser, restored.optimiser)
        module, wrapped = self.fabric.setup(StepModule(self.model, self.objective), optimiser)
        session = Session(stage, step, module, wrapped, dict(self.state.sums), self.state.count)
        for epoch in range(self.state.position.epoch, stage.epochs):
            self._epoch(session, epoch)
        self._save(Position(stage.number + 1))

    def _epoch(self, session: Session, epoch: int) -> None:
        """One epoch, from the batch where it was left."""
        stage, step = session.stage, session.step
        number = stage.first_epoch + epoch
        batches = self._batches(number)
        set_modes(self.model, step.learns)
        session.started, session.seen = time.monotonic(), 0
        first = self.state.position.batch
        for place in range(first, len(batches)):
            if place + 1 < len(batches):
                self.train_split.source.prefetch(batches[place + 1].images)
            gone = epoch + place / len(batches)
            set_rates(session.optimiser, rate_factor(stage, gone, self.config.train.scale))
            losses = self._batch(session, batches[place], number)
            self.reporter.batch(stage.name, stage.first_epoch + gone, losses)
            if place + 1 < len(batches):
                self._stop_if_asked(Position(stage.number, epoch, place + 1), session)
        self._end_epoch(session, epoch)

    def _batch(self, session: Session, draw: Draw, epoch: int) -> dict[str, float]:
        """One step of the optimiser; returns the terms of the loss."""
        fetched = self._fetch(session.step, draw, epoch)
        labels = torch.from_numpy(self.train_split.labels[draw.images]).to(self.fabric.device)
        losses: Losses = session.module(fetched, labels, dict(session.step.losses))
        values = {name: float(value.detach()) for name, value in losses.terms.items()}
        broken = not np.isfinite(float(losses.total.detach()))
        if all_reduce_max(self.fabric, int(broken)):
            self._diverged(draw, values, broken)
        self.fabric.backward(losses.total)
        if session.step.clip:
            self.fabric.clip_gradients(
                session.module, session.optimiser, max_norm=session.step.clip
            )
        session.optimiser.step()
        session.optimiser.zero_grad(set_to_none=True)
        for name, value in values.items():
            session.sums[name] = session.sums.get(name, 0.0) + value
        session.count += 1
        session.seen += len(draw.images) * self.fabric.world_size
        return values

    def _end_epoch(self, session: Session, epoch: int) -> None:
        stage = session.stage
        speed = session.seen / max(1e-9, time.monotonic() - session.started)
        broadcast_model(self.fabric, self.model, buffers_only=True)
        last = epoch + 1 == stage.epochs
        candidate = self.model.prototypes is None
        validated = None
        number = stage.first_epoch + epoch + 1
        if candidate or last or number % self.config.train.validate_every == 0:
            validated = self._validate()
        position = Position(stage.number, epoch + 1)
        record = {
            "kind": "epoch",
            "stage": stage.name,
            "epoch": number,
            "losses": self._mean_losses(session),
            "validation": asdict(validated) if validated else None,
            "images_per_second": speed,
        }
        if candidate and validated is not None:
            record["best"] = self._offer(validated, f"epoch {number}, ")
        self._record(position, record)
        self.reporter.epoch(record)
        session.sums, session.count = {}, 0
        self._save(position, session)
        self._stop_if_asked(position, session, saved=True)

    def _project_stage(self, stage: Phase) -> None:
        """Every prototype becomes its nearest training patch."""
        prototypes = self.model.prototypes
        assert prototypes is not None
        before = self._validate()
        collector = CandidateCollector(prototypes, self.config.projection)
        self._each_training_batch(collector.update)
        parts = to_device(gather(self.fabric, collector.result()), self.fabric.device)
        classes = self.config.data.classes
        report = project(prototypes, merge(parts), self.config.projection, classes)
        after = self._validate()
        names = [sample.name for sample in self.train_split.source.store.samples]
        self.state.records = [
            {
                "index": entry.index,
                "class": self.config.data.classes[entry.class_number],
                "level": entry.level,
                "image": names[entry.image],
                "row": entry.row,
                "col": entry.col,
                "similarity": entry.similarity,
            }
            for entry in report.prototypes
        ]
        for line in report.lines(self.config.data.classes):
            self.reporter.say(line)
        self.reporter.say(
            f"projection: accuracy {before.accuracy:.3f} -> {after.accuracy:.3f}, "
            f"{metrics_text(asdict(after))}"
        )
        record = {
            "kind": "project",
            "nearest_similarity": {"mean": report.mean_nearest, "worst": report.worst_nearest},
            "second_choices": [e.index for e in report.prototypes if e.second_choice],
            "moved": [e.moved for e in report.prototypes],
            "before": asdict(before),
            "validation": asdict(after),
        }
        position = Position(stage.number + 1)
        self._record(position, record)
        self._save(position)

    def _fit_head_stage(self, stage: Phase) -> None:
        """The head is solved for; what results is a candidate for the model that is kept.

        With prototypes, only if they have just been projected.
        """
        prototypes = self.model.prototypes
        scores, pool = self._training_scores()
        labels = torch.from_numpy(self.train_split.labels[pool])
        classes = None if prototypes is None else prototypes.classes.cpu()
        result = fit_head(scores, labels, classes, self._first_head(), self.config.head_fit)
        with torch.no_grad():
            self.model.head.weight.copy_(result.weight)
        if prototypes is not None:
            self._warn_of_unhealthy(prototypes, result.weight, scores)
        validated = self._validate()
        projected = stage.number > 0 and self.plan[stage.number - 1].step.step == "project"
        candidate = projected or prototypes is None
        best = candidate and self._offer(validated, f"stage {stage.number + 1}, ")
        self.reporter.say(
            f"head fitted in {result.iterations} steps: {metrics_text(asdict(validated))}"
        )
        record = {
            "kind": "fit-head",
            "iterations": result.iterations,
            "optimality": result.optimality,
            "objective": result.objective,
            "validation": asdict(validated),
            "candidate": candidate,
            "best": best,
        }
        position = Position(stage.number + 1)
        self._record(position, record)
        self._save(position)

    def _first_head(self) -> Tensor:
        """What the fit of the head draws its weights to, (C, m): the first ones, or none at all."""
        if self.model.prototypes is None:
            return torch.zeros_like(self.model.head.weight, device="cpu")
        classes = self.model.prototypes.classes.cpu()
        return first_weights(classes, len(self.config.data.classes), self.config.model.head)

    # -- passes over images ----------------------------------------------------------------------
    def _centre_pyramid(self, neck: Pyramid) -> None:
        """Coarsest level first, since each level feeds the next; a sample of the images is enough."""
        self.model.eval()
        held: dict[int, dict[int, Tensor]] = {}  # backbone maps by the first image of their batch
        for level in reversed(neck.inputs):
            moments = ChannelMoments(level, self.config.model.neck.dim)
            for part in self._own_batches(self.train_split.source, self._pool(CENTRING_IMAGES)):
                with torch.no_grad():
                    moments.update(neck(self._held_maps(held, part)))
            centre_level(neck, level, gather(self.fabric, moments.result()))

    def _held_maps(
        self, held: dict[int, dict[int, Tensor]], part: NDArray[np.int64]
    ) -> dict[int, Tensor]:
        """Backbone maps of a batch as it is; kept in `held` as long as that stays small."""
        first = int(part[0])
        if first in held:
            return held[first]
        given = self.train_split.source.plain(part).maps
        maps = self.model.backbone.advance(given, self.model.neck.inputs)
        if sum(tensor_bytes(each) for each in (*held.values(), maps)) <= HELD_BYTES:
            held[first] = maps
        return maps

    def _start_prototypes(self) -> None:
        prototypes = self.model.prototypes
        assert prototypes is not None
        collector = PatchCollector(prototypes, self.config.train.seed)
        self._each_training_batch(collector.update)
        parts = to_device(gather(self.fabric, collector.result()), self.fabric.device)
        start_prototypes(prototypes, merge_patches(parts), self.config.train.seed)

    def _each_training_batch(self, use: Callable[..., None]) -> None:
        """Give z, indices, labels, masks and flags of training images, as they are, to `use`."""
        self.model.eval()
        source = self.train_split.source
        for part in self._own_batches(source, self._pool()):
            fetched = source.plain(part)
            with torch.no_grad():
                z = self.model.pyramid_from_maps(fetched.maps)
                labels = torch.from_numpy(self.train_split.labels[part]).to(self.fabric.device)
                images = torch.from_numpy(part).to(self.fabric.device)
                use(z, images, labels, fetched.masks, fetched.annotated)

    def _scores(self, split: Split, images: NDArray[np.int64]) -> Tensor:
        """Scores (N, m) of images as they are, over all processes."""
        self.model.eval()
        found: dict[int, Tensor] = {}
        for part in self._own_batches(split.source, images):
            fetched = split.source.plain(part)
            with torch.no_grad():
                z = self.model.pyramid_from_maps(fetched.maps)
                found[int(part[0])] = self.model.evidence_from_pyramid(z).scores.float().cpu()
        together: dict[int, Tensor] = {}
        for share in gather(self.fabric, found):
            together |= share
        return torch.cat([together[first] for first in _firsts(images, self._eval_size)])

    def _training_scores(self) -> tuple[Tensor, NDArray[np.int64]]:
        pool = self._pool()
        return self._scores(self.train_split, pool), pool

    def _validate(self) -> ValidationMetrics:
        scores = self._scores(self.validation, self.validation.everything)
        logits = (scores.double() @ self.model.head.weight.detach().double().cpu().T).numpy()
        data = self.config.data
        return validation_metrics(logits, self.validation.labels, data.classes, data.negative_class)

    def _own_batches(
        self, source: FeatureSource, images: NDArray[np.int64]
    ) -> Iterable[NDArray[np.int64]]:
        starts = range(0, len(images), self._eval_size)
        parts = [images[start : start + self._eval_size] for start in starts]
        mine = rank_share(self.fabric, parts)
        for number, part in enumerate(mine):
            if number + 1 < len(mine):
                source.prefetch(mine[number + 1])
            self._tick()
            yield part

    @property
    def _eval_size(self) -> int:
        return self.config.train.eval_batch_size

    def _pool(self, most: int | None = None) -> NDArray[np.int64]:
        """Training images that projection and head fit use: with negatives drawn once, only those.

        All of them or, evenly spread, at most `most`.
        """
        once = self.config.data.negatives.resample == "once"
        pool = self.train_split.everything
        if once:
            labels, data = self.train_split.labels, self.config.data
            pool = training_pool(labels, data, self.config.train.seed, 0)
        return pool if most is None else pool[:: -(-len(pool) // most)]

    # -- parts of a step -------------------------------------------------------------------------
    def _batches(self, epoch: int) -> list[Draw]:
        """The batches of an epoch, or this process's equal share of each."""
        train = self.config.train
        labels, lesions = self.train_split.labels, self.train_split.lesions
        batches = epoch_batches(
            labels, lesions, self.config.data, train.batch_size, train.seed, epoch
        )
        rank, world = self.fabric.global_rank, self.fabric.world_size
        shares = []
        for draw in batches:
            whole = len(draw.images) - len(draw.images) % world
            part = slice(rank, whole, world)
            shares.append(Draw(draw.images[part], draw.repeats[part]))
        return [share for share in shares if len(share.images)]

    def _fetch(self, step: TrainPhaseConfig, draw: Draw, epoch: int) -> FeatureBatch:
        source = self.train_split.source
        if step.views:
            return source.fixed(draw.images, draw.repeats, epoch, step.views)
        return source.fresh(draw.images, draw.repeats, epoch)

    def _prepare_cache(self, step: TrainPhaseConfig) -> None:
        """Fixed views and a frozen beginning: cache what crosses the cut, for both splits."""
        splits = (self.train_split, self.validation)
        if not self._caches(step):
            for split in splits:
                split.source.close_cache()
            return
        cut = frozen_cut(self.model, step.learns)
        for split, views in zip(splits, (step.views, 0), strict=True):
            split.source.open_cache(cut, views, self.fabric, self._tick)

    def _caches(self, step: TrainPhaseConfig) -> bool:
        cut = frozen_cut(self.model, step.learns)
        return bool(step.views and cut and self.config.train.cache.enabled)

    def _split(self, name: str) -> Split:
        samples = self.manifest.split(name)
        data = self.config.data
        source = FeatureSource(name, self.model, ImageStore(samples, data), self.config, self.place)
        labels = np.array([data.classes.index(s.label) for s in samples], dtype=np.int64)
        lesions = [
            s.label != data.negative_class and (s.mask is not None or s.box is not None)
            for s in samples
        ]
        return Split(source, labels, np.array(lesions, dtype=bool))

    def _mean_losses(self, session: Session) -> dict[str, float]:
        parts = gather(self.fabric, (session.sums, session.count))
        count = max(1, sum(count for _, count in parts))
        names = parts[0][0]
        return {name: sum(sums[name] for sums, _ in parts) / count for name in names}

    # -- keeping ---------------------------------------------------------------------------------
    def _offer(self, validated: ValidationMetrics, place: str) -> bool:
        """Keep the model if it is the best on validation so far."""
        if self.state.best_key is not None and validated.key <= self.state.best_key:
            return False
        self.state.best_key = validated.key
        note = place + metrics_text(asdict(validated))
        model, records = self.model.state_dict(), self.state.records
        on_rank_zero(self.fabric, lambda: save_best(self.folder, model, records, note))
        return True

    def _save(self, position: Position, session: Session | None = None) -> None:
        self.state.position = position
        self.state.sums = dict(session.sums) if session else {}
        self.state.count = session.count if session else 0
        self.number += 1
        optimiser = session.optimiser if session else None
        on_rank_zero(
            self.fabric,
            lambda: save_checkpoint(
                self.folder, self.number, self.state, self.model.state_dict(), optimiser
            ),
        )

    def _record(self, position: Position, record: dict[str, Any]) -> None:
        self.board.add(record)
        line = _json_line({**record, "position": list(position.order)})
        on_rank_zero(self.fabric, lambda: self.folder.append_line(layout.METRICS, line))

    def _stop_if_asked(self, position: Position, session: Session, saved: bool = False) -> None:
        number = all_reduce_max(self.fabric, self.stop.number)
        if number:
            if not saved:
                self._save(position, session)
            raise Stopped(number)

    def _tick(self) -> None:
        """Called between batches that change nothing: a signal stops here, the last save is good."""
        if self.stop.number and self.fabric.world_size == 1:
            raise Stopped(self.stop.number)

    def _diverged(self, draw: Draw, values: dict[str, float], broken: bool) -> NoReturn:
        """End all processes; the first one names the images of those whose loss is not finite."""
        found = gather(self.fabric, (draw.images.tolist() if broken else [], values))
        if not self.fabric.is_global_zero:
            raise ErrorElsewhere
        images, values = next(part for part in found if part[0])
        samples = self.train_split.source.store.samples
        names = ", ".join(samples[index].name for index in images[:8])
        more = " …" if len(images) > 8 else ""
        shown = ", ".join(f"{name} {value:g}" for name, value in values.items())
        raise UserError(
            f"the loss is not finite ({shown}) in the batch of {names}{more}; check these images or "
            f"lower train.schedule's learning rates; the last good checkpoint is kept in {self.folder.path}"
        )

    def _warn_of_unhealthy(
        self, prototypes: PrototypeLayer, weight: Tensor, scores: Tensor
    ) -> None:
        """Name unhealthy prototypes, one line for each kind of finding."""
        findings = prototype_health(
            prototypes.vectors.detach().cpu(),
            prototypes.classes.cpu(),
            prototypes.levels.cpu(),
            self.config.model.similarity.kind,
            weight,
            scores,
            class_names=self.config.data.classes,
        )
        if self.fabric.is_global_zero:
            for line in health_lines(findings):
                warnings.warn(line, stacklevel=2)

    def _provenance(self) -> dict[str, Any]:
        if self.backbone_from is None:
            return {"backbone": self.config.model.backbone.weights or "random"}
        return {"backbone": f"run {self.backbone_from.resolve().name}"}


def load_backbone_of_run(model: PrototypeNetwork, path: Path) -> int:
    """Take the backbone of another run; every tensor must fit. Returns how many there are."""
    other = RunFolder(path)
    other.check_format()
    tensors, _ = other.read_tensors(layout.MODEL)
    prefix = "backbone."
    found = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    own = model.backbone.state_dict()
    wrong = [name for name in own if name not in found or found[name].shape != own[name].shape]
    if wrong or len(found) != len(own):
        raise UserError(
            f"{path}: its backbone does not fit this one ({(wrong or ['other tensors'])[0]} differs); "
            "both runs need the same model.backbone name, width and batch_norm"
        )
    model.backbone.load_state_dict(found)
    return len(found)


def tensor_bytes(tensors: Mapping[int, Tensor]) -> int:
    """What tensors take in memory."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _firsts(images: NDArray[np.int64], size: int) -> list[int]:
    return [int(images[start]) for start in range(0, len(images), size)]


def _json_line(record: dict[str, Any]) -> str:
    import json

    return json.dumps(record)
