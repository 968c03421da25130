"""The rows of the speed table: ours, the limit it is held against, and the target.

Each function measures one row or a few that belong together. Limits are the least work that the task
needs (one pass of the bare backbone), or the same work as published systems do it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protopyramid.benchmarks.memory import Peaks, peaks_in_child, peaks_of
from protopyramid.benchmarks.references import (
    BareClassifier,
    BareStep,
    LoopedProjection,
    pixel_weights,
    upsampled_fine_loss,
)
from protopyramid.benchmarks.settings import (
    Settings,
    TrainingStep,
    channels_last,
    copy_of,
    fetched,
    fetched_images,
    fresh_model,
    labels_of,
    random_images,
    round_masks,
    train_steps,
)
from protopyramid.benchmarks.timing import Pair, in_turns
from protopyramid.config.schema import Config
from protopyramid.data.images import normalise
from protopyramid.errors import UserError
from protopyramid.export.formats import EvidenceModule, to_onnx
from protopyramid.inference.batches import compile_network
from protopyramid.losses.build import build_objective
from protopyramid.losses.fine import MaskStencils, fine_annotation
from protopyramid.model.backbones import IMAGE, VGG16
from protopyramid.model.build import initial_head_weights
from protopyramid.model.necks import COARSEST
from protopyramid.model.network import PrototypeNetwork
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.training.feature_cache import CacheLayout, FeatureCache
from protopyramid.training.features import FeatureBatch
from protopyramid.training.head_fit import fit_head
from protopyramid.training.patches import PyramidBatch
from protopyramid.training.projection import CandidateCollector, project

PUBLISHED_HEAD_EPOCHS = 10
BYTES = 1e6


@dataclass(frozen=True)
class Row:
    """One line of the table.

    `value` is held against `bound`: at most it, or at least it where `at_least`. Without a bound the row
    is there to be known. `low` and `high` are the extremes of single turns. `ours` and `reference` are
    medians in `unit`.
    """

    work: str
    limit: str
    value: float
    low: float
    high: float
    bound: float | None
    at_least: bool
    ours: float
    reference: float
    unit: str = "s"
    figure: str = "x"
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.bound is None:
            return None
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def to_json(self) -> dict[str, Any]:
        """The row with its verdict."""
        return {**asdict(self), "met": self.met}


def at_most(work: str, limit: str, pair: Pair, bound: float | None, **more: Any) -> Row:
    """A row whose ratio, ours over the limit, should be small."""
    medians = statistics.median(pair.ours), statistics.median(pair.reference)
    return Row(work, limit, pair.ratio, *pair.spread, bound, False, *medians, **more)


def at_least(work: str, limit: str, pair: Pair, bound: float | None, **more: Any) -> Row:
    """A row whose ratio, the reference over ours, should be large."""
    turned = Pair(pair.reference, pair.ours)
    medians = statistics.median(pair.ours), statistics.median(pair.reference)
    return Row(work, limit, turned.ratio, *turned.spread, bound, True, *medians, **more)


def forward_rows(settings: Settings) -> Iterator[Row]:
    """A batch through the network against the bare features; then a single image."""
    config = settings.config()
    model = fresh_model(config)
    features = _features(model)
    batches = [(settings.batch, 1.10), (1, None)]
    for size, bound in batches:
        images = random_images(size, config.data.image_size)
        with torch.inference_mode():
            pair = in_turns(
                lambda images=images: model(images),  # type: ignore[misc]
                lambda images=images: features(images),  # type: ignore[misc]
                settings.repetitions,
            )
        name = f"forward, {size} image{'s' if size > 1 else ''}"
        yield at_most(name, "bare VGG-16 features", pair, bound)


def latency_rows(settings: Settings) -> Iterator[Row]:
    """A single image through the exported and through the compiled network, against the network as it is.

    Both are there to be known. Rows whose library or compiler is missing are left out, with a warning.
    """
    if not settings.latency:
        return
    config = settings.config()
    model = fresh_model(config)
    image = torch.rand(1, 3, config.data.image_size, config.data.image_size)
    ready = channels_last(normalise(image, config.data))
    limit = "the network as it is, in torch"
    with torch.inference_mode():
        exported = _exported(model, config)
        if exported is not None:
            pair = in_turns(lambda: exported(image), lambda: model(ready), settings.repetitions)
            yield at_most("forward, 1 image: onnxruntime", limit, pair, None)
        compiled = copy_of(model)
        reason = compile_network(compiled, config.data.image_size)
        if reason is None:
            pair = in_turns(lambda: compiled(ready), lambda: model(ready), settings.repetitions)
            yield at_most("forward, 1 image: torch.compile", limit, pair, None)
        else:
            warnings.warn(f"no row for torch.compile: {reason}", stacklevel=2)


def _exported(model: PrototypeNetwork, config: Config) -> Callable[[Tensor], object] | None:
    module = EvidenceModule(copy_of(model), config.data).eval()
    try:
        _, call = to_onnx(module, config.data.image_size, torch.get_num_threads())
    except UserError as error:
        warnings.warn(f"no row for onnxruntime: {error}", stacklevel=2)
        return None
    return call


def training_row(settings: Settings) -> Iterator[Row]:
    """A step with everything learning against the same step of a bare classifier."""
    config = settings.config()
    model = fresh_model(config)
    step = list(train_steps(config))[-1]
    bare_model = copy_of(model)
    bare = BareStep(
        BareClassifier(
            _features(bare_model), model.backbone.channels[COARSEST], len(config.data.classes)
        ),
        step,
    )
    ours = TrainingStep(config, model, step)
    batch = fetched_images(config, settings.step_batch)
    images, labels = batch.maps[IMAGE], labels_of(settings.step_batch, config)
    pair = in_turns(
        lambda: ours(batch, labels), lambda: bare(images, labels), settings.slow_repetitions
    )
    name = f"training step, all unfrozen, {len(images)} images"
    yield at_most(name, "bare VGG-16 + linear, same step", pair, 1.2)


def cached_row(settings: Settings) -> Iterator[Row]:
    """Stage A from the cache (reading it included) against the pyramid alone."""
    config = settings.config()
    model = fresh_model(config)
    count = settings.cached_batch
    images = random_images(2, config.data.image_size)
    with torch.no_grad():
        few = model.backbone.advance({IMAGE: images}, model.neck.inputs)
    maps = {level: c[torch.arange(count) % 2] for level, c in few.items()}
    batch, labels = fetched(maps, config), labels_of(count, config)
    step = next(train_steps(config))
    ours = TrainingStep(config, model, step)
    pyramid = _pyramid_alone(copy_of(model), maps)
    with tempfile.TemporaryDirectory() as folder:
        cache = _cache_of(Path(folder), batch)
        rows = np.arange(count)
        pair = in_turns(
            lambda: ours(FeatureBatch(*cache.read(rows)), labels), pyramid, settings.repetitions
        )
    name = f"stage A step, cached, {count} images"
    note = "ours includes reading the cache, all losses and the optimiser"
    yield at_most(name, "pyramid alone, forward + backward", pair, 1.2, note=note)


def projection_rows(settings: Settings) -> Iterator[Row]:
    """A projection against the network's own forward pass; then the search against ProtoPNet's."""
    config = settings.config()
    model = fresh_model(config)
    assert model.prototypes is not None
    size, count = settings.batch, settings.projected
    images = random_images(size, config.data.image_size)
    labels = labels_of(count, config)
    parts = [torch.arange(count)[first : first + size] for first in range(0, count, size)]
    start = model.prototypes.vectors.detach().clone()

    @torch.inference_mode()
    def projected() -> None:
        search = _Search(model.prototypes, config, start)
        for part in parts:
            search.update(model.pyramid(images[: len(part)]), part, labels[part])
        search.finish()

    @torch.inference_mode()
    def forward() -> None:
        for part in parts:
            model(images[: len(part)])

    pair = in_turns(projected, forward, settings.close_repetitions)
    yield at_most(f"projection over {count} images", "this model's own forward", pair, 1.05)
    with torch.no_grad():
        z = model.pyramid(images)

    def looped() -> None:
        loop = LoopedProjection(_prototypes(model))
        for part in parts:
            loop.update(_first(z, len(part)), part, labels[part])

    searched = projection_search(config, count, size)
    pair = in_turns(searched, looped, settings.repetitions)
    note = "ours also keeps candidates, so that no two prototypes take one image"
    yield at_most("projection: its search alone", "ProtoPNet's loop", pair, None, note=note)


def head_row(settings: Settings) -> Iterator[Row]:
    """The solve, scores given, against epochs of forward passes, extrapolated from one batch."""
    config = settings.config()
    model = fresh_model(config)
    prototypes, count = _prototypes(model), settings.head_images
    images = random_images(settings.batch, config.data.image_size)
    classes, labels = prototypes.classes, labels_of(count, config)
    scores = random_scores(labels, classes)
    first = initial_head_weights(classes, len(config.data.classes), config.model.head)
    with torch.inference_mode():
        pair = in_turns(
            lambda: fit_head(scores, labels, classes, first, config.head_fit),
            lambda: model(images),
            settings.repetitions,
        )
    passes = PUBLISHED_HEAD_EPOCHS * count / settings.batch
    pair = Pair(pair.ours, tuple(passes * one for one in pair.reference))
    limit = f"{PUBLISHED_HEAD_EPOCHS} epochs of forward passes, {count:,} images"
    note = f"reference extrapolated from batches of {settings.batch}"
    yield at_least("head fit: the solve, scores given", limit, pair, 100.0, note=note)


def fine_rows(settings: Settings) -> Iterator[Row]:
    """The fine loss, forward and backward, against upsampling: time, memory, equality."""
    problem = FineProblem.of(settings.config(), settings.fine_batch)
    pair = in_turns(problem.ours, problem.upsampled, settings.repetitions)
    name = (
        f"fine loss, m = {problem.prototypes}, {len(problem.maps)} levels, {problem.images} images"
    )
    limit = "upsample, multiply, norm"
    yield at_least(f"{name}: time", limit, pair, 10.0)
    yield from _fine_memory(problem, name, limit, settings.children)
    error = problem.difference()
    yield Row(
        f"{name}: difference",
        "the same, gradients too",
        error,
        error,
        error,
        1e-5,
        at_least=False,
        ours=error,
        reference=0.0,
        unit="",
        figure="relative",
    )


def _fine_memory(problem: FineProblem, name: str, limit: str, children: int) -> Iterator[Row]:
    """Peak memory of both sides, each in fresh processes of its own, in turns."""
    size = problem.masks.shape[-1], problem.images
    ours, theirs = [], []
    for _ in range(children):
        ours.append(peaks_in_child(f"{__name__}:fine_peaks", *size))
        theirs.append(peaks_in_child(f"{__name__}:upsampled_peaks", *size))
    python = [statistics.median(peak.python for peak in side) / 1000 for side in (ours, theirs)]
    note = "Python's own heap, by tracemalloc: {:.3g} kB against {:.3g} kB".format(*python)
    pair = Pair(_megabytes(ours, "tensors"), _megabytes(theirs, "tensors"))
    yield at_least(f"{name}: peak of tensors", limit, pair, 10.0, unit="MB", note=note)
    pair = Pair(_megabytes(ours, "resident"), _megabytes(theirs, "resident"))
    if pair.ours:
        yield at_least(f"{name}: peak of resident memory", limit, pair, 10.0, unit="MB")


def _megabytes(peaks: Sequence[Peaks], kind: str) -> tuple[float, ...]:
    found = (getattr(peak, kind) for peak in peaks)
    return tuple(size / BYTES for size in found if size is not None)


def help_row(settings: Settings) -> Iterator[Row]:
    """The first answer of the command line against Python's own start."""

    def run(*arguments: str) -> Callable[[], object]:
        command = [sys.executable, *arguments]
        return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    pair = in_turns(
        run("-m", "protopyramid", "--help"), run("-c", "pass"), settings.quick_repetitions
    )
    over = [a - b for a, b in zip(pair.ours, pair.reference, strict=True)]
    ours, bare = statistics.median(pair.ours), statistics.median(pair.reference)
    yield Row(
        "protopyramid --help",
        "bare Python start",
        ours - bare,
        min(over),
        max(over),
        0.4,
        at_least=False,
        ours=ours,
        reference=bare,
        figure="s over it",
    )


