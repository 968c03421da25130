"""Evidence regions: the smallest part of an image that a prototype's similarity needs.

The usual picture of a prototype, its upsampled map, shows where the similarity is high. What made it high
may lie around: a cell sees far more of the image than it covers. An *evidence region* is tested instead:
pixels are ranked by an attribution of the similarity, and of a ladder of sizes the smallest is taken that
keeps at least 90 % of the rise when all else is replaced (`metrics.faithfulness`).

Cost: a search over seven sizes, which begins where the attribution predicts that enough is kept, takes about
two forward passes per prototype with one filling, and the other fillings confirm the size found, three or
four in all; the ranking takes what its method says. Passes are batched over prototypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.config.schema import DataConfig
from protopyramid.inference.batches import device_of, model_input
from protopyramid.metrics.faithfulness import (
    SMALLEST_RISE,
    fillings,
    gaussian,
    median_of_fillings,
    replace_regions,
    rise,
    top_cells,
)
from protopyramid.model.activation import Box, activation_maps, region_box
from protopyramid.model.network import PrototypeNetwork
from protopyramid.prototypes.cases import layer_of
from protopyramid.runs.run import Run

KEPT = 0.9  # of the rise, that an evidence region keeps
SHARES = (0.02, 0.04, 0.08, 0.15, 0.25, 0.4, 0.6)  # of the image, tried as sizes; then all of it
LIKELY = 0.4  # predicted share of the rise, that the first region tried keeps: predictions are low
WORTH = (
    0.8  # predicted share, corrected by what was found, that a smaller region must keep to be tried
)
BATCH = 16  # changed images per forward pass
SMOOTHING = 1 / 28  # standard deviation that gradients are smoothed with, as a share of the side
NOISY_COPIES = 4  # of SmoothGrad
NOISE = 0.1  # standard deviation of SmoothGrad's noise, of a grey range of 1
GRID = 7  # squares of occlusion along a side

MapsOf = Callable[[Tensor], dict[int, Tensor]]  # images in [0, 1] -> {level: (B, m_level, h, w)}
Ranking = Callable[["PerturbedImage", Sequence[int]], Tensor]


@dataclass(frozen=True, eq=False)
class EvidenceRegion:
    """The part of an image that a prototype's similarity needs.

    mask (S, S) bool; box: fractions x0, y0, x1, y1 of the model's input that enclose it; share of the
    image; kept: the share of the rise that is left when everything else is replaced, the median of the
    fillings, or where two of three settle that it is enough, the smaller of the two: the median is no less.
    """

    mask: NDArray[np.bool_]
    box: Box
    share: float
    kept: float


class PerturbedImage:
    """An image whose parts can be replaced, and what is left of the rise of every map then.

    Maps are numbered as prototypes are: by level, in the order of `maps_of`.
    """

    def __init__(
        self,
        maps_of: MapsOf,
        patches: Callable[[int, Tensor], int],
        image: Tensor,
        other: Tensor | None,
        before: Mapping[int, Tensor] | None = None,
    ) -> None:
        """image (C, S, S) in [0, 1]; other, of the same size: an image of the negative class, if any.

        patches: (level, maps) -> the k of a level's top-k mean. before: the maps of the unchanged image,
        where they are known.
        """
        self.image, self.fillings = image, fillings(image, other)
        self.maps_of = maps_of
        self.before = dict(maps_of(image[None]) if before is None else before)
        self.k = {level: patches(level, maps) for level, maps in self.before.items()}
        self._cells = {level: top_cells(maps, self.k[level]) for level, maps in self.before.items()}
        self._means = {level: maps.double().mean((-2, -1)) for level, maps in self.before.items()}
        self.rises = self._rises(self.before)[0]

    @property
    def size(self) -> int:
        """The side of the image in pixels."""
        return self.image.shape[-1]

    def level_and_row(self, index: int) -> tuple[int, int]:
        """The level of a map, and its place in that level."""
        for level, maps in self.before.items():
            if index < maps.shape[1]:
                return level, index
            index -= maps.shape[1]
        raise IndexError(f"no map {index}")

    def cells(self, index: int) -> Tensor:
        """The cells K of a map: bool (h, w)."""
        level, row = self.level_and_row(index)
        return self._cells[level][0, row]

    def map(self, index: int) -> Tensor:
        """The similarity map (h, w) of a prototype on the unchanged image."""
        level, row = self.level_and_row(index)
        return self.before[level][0, row]

    def removed(self, regions: Tensor, filling: int) -> Tensor:
        """The share of each map's rise that is left when regions are replaced.

        bool (N, S, S) -> (N, m) float64, NaN for flat maps.
        """
        found = []
        for start in range(0, len(regions), BATCH):
            part = regions[start : start + BATCH]
            changed = replace_regions(self.image, self.fillings[filling], part)
            found.append(self._rises(self.maps_of(changed)))
        left = torch.cat(found) / self.rises
        return torch.where(self.rises > SMALLEST_RISE, left, torch.nan)

    def removed_by_all(self, regions: Tensor) -> Tensor:
        """`removed`, the median of all fillings: bool (N, S, S) -> (N, m)."""
        each = [self.removed(regions, number) for number in range(len(self.fillings))]
        return median_of_fillings(torch.stack(each))

    def kept(self, regions: Tensor, filling: int, maps: Sequence[int]) -> Tensor:
        """The share of the rise of map maps[n] that region n keeps. bool (N, S, S) -> (N,)."""
        left = self.removed(~regions, filling)
        return left[torch.arange(len(left)), torch.tensor(maps, dtype=torch.long)]

    def _rises(self, maps: dict[int, Tensor]) -> Tensor:
        """(N, m), over the cells and with the means of the unchanged image."""
        return torch.cat(
            [
                rise(each, self._cells[level].expand_as(each), self._means[level])
                for level, each in maps.items()
            ],
            dim=1,
        )


def perturbed_image(
    model: PrototypeNetwork,
    data: DataConfig,
    image: Tensor,
    other: Tensor | None,
    before: Mapping[int, Tensor] | None = None,
) -> PerturbedImage:
    """An image (C, S, S) in [0, 1] as a model with prototypes sees its changes; arguments as there."""

    def maps_of(images: Tensor) -> dict[int, Tensor]:
        model.eval()
        with torch.inference_mode():
            found = model(model_input(images, data, device_of(model)))
        return {level: maps.cpu() for level, maps in found.maps.items()}

    return PerturbedImage(maps_of, layer_of(model).pooled_patches, image, other, before)


def negative_image(run: Run) -> Tensor | None:
    """An image (C, S, S) of the negative class that the run folder holds: a prototype's source."""
    negative = run.config.data.negative_class
    index = next((each.index for each in run.prototypes if each.class_name == negative), None)
    return None if index is None or not run.cases.has_picture(index) else run.cases.source(index)


