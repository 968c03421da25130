"""Features that training starts from: of the images, or from the cache of the frozen part."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.config.schema import Config
from protopyramid.data.augmentation import augment
from protopyramid.data.store import ImageStore, Loaded
from protopyramid.data.transplant import transplanted
from protopyramid.errors import UserError
from protopyramid.inference.batches import device_of, model_input
from protopyramid.model.backbones import IMAGE, LEVELS
from protopyramid.model.network import PrototypeNetwork
from protopyramid.training import feature_cache
from protopyramid.training.distributed import all_reduce_max, node_share
from protopyramid.training.feature_cache import CacheLayout, FeatureCache
from protopyramid.utils.progress import Reporter

Indices = NDArray[np.int64]
# The second number of an augmentation key: fixed copies come first, then fresh ones by epoch.
FIXED_COPIES = 10_000
REPEATS = 1_000
PARTS = PLAIN, FIXED = "plain", "fixed"  # folders of a cache: images as they are, augmented copies
TRANSPLANT = 1  # an independent stream of random numbers beside that of an augmentation key
KEY_LETTERS = 16  # of a cache's key, enough to name its folder


@dataclass(frozen=True)
class CachePlace:
    """Where caches are kept: in the run's folder, or in one that runs with the same frozen part share.

    A shared cache has the maps of all levels up to the cut, whichever of them the run's neck reads.
    """

    folder: Path
    shared: bool = False


class FeatureBatch(NamedTuple):
    """A batch ready for the network: maps to start from {block: (B, C, H, W)}, with the image under
    block 0; masks (B, S, S), 1 inside; annotated (B,) bool."""

    maps: dict[int, Tensor]
    masks: Tensor
    annotated: Tensor


class FeatureSource:
    """The images of one split, as maps for the network to start from."""

    def __init__(
        self,
        name: str,
        model: PrototypeNetwork,
        store: ImageStore,
        config: Config,
        place: CachePlace,
    ) -> None:
        self.name, self.model, self.store, self.config = name, model, store, config
        self.place = place
        self._plain: FeatureCache | None = None  # one row per image
        self._fixed: FeatureCache | None = None  # one row per image and copy
        self._key = ""
        self._copies = 0

    def plain(self, images: Indices) -> FeatureBatch:
        """Images as they are."""
        if self._plain is not None:
            return self._cached(self._plain, images)
        return self._loaded(images, None)

    def fresh(self, images: Indices, repeats: Indices, epoch: int) -> FeatureBatch:
        """New augmented copies of images, which depend on seed, epoch and index alone."""
        draws = FIXED_COPIES + epoch * REPEATS + np.minimum(repeats, REPEATS - 1)
        return self._loaded(images, draws)

    def fixed(self, images: Indices, repeats: Indices, epoch: int, copies: int) -> FeatureBatch:
        """One of the fixed augmented copies of each image, another one in each epoch."""
        chosen = (epoch + images + repeats) % copies
        if self._fixed is not None and copies == self._copies:
            return self._cached(self._fixed, images * copies + chosen)
        return self._loaded(images, chosen)

    def prefetch(self, images: Indices) -> None:
        """Start decoding images that will soon be asked for."""
        if self._plain is None:
            self.store.prefetch(images.tolist())

    # -- the cache -------------------------------------------------------------------------------
    def layouts(self, cut: int, copies: int) -> list[CacheLayout]:
        """What a cache at this cut would hold: images as they are and, if any, their augmented copies.

        Half precision is good enough to train on, not to project on: only the copies have it, and only
        they hold the images too, for the context loss. The shapes are found by a dry run on one image.
        """
        size = self.config.data.image_size
        maps = self._at_cut(torch.zeros(1, 3, size, size), cut)
        shapes = {block: (m.shape[1], m.shape[2], m.shape[3]) for block, m in maps.items()}
        plain = CacheLayout(len(self.store), shapes, size, half=False)
        if not copies:
            return [plain]
        if self.config.uses_loss("context"):
            shapes = {IMAGE: (3, size, size), **shapes}
        half = self.config.train.cache.half
        return [plain, CacheLayout(len(self.store) * copies, shapes, size, half)]

    def key(self, cut: int, copies: int) -> str:
        """What a cache depends on, as a digest: the frozen weights, the images and their preparation."""
        return self._key_of(cut, copies, self.layouts(cut, copies))

    def open_cache(self, cut: int, copies: int, fabric: Fabric, reporter: Reporter) -> None:
        """Use the cache of this cut and these copies, building it where it is not complete.

        Every machine has its own: mapped files that several machines write are not safe on all file
        systems, and reading is what has to be fast.
        """
        layouts = self.layouts(cut, copies)
        key = self._key_of(cut, copies, layouts)
        if self._plain is not None and key == self._key:
            return
        node = f"node-{fabric.node_rank}"
        folder = self.place.folder / (key[:KEY_LETTERS] if self.place.shared else "") / node
        first = fabric.local_rank == 0
        with _held(folder, reporter) if first and self.place.shared else nullcontext():
            folder = folder / self.name
            if all_reduce_max(fabric, int(first and not _is_usable(folder, key, layouts))):
                self.close_cache()
                self._build(folder, layouts, cut, fabric, reporter)
                fabric.barrier()
                if first:
                    feature_cache.mark_complete(folder, key)
        caches = [
            FeatureCache(folder / name, layout, "r")
            for name, layout in zip(PARTS, layouts, strict=False)
        ]
        self._plain, self._fixed = caches[0], caches[1] if copies else None
        self._key, self._copies = key, copies

    def close_cache(self) -> None:
        """Go back to the images."""
        self._plain = self._fixed = None
        self._key, self._copies = "", 0

    def _build(
        self,
        folder: Path,
        layouts: Sequence[CacheLayout],
        cut: int,
        fabric: Fabric,
        reporter: Reporter,
    ) -> None:
        if fabric.local_rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            feature_cache.check_budget(folder, layouts, self.config.train.cache.disk_budget)
        for name, layout in zip(PARTS, layouts, strict=False):
            if fabric.local_rank == 0:
                (folder / name).mkdir()
                FeatureCache(folder / name, layout, "w+")
            fabric.barrier()
            cache = FeatureCache(folder / name, layout, "r+")
            copies = 0 if name == PLAIN else layout.rows // len(self.store)
            self._fill(cache, copies, cut, fabric, reporter)

    def _fill(
        self, cache: FeatureCache, copies: int, cut: int, fabric: Fabric, reporter: Reporter
    ) -> None:
        """Compute and write this process's share of the rows: of augmented copies, or of the images.

        Copies are for optimiser steps and in their precision; images as they are stay exact.
        """
        batches = list(
            feature_cache.row_batches(cache.layout.rows, self.config.train.eval_batch_size)
        )
        own = node_share(fabric, batches)
        what = f"caching features of {self.name} images" + (" (augmented)" if copies else "")
        total = sum(len(rows) for rows in own)
        with reporter.activity(what, total, "copies" if copies else "images") as activity:
            for rows in own:
                batch = self._loaded(*((rows // copies, rows % copies) if copies else (rows, None)))
                with fabric.autocast() if copies else nullcontext():
                    maps = self._at_cut(batch.maps[IMAGE], cut)
                if IMAGE in cache.layout.shapes:
                    maps[IMAGE] = batch.maps[IMAGE]
                cache.write(rows, maps, batch.masks, batch.annotated)
                activity.advance(len(rows))
        cache.flush()

    def _at_cut(self, images: Tensor, cut: int) -> dict[int, Tensor]:
        """The maps that cross a cut: that of the block itself, and finer ones that the neck reads."""
        model = self.model
        read = LEVELS if self.place.shared else model.neck.inputs
        keep = {cut, *(level for level in read if level <= cut)}
        modes = [(module, module.training) for module in model.backbone.modules()]
        model.backbone.eval()
        with torch.no_grad():
            maps = model.backbone.advance({IMAGE: images.to(device_of(model))}, keep)
        for module, mode in modes:
            module.training = mode
        return maps

    def _key_of(self, cut: int, copies: int, layouts: Sequence[CacheLayout]) -> str:
        return feature_cache.cache_key(
            self._frozen_state(cut), cut, copies, layouts, *self._facts()
        )

    def _frozen_state(self, cut: int) -> dict[str, Tensor]:
        return {
            f"{number}.{name}": tensor
            for number in range(1, cut + 1)
            for name, tensor in self.model.backbone.block(number).state_dict().items()
        }

    def _facts(self) -> tuple[object, ...]:
        names = tuple(sample.name for sample in self.store.samples)
        data = self.config.data
        dicom = data.dicom.model_dump_json()
        fixed = (data.image_size, data.fit, dicom, data.mean, data.std, self.config.train.seed)
        padding = self.config.model.backbone.padding  # not part of the frozen weights
        precision = self.config.train.precision
        augmentation = self.config.augmentation.model_dump_json()
        facts: tuple[object, ...] = (names, fixed, padding, precision, augmentation)
        if data.annotation != "lesion":  # the cache holds masks too
            facts += (data.annotation, data.margin_band.model_dump_json())
        if data.crop != "none":  # another margin is another part of the film
            facts += (data.crop, data.region.model_dump_json())
        return facts

    def _cached(self, cache: FeatureCache, rows: Indices) -> FeatureBatch:
        maps, masks, annotated = cache.read(rows)
        device = device_of(self.model)
        maps = {block: m.to(device, non_blocking=True) for block, m in maps.items()}
        return FeatureBatch(maps, masks.to(device), annotated.to(device))

    # -- the images ------------------------------------------------------------------------------
    def _loaded(self, images: Indices, draws: Indices | None) -> FeatureBatch:
        """Images as they are (draws None) or augmented with the key of each draw."""
        loaded = self.store.load(images.tolist())
        pictures, masks = loaded.images, loaded.masks
        if draws is not None:
            seed = self.config.train.seed
            keys = [(seed, int(d), int(image)) for d, image in zip(draws, images, strict=True)]
            if self.config.augmentation.transplant:
                pictures = self._transplant(loaded, images, keys)
            pictures, masks = augment(pictures, masks, keys, self.config.augmentation)
        device = device_of(self.model)
        channels_last = self.config.train.channels_last
        ready = model_input(pictures, self.config.data, device, channels_last)
        return FeatureBatch({IMAGE: ready}, masks.to(device), loaded.annotated.to(device))

    def _transplant(
        self, loaded: Loaded, images: Indices, keys: Sequence[tuple[int, int, int]]
    ) -> Tensor:
        """The pictures (B, C, S, S) of a batch, some lesions of it in the surroundings of negative images."""
        settings, pictures = self.config.augmentation, loaded.images
        negatives = self._negatives
        if not len(negatives):
            raise UserError(
                "augmentation.transplant needs training images of the negative class (data.negative_class); "
                "set it to 0"
            )
        for row, key in enumerate(keys):
            random = np.random.default_rng((*key, TRANSPLANT))
            chance, chosen = random.random(), int(random.choice(negatives))
            if chance >= settings.transplant or not loaded.masks[row].any():
                continue
            if images[row] in negatives:
                continue
            background = self.store.load([chosen]).images[0].expand_as(pictures[row])
            moved = transplanted(
                pictures[row].numpy(),
                loaded.masks[row].numpy(),
                background.numpy(),
                settings.transplant_margin,
            )
            pictures[row] = torch.from_numpy(moved)
        return pictures

    @cached_property
    def _negatives(self) -> Indices:
        """Indices of the images of the negative class."""
        negative = self.config.data.negative_class
        labels = [sample.label == negative for sample in self.store.samples]
        return np.flatnonzero(labels) if negative else np.empty(0, np.int64)


@contextmanager
def _held(folder: Path, reporter: Reporter) -> Iterator[None]:
    """Hold the folder of a shared cache, and say so while another process builds it."""
    with ExitStack() as stack:
        with reporter.activity("waiting for another process to build the feature cache") as waiting:
            stack.enter_context(feature_cache.hold(folder, waiting.advance))
        yield


def _is_usable(folder: Path, key: str, layouts: Sequence[CacheLayout]) -> bool:
    """Whether a folder holds the finished cache of a key, with all of its files."""
    parts = zip(PARTS, layouts, strict=False)
    return feature_cache.is_complete(folder, key) and all(
        feature_cache.is_whole(folder / name, layout) for name, layout in parts
    )