def loader_row(settings: Settings) -> Iterator[Row]:
    """Fetching a batch (decoded images, augmentation) as a share of a small model's step."""
    if not settings.loader:
        return
    from protopyramid.data.manifest import read_manifest
    from protopyramid.data.phantoms import write_phantoms
    from protopyramid.data.store import ImageStore
    from protopyramid.training.features import CachePlace, FeatureSource

    config = settings.config(**{"model.backbone.width": 0.25})
    model = fresh_model(config)
    with tempfile.TemporaryDirectory() as folder:
        size = config.data.image_size
        manifest = write_phantoms(Path(folder), patients=6, size=size)
        samples = read_manifest(manifest).samples[: settings.cached_batch]
        place = CachePlace(Path(folder))
        source = FeatureSource("bench", model, ImageStore(samples, config.data), config, place)
        everything = np.arange(len(samples))
        labels = labels_of(len(samples), config)
        step = TrainingStep(config, model, list(train_steps(config))[-1])

        def fetch() -> FeatureBatch:
            return source.fresh(everything, np.zeros_like(everything), 0)

        pair = in_turns(fetch, lambda: step(fetch(), labels), settings.slow_repetitions)
    name = f"data: fetch and augment {len(samples)} decoded images"
    yield at_most(name, "the whole step at width 0.25", pair, 0.10, figure="of it")