def find_evidence(
    run: Run,
    image: Tensor,
    prototypes: Sequence[int],
    before: Mapping[int, Tensor] | None = None,
) -> dict[int, EvidenceRegion | None]:
    """The evidence regions of some prototypes of a run on an image (C, S, S) in [0, 1].

    before: the model's maps {level: (1, m_level, h, w)} of the image, where they are known.
    """
    layer_of(run.model)  # a black box has none: refused
    data = run.config.data
    perturbed = perturbed_image(run.model, data, image, negative_image(run), before)
    rankings, gains = Gradients(run.model, data).attributed(perturbed, prototypes)
    regions = evidence_regions(perturbed, rankings, prototypes, gains)
    return dict(zip(prototypes, regions, strict=True))


# -- the search ----------------------------------------------------------------------------------
def evidence_regions(
    perturbed: PerturbedImage, rankings: Tensor, maps: Sequence[int], gains: Tensor | None = None
) -> list[EvidenceRegion | None]:
    """The evidence region of each of n maps, None for a flat one.

    rankings (n, S, S): pixels with high values are taken first. gains (n, S, S): what each pixel is thought
    to add to the rise, by default in proportion to the ranking. They decide what is tried, not what is kept:
    that is measured, with local means first, the filling nearest to the median of the three.
    """
    filling = len(perturbed.fillings) - 1
    order = rankings.flatten(1).argsort(dim=1, descending=True, stable=True)
    places = order.argsort(dim=1).view(rankings.shape)
    if gains is None:
        shares = rankings.double() / rankings.double().sum((1, 2), keepdim=True).clamp(min=1e-300)
        gains = shares * perturbed.rises[list(maps), None, None]
    predicted = _predictions(gains, order, perturbed.rises[list(maps)])
    rungs, found = _search(perturbed, places, maps, filling, predicted)
    kept = _confirm(perturbed, places, maps, rungs, found, filling)
    return [
        _region(place, rung, share) if perturbed.rises[index] > SMALLEST_RISE else None
        for place, rung, share, index in zip(places, rungs, kept, maps, strict=True)
    ]


def _regions(places: Tensor, rungs: Sequence[int]) -> Tensor:
    """The region of each ranking at its rung of the ladder. places long (n, S, S), 0 the first -> bool."""
    shares = torch.tensor([(*SHARES, 1.0)[rung] for rung in rungs], dtype=torch.float64)
    counts = (shares * places[0].numel()).round().clamp(min=1)
    return places < counts[:, None, None]


