"""Measures of maps and prototypes from the literature, on the images of `faithfulness`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.evaluation.faithfulness_results import Estimate, PrototypeMeasures, estimate
from protopyramid.explanations.evidence import PerturbedImage, upsampled
from protopyramid.inference.batches import device_of, model_input
from protopyramid.metrics.faithfulness import blurred, energy_pointing_game, replace_regions
from protopyramid.metrics.localisation import places
from protopyramid.metrics.prototype_measures import (
    UNKNOWN,
    consistency,
    consistency_interval,
    darkened,
    explanation_size,
    noisy,
    overlap,
    part_maps,
    parts_at_peaks,
    peak_drop,
    purity,
)
from protopyramid.model.activation import activation_maps, strongest_region
from protopyramid.prototypes.cases import layer_of

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

Array = NDArray[np.float64]


class ImageUnderTest(NamedTuple):
    """An image with all that its measures need.

    pixels (C, S, S) in [0, 1]; other, of the negative class and the same size; label, its class; number, its
    place among the images drawn; fine, lesion: annotations, bool (1, S, S), empty where missing.
    """

    pixels: Tensor
    other: Tensor | None
    label: int
    number: int
    fine: Tensor
    lesion: Tensor


def map_measures(
    run: Run, perturbed: PerturbedImage, image: ImageUnderTest, tested: Sequence[int], shown: Tensor
) -> Array:
    """The fields of MapMeasures but the last for each tested map; shown, bool (n, S, S). -> (n, 11)."""
    drops = focused_and_dual(perturbed, tested, shown)
    wins = np.where(np.isnan(drops[:, :1]), np.nan, drops[:, :1] > drops[:, 1:])
    columns = [drops, wins, _pointing(perturbed, image, tested)]
    columns.append(_under_noise(run, perturbed, image, tested, shown))
    return np.concatenate([each.astype(np.float64) for each in columns], axis=1)


def focused_and_dual(perturbed: PerturbedImage, tested: Sequence[int], shown: Tensor) -> Array:
    """How far peaks fall when only what is shown, and only the rest, is perturbed: (n, 2).

    The mean over two perturbations, blur and darkening.
    """
    found = []
    for regions in (shown, ~shown):
        drops = []
        for change in (blurred, darkened):
            changed = replace_regions(perturbed.image, change(perturbed.image), regions)
            after = _maps(perturbed, changed, tested)
            drops += [
                peak_drop(perturbed.map(index)[None], after[n][n : n + 1])
                for n, index in enumerate(tested)
            ]
        found.append(np.concatenate(drops).reshape(2, len(tested)).mean(0))
    return np.stack(found, axis=1)


def _maps(perturbed: PerturbedImage, images: Tensor, tested: Sequence[int]) -> list[Tensor]:
    """The similarity maps of each tested prototype on images (N, C, S, S): n times (N, h, w)."""
    maps = perturbed.maps_of(images)
    places = [perturbed.level_and_row(index) for index in tested]
    return [maps[level][:, row] for level, row in places]


def _pointing(perturbed: PerturbedImage, image: ImageUnderTest, tested: Sequence[int]) -> Array:
    """Pointing game and energy inside mask and box, and chance levels. -> (n, 6)."""
    activation = upsampled(perturbed, tested)
    count, shape = len(tested), activation.shape
    fine, lesion = image.fine.expand(shape), image.lesion.expand(shape)
    found = places(activation, fine, lesion)
    above = activation - activation.mean((-2, -1), keepdim=True)  # similarities have any offset
    energies = [energy_pointing_game(above, each) for each in (fine, lesion)]
    chances = [float(each.double().mean()) or np.nan for each in (image.fine, image.lesion)]
    levels = [np.full(count, chance) for chance in chances]
    columns = [found.pointing_fine, found.pointing_lesion, *energies, *levels]
    return np.stack(columns, axis=1)


def _under_noise(
    run: Run, perturbed: PerturbedImage, image: ImageUnderTest, tested: Sequence[int], shown: Tensor
) -> Array:
    """Stability and continuity: (n, 2)."""
    deviation = torch.tensor(run.config.data.std)[: len(image.pixels)]
    changed = noisy(image.pixels[None], deviation, image.number)
    size = perturbed.size
    after = torch.cat(
        [
            activation_maps(maps[:, None].float(), size, size)[:, 0]
            for maps in _maps(perturbed, changed, tested)
        ]
    )
    parts = part_maps(image.fine, image.lesion).expand(after.shape)
    first, second = (parts_at_peaks(maps, parts) for maps in (upsampled(perturbed, tested), after))
    same = np.where(first == UNKNOWN, np.nan, first == second)
    return np.stack([same, overlap(shown, strongest_region(after))], axis=1)


class PrototypePass:
    """Collects what measures over prototypes need, image by image."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._parts: list[NDArray[np.int64]] = []
        self._scores: list[Array] = []
        self._sizes: list[int] = []

    def update(self, image: ImageUnderTest) -> None:
        """Take in an image; nothing where the model has no prototypes."""
        run, model = self._run, self._run.model
        if model.prototypes is None:
            return
        model.eval()
        with torch.inference_mode():
            found = model(model_input(image.pixels[None], run.config.data, device_of(model)))
        size, parts = image.pixels.shape[-1], part_maps(image.fine, image.lesion)
        at_peaks = []
        for maps in found.maps.values():
            activation = activation_maps(maps.cpu().float(), size, size)[0]
            at_peaks.append(parts_at_peaks(activation, parts.expand(activation.shape)))
        own = layer_of(model).classes.cpu().numpy() == image.label
        self._parts.append(np.where(own, np.concatenate(at_peaks), UNKNOWN))
        self._scores.append(found.scores[0].double().cpu().numpy())
        weight = model.head.weight.detach().cpu().double().numpy()[int(found.logits.argmax())]
        self._sizes.append(int(explanation_size(weight[None] * self._scores[-1][None])[0]))

    def of_all(self, weights: Array) -> PrototypeMeasures | None:
        """The measures of all prototypes. weights (R, N) of resamples."""
        return self._measures(None, weights)

    def of_level(self, level: int, weights: Array) -> PrototypeMeasures | None:
        """Those of a level."""
        if not self._parts:
            return None
        return self._measures(layer_of(self._run.model).levels.cpu().numpy() == level, weights)

    def of_class(self, label: int, weights: Array) -> PrototypeMeasures | None:
        """Those of a class."""
        if not self._parts:
            return None
        return self._measures(layer_of(self._run.model).classes.cpu().numpy() == label, weights)

    def compactness(self, weights: Array) -> Estimate | None:
        """The mean number of prototypes that make up 90 % of the contributions."""
        if not self._sizes:
            return None
        sizes = np.array(self._sizes, dtype=np.float64)
        return estimate(sizes, np.arange(len(sizes)), weights)

    def _measures(
        self, chosen: NDArray[np.bool_] | None, weights: Array
    ) -> PrototypeMeasures | None:
        if not self._parts:
            return None
        parts, scores = np.stack(self._parts), np.stack(self._scores)
        if chosen is not None:
            parts, scores = parts[:, chosen], scores[:, chosen]
        mean = consistency(parts, np.ones(len(parts)))
        interval = None if mean is None else consistency_interval(parts, weights)
        return PrototypeMeasures(Estimate(mean, interval), purity(parts, scores))
