"""Where prototypes activate: activation precision, the pointing game, and areas.

Activation precision is the share of the kept pixels of an activation map (its top 5 %) that lie inside
the annotation (IAIA-BL); only prototypes of the image's own class count. The pointing game (Zhang et al.
2018) asks whether a map's highest pixel is inside. Both are always given beside their chance level, the
annotation's share of the pixels. Without an annotation they are None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.metrics.bootstrap import Interval, mean_interval
from protopyramid.model.activation import activation_maps, strongest_region

Array = NDArray[np.float64]

CONSTANT = 1e-5  # relative difference below which two values of a map are taken as the same
BLOCK = 4_000_000  # pixels of activation maps that exist at once


class Places(NamedTuple):
    """Where N activation maps activate; all (N,) float64, NaN where the annotation is missing.

    fine and lesion: activation precision inside mask and lesion box; pointing_fine and pointing_lesion:
    the pointing game, 1 where the highest pixel is inside, else 0 (the share inside, where several pixels
    are as high); area: share of the pixels above half maximum.
    """

    fine: Array
    lesion: Array
    pointing_fine: Array
    pointing_lesion: Array
    area: Array


@dataclass(frozen=True)
class PairMean:
    """Mean over pairs of an image and a prototype of its class, with its 95 % interval."""

    mean: float | None
    ci95: Interval
    per_class: Mapping[str, float | None]
    per_level: Mapping[str, float | None]
    images: int
    pairs: int


@dataclass(frozen=True)
class PairMeanWithChance(PairMean):
    """A mean beside its chance level over the same pairs.

    The chance level of a class on one level is that of the class: every level has the same images.
    """

    chance: float | None
    chance_per_class: Mapping[str, float | None]
    chance_per_level: Mapping[str, float | None] = field(default_factory=dict)
    per_class_and_level: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class BothScales:
    """A metric inside the fine annotation and inside the lesion box."""

    fine: PairMeanWithChance
    lesion: PairMeanWithChance


@dataclass(frozen=True)
class LocalisationSummary:
    """Where the prototypes of a run activate on a split."""

    activation_precision: BothScales
    pointing_game: BothScales
    activation_area: PairMean


def box_masks(boxes: Tensor, size: int) -> Tensor:
    """Pixels whose centre is in the box. (B, 4) in pixels, NaN = no box -> bool (B, size, size).

    A box between pixel centres takes the pixel of its own centre.
    """
    centres = torch.arange(size, dtype=torch.float32) + 0.5
    x0, y0, x1, y1 = (boxes[:, side, None] for side in range(4))
    inside_x = (centres >= x0) & (centres < x1)
    inside_y = (centres >= y0) & (centres < y1)
    for inside, low, high in ((inside_x, x0, x1), (inside_y, y0, y1)):
        thin = ~inside.any(1) & ~low[:, 0].isnan()
        middle = ((low + high) / 2)[thin, 0].long().clamp(0, size - 1)
        inside[thin.nonzero()[:, 0], middle] = True
    return inside_y[:, :, None] & inside_x[:, None, :]


def places(activation: Tensor, fine: Tensor, lesion: Tensor) -> Places:
    """Where activation maps (N, H, W) activate, given annotations bool (N, H, W).

    An annotation without any pixel counts as missing. Works on any maps: PAMs, Grad-CAM.
    """
    flat, lowest, highest = _without_noise(activation)
    kept = strongest_region(flat.view(activation.shape)).flatten(1)
    area = _half_maximum_area(flat, lowest, highest)
    # All pixels at the maximum: a peak at the border is a plateau after upsampling.
    peak = flat >= (highest - CONSTANT * highest.abs())[:, None]
    shares: list[Array] = []
    hits: list[Array] = []
    for annotation in (fine.flatten(1), lesion.flatten(1)):
        missing = ~annotation.any(1)
        for region, values in ((kept, shares), (peak, hits)):
            inside = (region & annotation).sum(1).double() / region.sum(1)
            values.append(inside.masked_fill(missing, torch.nan).numpy())
    return Places(shares[0], shares[1], hits[0], hits[1], area)


def half_maximum_areas(activation: Tensor) -> Array:
    """The share of the pixels of each map (N, H, W) that are above half maximum. -> (N,)."""
    return _half_maximum_area(*_without_noise(activation))


def _without_noise(activation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Maps (N, H, W) as rows (N, H W), their lowest and their highest values (N,).

    Upsampling leaves rounding noise on a constant map; it must not choose a region.
    """
    flat = activation.flatten(1).float()
    lowest, highest = flat.aminmax(dim=1)
    constant = highest - lowest <= CONSTANT * highest.abs()
    lowest = torch.where(constant, highest, lowest)
    return torch.where(constant[:, None], highest[:, None], flat), lowest, highest


def _half_maximum_area(flat: Tensor, lowest: Tensor, highest: Tensor) -> Array:
    # Halfway from the lowest to the highest value, so that similarities with any offset compare.
    half = torch.where(lowest == highest, highest, (lowest + highest) / 2)
    share: Array = (flat >= half[:, None]).double().mean(1).numpy()
    return share


@dataclass
class Localisation:
    """Places of many (image, prototype) pairs: arrays of P pairs, and chance levels of N images."""

    image: NDArray[np.int64]
    prototype: NDArray[np.int64]
    places: Places
    chance_fine: Array
    chance_lesion: Array