def _predictions(gains: Tensor, order: Tensor, rises: Tensor) -> list[list[float]]:
    """The share of the rise that each rung should keep if gains simply add up. -> n lists, by rung.

    gains (n, S, S); order (n, S * S), pixels in the order in which they are taken; rises (n,).
    """
    sums = gains.double().flatten(1).gather(1, order).cumsum(1)
    ends = [max(1, round(share * sums.shape[1])) - 1 for share in SHARES]
    lost = sums[:, -1:] - sums[:, ends]
    shares: list[list[float]] = (1 - lost / rises.clamp(min=SMALLEST_RISE)[:, None]).tolist()
    return shares


def _search(
    perturbed: PerturbedImage,
    places: Tensor,
    maps: Sequence[int],
    filling: int,
    predicted: Sequence[Sequence[float]],
) -> tuple[list[int], dict[tuple[int, int], float]]:
    """The smallest rung that keeps enough with one filling, and all (row, rung) tried.

    From the first rung that is likely to, one rung at a time: down while it keeps enough and the next smaller
    one may, else up.
    """
    low, high = [0] * len(maps), [len(SHARES)] * len(maps)
    next_rungs = [
        next((n for n, share in enumerate(row) if share >= LIKELY), len(SHARES) - 1)
        for row in predicted
    ]
    found: dict[tuple[int, int], float] = {}
    while open_rows := [row for row in range(len(maps)) if low[row] < high[row]]:
        tried = [min(max(next_rungs[row], low[row]), high[row] - 1) for row in open_rows]
        regions = _regions(places[open_rows], tried)
        kept = perturbed.kept(regions, filling, [maps[row] for row in open_rows])
        for row, rung, share in zip(open_rows, tried, kept.tolist(), strict=True):
            found[row, rung] = share
            if share >= KEPT:
                high[row], next_rungs[row] = rung, rung - 1
                low[row] = low[row] if _may_do(predicted[row], rung, share) else rung
            else:
                low[row], next_rungs[row] = rung + 1, _next_up(predicted[row], rung, share)
    return high, found


def _next_up(predicted: Sequence[float], rung: int, share: float) -> int:
    """The first rung above one that keeps only `share` that may keep enough, likewise."""
    above = range(rung + 1, len(SHARES))
    likely = (n for n in above if predicted[n] + share - predicted[rung] >= WORTH)
    return next(likely, len(SHARES) - 1)


def _may_do(predicted: Sequence[float], rung: int, share: float) -> bool:
    """Whether the rung below one that keeps `share` may keep enough, if predictions err alike on both."""
    return rung > 0 and predicted[rung - 1] + share - predicted[rung] >= WORTH


def _confirm(
    perturbed: PerturbedImage,
    places: Tensor,
    maps: Sequence[int],
    rungs: list[int],
    found: dict[tuple[int, int], float],
    filling: int,
) -> list[float]:
    """Raise rungs, in place, until the median of all fillings keeps enough; returns what is kept."""
    kept = [1.0] * len(maps)  # of the whole image, which is not tried
    rows = list(range(len(maps)))
    order = [filling, *(n for n in reversed(range(len(perturbed.fillings))) if n != filling)]
    while rows := [row for row in rows if rungs[row] < len(SHARES)]:
        shares: dict[int, list[float]] = {row: [] for row in rows}
        for number in order:
            open_rows = [row for row in rows if not _settled(shares[row], len(order))]
            if not open_rows:
                break
            known = number == filling and all((row, rungs[row]) in found for row in open_rows)
            if known:
                values = [found[row, rungs[row]] for row in open_rows]
            else:
                regions = _regions(places[open_rows], [rungs[row] for row in open_rows])
                indices = [maps[row] for row in open_rows]
                values = perturbed.kept(regions, number, indices).tolist()
            for row, value in zip(open_rows, values, strict=True):
                shares[row].append(value)
        for row in rows:
            kept[row] = _kept(shares[row], len(order))
        rows = [row for row in rows if not kept[row] >= KEPT]
        for row in rows:
            rungs[row], kept[row] = rungs[row] + 1, 1.0
    return kept


def _settled(shares: Sequence[float], fillings: int) -> bool:
    """Whether two of three fillings agree that enough is kept: the third cannot change the median."""
    return fillings == 3 and len(shares) == 2 and min(shares) >= KEPT


def _kept(shares: Sequence[float], fillings: int) -> float:
    if len(shares) < fillings:
        return min(shares)
    return float(median_of_fillings(torch.tensor(shares, dtype=torch.float64)))


def _region(places: Tensor, rung: int, kept: float) -> EvidenceRegion:
    mask = _regions(places[None], [rung])[0]
    return EvidenceRegion(mask.numpy(), region_box(mask), float(mask.double().mean()), kept)


# -- rankings ------------------------------------------------------------------------------------
def upsampled(perturbed: PerturbedImage, maps: Sequence[int]) -> Tensor:
    """The similarity maps themselves, upsampled: no pass of the network. -> (n, S, S)."""
    size = perturbed.size
    return torch.cat(
        [activation_maps(perturbed.map(index)[None, None].float(), size, size)[0] for index in maps]
    )


