"""What `faithfulness` measures of a run, as it stands in evaluation/SPLIT-faithfulness.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopyramid.evaluation.results import Bootstrap
from protopyramid.metrics.bootstrap import Interval, mean_interval
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder
from protopyramid.utils import typed_json

Array = NDArray[np.float64]

REMEDY = "measure it again with protopyramid faithfulness"


@dataclass(frozen=True)
class Estimate:
    """A mean over pairs of image and prototype, with its interval; None where there are no pairs."""

    mean: float | None
    ci95: Interval


@dataclass(frozen=True)
class RegionFaithfulness:
    """How faithful one kind of region is.

    area: its share of the image. kept, removed: the share of the rise that is left when all else, or the
    region, is replaced; the median of the fillings, and beside it the mean with each filling alone.
    """

    area: Estimate
    kept: Estimate
    removed: Estimate
    kept_by_filling: Mapping[str, float | None]
    removed_by_filling: Mapping[str, float | None]


@dataclass(frozen=True)
class RankingCurves:
    """Deletion and insertion of the ranking of pixels that evidence regions come from, means over pairs.

    shares (T,) of the image from 0 to 1; deletion (T,): the share of the rise that is left when the
    best-ranked share is replaced; insertion (T,): when all else is. Areas under both.
    """

    shares: tuple[float, ...]
    deletion: tuple[float | None, ...]
    insertion: tuple[float | None, ...]
    deletion_area: Estimate
    insertion_area: Estimate

    def at(self, share: float) -> tuple[float | None, float | None]:
        """What the best-ranked share keeps, and what is left without it."""
        place = self.shares.index(share)
        return self.insertion[place], self.deletion[place]


@dataclass(frozen=True)
class MapMeasures:
    """Measures of the tested maps from the literature (`metrics.prototype_measures`), means over pairs.

    focused, dual: how far the highest similarity falls when only what is shown, or only the rest, is
    perturbed (CaBRNet); focused_wins: share of pairs whose first is the larger. pointing, energy: the
    pointing game and the energy-based one, of the map above its mean, against mask and lesion box, beside
    their chance levels. stability: share of pairs whose peak stays on the same part under noise (Huang).
    continuity: overlap of the shown regions before and after noise. contrastivity: 1 minus the overlap
    with what another prototype shows.
    """

    focused: Estimate
    dual: Estimate
    focused_wins: Estimate
    pointing_mask: Estimate
    pointing_box: Estimate
    energy_mask: Estimate
    energy_box: Estimate
    chance_mask: Estimate
    chance_box: Estimate
    stability: Estimate
    continuity: Estimate
    contrastivity: Estimate


@dataclass(frozen=True)
class PrototypeMeasures:
    """Measures over prototypes: consistency (Huang) with its interval, and purity (PIP-Net)."""

    consistency: Estimate
    purity: float | None


@dataclass(frozen=True)
class GroupFaithfulness:
    """The regions of the pairs of one level, one class, or all.

    shown: the strongest 5 % of the map; evidence: the smallest region found that keeps 90 %. Baselines:
    both moved to a random place; other_prototype: what another prototype of the level shows.
    half_maximum_area: the share of the image on which the map is above half of its maximum.
    """

    images: int
    pairs: int
    shown: RegionFaithfulness
    shown_elsewhere: RegionFaithfulness
    other_prototype: RegionFaithfulness
    evidence: RegionFaithfulness
    evidence_elsewhere: RegionFaithfulness
    half_maximum_area: Estimate | None = None  # None in files of earlier versions, as what follows
    curves: RankingCurves | None = None
    curves_elsewhere: RankingCurves | None = None
    measures: MapMeasures | None = None
    prototypes: PrototypeMeasures | None = None


@dataclass(frozen=True)
class UsedPrototypes:
    """Which prototypes ever matter on a split.

    shown: among the rows of some image's figure (the five largest contributions to the predicted class,
    by size); decisive: without it some image would get another class. It matters if either holds.
    """

    split: str
    images: int
    prototypes: int
    shown: tuple[int, ...]
    decisive: tuple[int, ...]

    @property
    def matter(self) -> tuple[int, ...]:
        """The indices of the prototypes that matter."""
        return tuple(sorted({*self.shown, *self.decisive}))


@dataclass(frozen=True)
class Target:
    """What faithful explanations should reach, and what was found. None: it could not be measured."""

    name: str
    value: float | None
    limit: float
    at_most: bool
    met: bool | None


@dataclass(frozen=True)
class Faithfulness:
    """The faithfulness of a run on a split. `maps`: whose maps were tested, prototypes or Grad-CAM.

    compactness (Co-12): the mean number of prototypes that make up 90 % of the contributions to the
    predicted class; model: the digest of what was measured; tta: copies of an image that its maps are the
    mean of. None in files of earlier versions.
    """

    system: str
    split: str
    manifest: str
    maps: str
    leaked: bool
    images: int
    patients: int
    seed: int
    bootstrap: Bootstrap
    all: GroupFaithfulness
    per_level: Mapping[str, GroupFaithfulness]
    per_class: Mapping[str, GroupFaithfulness]
    compactness: Estimate | None = None
    used: UsedPrototypes | None = None
    targets: tuple[Target, ...] = ()
    model: str | None = None
    tta: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The content of evaluation/SPLIT-faithfulness.json."""
        content: dict[str, Any] = typed_json.to_json(self)
        return content

    @classmethod
    def from_json(cls, content: object, place: str | Path) -> Faithfulness:
        """The inverse of to_json; UserError that names `place` where the content is damaged."""
        return typed_json.from_json(cls, content, place, REMEDY)


def read_faithfulness(folder: RunFolder, split: str = "test") -> Faithfulness | None:
    """The faithfulness of a run on a split, if it was measured."""
    name = layout.faithfulness(split)
    if not (folder / name).is_file():
        return None
    return Faithfulness.from_json(folder.read_json(name), folder / name)


def estimate(values: Array, image: NDArray[np.int64], weights: Array) -> Estimate:
    """The mean of the values (P,) of pairs, and its interval over resampled patients."""
    known = ~np.isnan(values)
    if not known.any():
        return Estimate(None, None)
    count = weights.shape[1]
    sums = np.bincount(image[known], values[known], minlength=count).astype(np.float64)
    counts = np.bincount(image[known], minlength=count).astype(np.float64)
    return Estimate(mean_of(values), mean_interval(sums, counts, weights))


def mean_of(values: Array) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