class _Search:
    """A projection's search from the same prototypes each time, though it replaces them."""

    def __init__(self, prototypes: PrototypeLayer | None, config: Config, start: Tensor) -> None:
        assert prototypes is not None
        self.prototypes, self.config, self.start = prototypes, config, start
        self.collector = CandidateCollector(prototypes, config.projection)
        size = config.data.image_size
        self.masks = torch.zeros(1, size, size, dtype=torch.uint8)

    def update(self, z: dict[int, Tensor], images: Tensor, labels: Tensor) -> None:
        masks = self.masks.expand(len(images), -1, -1)
        free = torch.zeros(len(images), dtype=torch.bool)
        self.collector.update(PyramidBatch(z, images, labels, masks, free))

    def finish(self) -> None:
        project(self.prototypes, self.collector.result(), self.config.projection)
        with torch.no_grad():
            self.prototypes.vectors.copy_(self.start)


@dataclass(frozen=True)
class FineProblem:
    """Similarity maps, masks and class-pair weights of the default prototypes, for the fine loss."""

    maps: dict[int, Tensor]
    masks: Tensor
    inside: Tensor
    outside: Tensor

    @classmethod
    def of(cls, config: Config, count: int) -> FineProblem:
        """Random maps of a configuration whose levels all have the same classes, `count` lesions."""
        torch.manual_seed(0)
        model = fresh_model(config)
        prototypes, objective = _prototypes(model), build_objective(config)
        size = config.data.image_size
        rows = next(iter(prototypes.slices.values()))
        maps = {}
        for level in prototypes.slices:
            side = size // model.backbone.strides[level]
            shape = (count, rows.stop - rows.start, side, side)
            maps[level] = torch.rand(shape).mul_(2.0).sub_(1.0).requires_grad_()
        lesions = [n for n in range(len(config.data.classes)) if n != objective.negative]
        labels = torch.tensor(lesions)[torch.arange(count) % len(lesions)]
        classes = prototypes.classes[rows]
        pairs = (table[labels][:, classes] for table in (objective.inside, objective.outside))
        return cls(maps, round_masks(count, size), *pairs)

    @property
    def images(self) -> int:
        """Lesions in the batch."""
        return len(self.masks)

    @property
    def prototypes(self) -> int:
        """m, over all levels."""
        return sum(maps.shape[1] for maps in self.maps.values())

    def ours(self) -> tuple[Tensor, ...]:
        """Loss and gradients by stencils."""
        shared = MaskStencils(self.masks)
        parts = [
            fine_annotation(maps, shared, self.inside, self.outside) for maps in self.maps.values()
        ]
        return self._with_gradients(torch.stack(parts).sum())

    def upsampled(self) -> tuple[Tensor, ...]:
        """Loss and gradients by upsampling; the weights of pixels serve all levels."""
        weights = pixel_weights(self.masks, self.inside, self.outside)
        parts = [upsampled_fine_loss(maps, weights) for maps in self.maps.values()]
        return self._with_gradients(torch.stack(parts).sum())

    def difference(self) -> float:
        """Largest difference of loss and gradients, each relative to its largest value."""
        pairs = zip(self.ours(), self.upsampled(), strict=True)
        return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)

    def _with_gradients(self, loss: Tensor) -> tuple[Tensor, ...]:
        return (loss.detach(), *torch.autograd.grad(loss, list(self.maps.values())))