def near_cells(perturbed: PerturbedImage, maps: Sequence[int]) -> Tensor:
    """How near a pixel is to the cells K that the rise is the mean of: no pass of the network."""
    size = perturbed.size
    cells = [
        F.interpolate(perturbed.cells(index)[None, None].float(), (size, size))[0] for index in maps
    ]
    return gaussian(torch.cat(cells), SMOOTHING * size)


class Gradients:
    """Rankings by gradients of the rise at the image, with the cells K and the mean m held fixed.

    One forward pass, and one backward pass per prototype.
    """

    def __init__(self, model: PrototypeNetwork, data: DataConfig) -> None:
        self._model, self._data = model, data

    def times_input(self, perturbed: PerturbedImage, maps: Sequence[int]) -> Tensor:
        """|gradient x (image - local mean)|, smoothed. -> (n, S, S)."""
        return self._smooth(perturbed, self._products(perturbed, perturbed.image, maps))

    def midpoint(self, perturbed: PerturbedImage, maps: Sequence[int]) -> Tensor:
        """Integrated gradients (Sundararajan 2017) from the local mean to the image by the midpoint rule.

        The gradient is taken halfway, where parts of the image are neither whole nor gone: one backward
        pass, as `times_input`, but what it ranks first keeps more. -> (n, S, S).
        """
        return self.attributed(perturbed, maps)[0]

    def attributed(self, perturbed: PerturbedImage, maps: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The ranking of `midpoint`, and with its sign, not smoothed, what each pixel adds to the rise.

        The second sums up to the rise, as far as the midpoint rule is exact. -> (n, S, S) each.
        """
        halfway = (perturbed.image + perturbed.fillings[-1]) / 2
        gradients = self._gradients(perturbed, halfway, maps)
        change = perturbed.image - perturbed.fillings[-1]
        ranking = self._smooth(perturbed, _sizes(gradients, change))
        return ranking, (gradients * change).sum(1)

    def smooth_grad(self, perturbed: PerturbedImage, maps: Sequence[int]) -> Tensor:
        """The same, averaged over noisy copies of the image (SmoothGrad, Smilkov 2017)."""
        noise = torch.Generator().manual_seed(0)
        total = torch.zeros(len(maps), perturbed.size, perturbed.size)
        for _ in range(NOISY_COPIES):
            noisy = perturbed.image + NOISE * torch.randn(perturbed.image.shape, generator=noise)
            total += self._products(perturbed, noisy, maps)
        return self._smooth(perturbed, total)

    def _products(self, perturbed: PerturbedImage, image: Tensor, maps: Sequence[int]) -> Tensor:
        change = perturbed.image - perturbed.fillings[-1]  # from local means
        return _sizes(self._gradients(perturbed, image, maps), change)

    def _gradients(self, perturbed: PerturbedImage, image: Tensor, maps: Sequence[int]) -> Tensor:
        """Of the rise of each map at an image (C, S, S). -> (n, C, S, S)."""
        self._model.eval()
        with torch.enable_grad():
            leaf = image[None].clone().requires_grad_(True)
            found = self._model(model_input(leaf, self._data, device_of(self._model))).maps
            gradients: list[Tensor] = []
            for index in maps:
                level, row = perturbed.level_and_row(index)
                cells = perturbed.cells(index).to(found[level].device)
                mean = found[level][0, row][cells].mean()
                gradients += torch.autograd.grad(mean, leaf, retain_graph=True)
        return torch.cat(gradients).cpu()

    @staticmethod
    def _smooth(perturbed: PerturbedImage, products: Tensor) -> Tensor:
        return gaussian(products, SMOOTHING * perturbed.size)


def _sizes(gradients: Tensor, change: Tensor) -> Tensor:
    """|gradient| x |change|, each summed over channels. (n, C, S, S), (C, S, S) -> (n, S, S)."""
    return gradients.abs().sum(1) * change.abs().sum(0)


def occlusion(perturbed: PerturbedImage, maps: Sequence[int]) -> Tensor:
    """How much of the rise is lost when a square around a pixel is blurred: 49 passes for all maps."""
    size = perturbed.size
    numbers = torch.arange(GRID * GRID).view(1, 1, GRID, GRID)
    squares = F.interpolate(numbers.float(), (size, size))[0, 0].long()
    regions = torch.stack([squares == number for number in range(GRID * GRID)])
    lost = 1 - perturbed.removed(regions, len(perturbed.fillings) - 2)[:, list(maps)]
    grids = lost.T.reshape(len(maps), 1, GRID, GRID).float()
    return activation_maps(grids, size, size)[:, 0]