@dataclass
class LocalisationPass:
    """Collects the places of own-class prototypes over the batches of a pass.

    classes, levels (m,): those of the prototypes, which are ordered by level.
    """

    classes: Tensor
    levels: Tensor
    _images: list[NDArray[np.int64]] = field(default_factory=list)
    _prototypes: list[NDArray[np.int64]] = field(default_factory=list)
    _places: list[Places] = field(default_factory=list)
    _chance: list[tuple[Array, Array]] = field(default_factory=list)
    _seen: int = 0

    def update(
        self, maps: Mapping[int, Tensor], labels: Tensor, fine: Tensor, lesion: Tensor
    ) -> None:
        """Take in a batch: maps {level: (B, m_level, h, w)}, labels (B,), annotations bool (B, S, S)."""
        size = fine.shape[-1]
        for level, level_maps in maps.items():
            numbers = (self.levels == level).nonzero()[:, 0]
            pairs = (labels[:, None] == self.classes[numbers][None, :]).nonzero()
            step = max(1, BLOCK // size**2)
            for start in range(0, len(pairs), step):
                rows, columns = pairs[start : start + step].unbind(1)
                similarity = level_maps[rows, columns].cpu()
                activation = activation_maps(similarity[:, None], size, size)[:, 0]
                self._places.append(places(activation, fine[rows], lesion[rows]))
                self._images.append((rows + self._seen).numpy())
                self._prototypes.append(numbers[columns].numpy())
        self._chance.append((annotation_share(fine), annotation_share(lesion)))
        self._seen += len(labels)

    def result(self) -> Localisation:
        """All pairs so far."""
        empty = np.zeros(0)
        found = [np.concatenate(parts) for parts in zip(*self._places, strict=True)]
        chance = [np.concatenate(parts) for parts in zip(*self._chance, strict=True)]
        return Localisation(
            np.concatenate([np.zeros(0, np.int64), *self._images]),
            np.concatenate([np.zeros(0, np.int64), *self._prototypes]),
            Places(*found) if found else Places(empty, empty, empty, empty, empty),
            *(chance if chance else (empty, empty)),
        )


def annotation_share(annotation: Tensor) -> Array:
    """The annotation's share of the pixels, NaN where it is missing. bool (B, S, S) -> (B,)."""
    share: Array = annotation.flatten(1).double().mean(1).numpy()
    return np.where(share > 0, share, np.nan)


def summarise(
    localisation: Localisation,
    labels: NDArray[np.int64],
    levels: NDArray[np.int64],
    classes: Sequence[str],
    weights: Array,
) -> LocalisationSummary:
    """Where the prototypes of a model activate on a split.

    labels (N,) of the images, levels (m,) of the prototypes, weights (R, N) of bootstrap resamples.
    Means are over pairs of an annotated image and a prototype of its class.
    """
    pairs = _Pairs(localisation, labels, levels, classes, weights)
    found = localisation.places
    return LocalisationSummary(
        activation_precision=BothScales(
            fine=pairs.with_chance(found.fine, localisation.chance_fine),
            lesion=pairs.with_chance(found.lesion, localisation.chance_lesion),
        ),
        pointing_game=BothScales(
            fine=pairs.with_chance(found.pointing_fine, localisation.chance_fine),
            lesion=pairs.with_chance(found.pointing_lesion, localisation.chance_lesion),
        ),
        activation_area=pairs.mean(found.area),
    )


def nothing_localised(images: int) -> Localisation:
    """The localisation of a model without prototypes: no pairs."""
    empty, integers, missing = np.zeros(0), np.zeros(0, np.int64), np.full(images, np.nan)
    return Localisation(integers, integers, Places(*[empty] * 5), missing, missing)


def per_image(values: Array, localisation: Localisation, images: int) -> Array:
    """Mean of the values (P,) of each image's pairs, NaN where it has none. -> (images,)."""
    sums, counts = _sums(values, localisation.image, images)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _sums(values: Array, image: NDArray[np.int64], images: int) -> tuple[Array, Array]:
    known = ~np.isnan(values)
    sums = np.bincount(image[known], values[known], minlength=images).astype(np.float64)
    counts = np.bincount(image[known], minlength=images).astype(np.float64)
    return sums, counts


@dataclass(frozen=True)
class _Pairs:
    """Means over pairs, in all, by class of the image and by level of the prototype."""

    localisation: Localisation
    labels: NDArray[np.int64]
    levels: NDArray[np.int64]
    classes: Sequence[str]
    weights: Array

    def mean(self, values: Array) -> PairMean:
        """The mean of values (P,)."""
        image = self.localisation.image
        known = ~np.isnan(values)
        sums = _sums(values, image, len(self.labels))
        return PairMean(
            mean=_mean(values),
            ci95=mean_interval(*sums, self.weights) if known.any() else None,
            per_class=self._per_class(values),
            per_level=self._per_level(values),
            images=len(np.unique(image[known])),
            pairs=int(known.sum()),
        )

    def with_chance(self, values: Array, chance: Array) -> PairMeanWithChance:
        """The mean of values (P,) beside that of chance levels (N,) over the same pairs."""
        level = np.where(np.isnan(values), np.nan, chance[self.localisation.image])
        return PairMeanWithChance(
            **vars(self.mean(values)),
            chance=_mean(level),
            chance_per_class=self._per_class(level),
            chance_per_level=self._per_level(level),
            per_class_and_level={
                name: self._per_level(np.where(owned, values, np.nan))
                for name, owned in self._owned()
            },
        )

    def _per_class(self, values: Array) -> dict[str, float | None]:
        return {name: _mean(values[owned]) for name, owned in self._owned()}

    def _per_level(self, values: Array) -> dict[str, float | None]:
        levels = self.levels[self.localisation.prototype]
        return {str(each): _mean(values[levels == each]) for each in np.unique(self.levels)}

    def _owned(self) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Each class, and which pairs are of its images, (P,)."""
        owners = self.labels[self.localisation.image]
        return ((name, owners == number) for number, name in enumerate(self.classes))


def _mean(values: Array) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