def fine_peaks(size: int, count: int) -> Peaks:
    """Peak memory of our fine loss; runs in a process of its own."""
    return _fine_peaks(size, count, "ours")


def upsampled_peaks(size: int, count: int) -> Peaks:
    """Peak memory of the upsampled fine loss; runs in a process of its own."""
    return _fine_peaks(size, count, "upsampled")


def _fine_peaks(size: int, count: int, side: str) -> Peaks:
    config = Settings().config(**{"data.image_size": size, "model.backbone.width": 0.125})
    getattr(FineProblem.of(config, 1), side)()  # the buffers of libraries are no part of the work
    return peaks_of(getattr(FineProblem.of(config, count), side))


def random_scores(labels: Tensor, classes: Tensor) -> Tensor:
    """Scores (N, m) as a trained model gives them: higher, and uncertain, for the own class."""
    torch.manual_seed(0)
    noise, lift = torch.rand(2, len(labels), len(classes)).unbind()
    own: Tensor = labels[:, None] == classes
    return noise * 0.2 + torch.where(own, lift * 0.15, 0.0)


def _features(model: PrototypeNetwork) -> torch.nn.Module:
    assert isinstance(model.backbone, VGG16)
    return model.backbone.features


def _prototypes(model: PrototypeNetwork) -> PrototypeLayer:
    assert model.prototypes is not None
    return model.prototypes


