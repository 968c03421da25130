"""The images of one split: their labels, and where their features come from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopyramid.config.schema import Config
from protopyramid.data.manifest import Manifest
from protopyramid.data.store import ImageStore
from protopyramid.model.network import PrototypeNetwork
from protopyramid.training.features import CachePlace, FeatureSource

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """N images.

    labels (N,): class numbers; lesions (N,): whether annotated and not of the negative class; sources
    (N,): numbers of the datasets that they come from.
    """

    source: FeatureSource
    labels: Indices
    lesions: NDArray[np.bool_]
    sources: Indices

    @property
    def everything(self) -> Indices:
        """All indices, (N,)."""
        return np.arange(len(self.labels))

    @property
    def names(self) -> list[str]:
        """The images' names in their manifest."""
        return [sample.name for sample in self.source.store.samples]


def make_split(
    name: str, manifest: Manifest, config: Config, model: PrototypeNetwork, place: CachePlace
) -> Split:
    """The split of a manifest, with features computed by the model."""
    samples = manifest.split(name)
    data = config.data
    source = FeatureSource(name, model, ImageStore(samples, data), config, place)
    labels = np.array([data.classes.index(sample.label) for sample in samples], dtype=np.int64)
    lesions = [
        sample.label != data.negative_class and (sample.mask is not None or sample.box is not None)
        for sample in samples
    ]
    names = sorted({sample.source for sample in samples})
    sources = np.array([names.index(sample.source) for sample in samples], dtype=np.int64)
    return Split(source, labels, np.array(lesions, dtype=bool), sources)
