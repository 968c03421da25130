"""Rows on training: a whole step, a step from cached maps, and the loading of images."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from protopyramid.benchmarks.references import BareClassifier, BareStep
from protopyramid.benchmarks.row import Row, at_most
from protopyramid.benchmarks.settings import (
    Settings,
    TrainingStep,
    bare_features,
    copy_of,
    fetched,
    fetched_images,
    fresh_model,
    labels_of,
    random_images,
    train_steps,
)
from protopyramid.benchmarks.timing import in_turns
from protopyramid.model.backbones import IMAGE
from protopyramid.model.necks import COARSEST
from protopyramid.model.network import PrototypeNetwork
from protopyramid.training.feature_cache import CacheLayout, FeatureCache
from protopyramid.training.features import FeatureBatch

# Ours: times the same step of a bare classifier, times the pyramid alone, share of a step.
STEP_TARGET, CACHED_TARGET, LOADER_TARGET = 1.2, 1.2, 0.10


def training_row(settings: Settings) -> Iterator[Row]:
    """A step with everything learning against the same step of a bare classifier."""
    config = settings.config()
    model = fresh_model(config)
    step = list(train_steps(config))[-1]
    bare_model = copy_of(model)
    bare = BareStep(
        BareClassifier(
            bare_features(bare_model), model.backbone.channels[COARSEST], len(config.data.classes)
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
    yield at_most(name, "bare VGG-16 + linear, same step", pair, STEP_TARGET)


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
    yield at_most(name, "pyramid alone, forward + backward", pair, CACHED_TARGET, note=note)


def loader_row(settings: Settings) -> Iterator[Row]:
    """Fetching and augmenting a batch of decoded images, as a share of a small model's step."""
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
    yield at_most(name, "the whole step at width 0.25", pair, LOADER_TARGET, figure="of it")


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