def projection_search(config: Config, count: int, size: int) -> Callable[[], None]:
    """A projection over `count` images in batches of `size`, its z given: the search and the choice."""
    model = fresh_model(config)
    start = _prototypes(model).vectors.detach().clone()
    with torch.no_grad():
        z = model.pyramid(random_images(size, config.data.image_size))
    labels = labels_of(count, config)

    def work() -> None:
        search = _Search(model.prototypes, config, start)
        for first in range(0, count, size):
            part = torch.arange(first, min(count, first + size))
            search.update(_first(z, len(part)), part, labels[part])
        search.finish()

    return work


def _first(z: dict[int, Tensor], count: int) -> dict[int, Tensor]:
    return {level: by_level[:count] for level, by_level in z.items()}


def _pyramid_alone(model: PrototypeNetwork, maps: dict[int, Tensor]) -> Callable[[], object]:
    """Forward and backward of the neck, with a gradient given for every level."""
    with torch.no_grad():
        gradients = {level: torch.randn_like(z) for level, z in model.neck(maps).items()}
    parameters = list(model.neck.parameters())

    def work() -> object:
        z = model.neck(maps)
        return torch.autograd.grad(
            [z[level] for level in z], parameters, [gradients[level] for level in z]
        )

    return work


def _cache_of(folder: Path, batch: FeatureBatch) -> FeatureCache:
    shapes = {level: (c.shape[1], c.shape[2], c.shape[3]) for level, c in batch.maps.items()}
    layout = CacheLayout(len(batch.masks), shapes, batch.masks.shape[-1], half=False)
    cache = FeatureCache(folder, layout, "w+")
    cache.write(np.arange(layout.rows), batch.maps, batch.masks, batch.annotated)
    return cache


ROWS: tuple[Callable[[Settings], Iterator[Row]], ...] = (
    forward_rows,
    latency_rows,
    training_row,
    cached_row,
    projection_rows,
    head_row,
    fine_rows,
    help_row,
    loader_row,
)


def all_rows(settings: Settings) -> Iterator[Row]:
    """Every row, as it is measured."""
    for measure in ROWS:
        yield from measure(settings)
