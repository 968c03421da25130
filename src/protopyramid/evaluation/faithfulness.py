"""The faithfulness of a run's explanations on a split: is what is shown what was used?

On each image, the strongest prototype of the image's own class on each level is tested (the ones that an
explanation would show): how much of the rise of its similarity the shown region keeps and removes
(`metrics.faithfulness`), and the same for its evidence region, beside three baselines: both regions moved
elsewhere, and the region of another prototype. For a model without prototypes, the map is Grad-CAM's of
the image's own class, and its pixels are ranked by the map itself.

Cost: about 35 forward passes and one backward pass per image and level.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.evaluation.evaluate import annotation_masks, model_digest
from protopyramid.evaluation.faithfulness_results import (
    Faithfulness,
    GroupFaithfulness,
    MapMeasures,
    RankingCurves,
    RegionFaithfulness,
    estimate,
    mean_of,
)
from protopyramid.evaluation.faithfulness_targets import judge, used_prototypes
from protopyramid.evaluation.map_measures import ImageUnderTest, PrototypePass, map_measures
from protopyramid.evaluation.results import Bootstrap
from protopyramid.evaluation.split import EvaluatedSplit, patients
from protopyramid.explanations.evidence import (
    SHARES,
    Gradients,
    PerturbedImage,
    evidence_regions,
    negative_image,
    perturbed_image,
    upsampled,
)
from protopyramid.explanations.saliency import grad_cam
from protopyramid.inference.batches import device_of, model_input
from protopyramid.metrics.bootstrap import RESAMPLES, resample_weights
from protopyramid.metrics.faithfulness import area as curve_area
from protopyramid.metrics.faithfulness import largest_share, regions_elsewhere, shifted_around
from protopyramid.metrics.localisation import half_maximum_areas
from protopyramid.metrics.prototype_measures import overlap
from protopyramid.model.activation import PERCENTILE, strongest_region
from protopyramid.model.necks import COARSEST
from protopyramid.prototypes.cases import layer_of

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

Array = NDArray[np.float64]
Progress = Callable[[int, int], None]

IMAGES = 40  # taken of a split by default
KINDS = ("shown", "shown_elsewhere", "other_prototype", "evidence", "evidence_elsewhere")
FILLINGS = ("other_image", "blur", "local_mean")


@dataclass(frozen=True)
class _Pairs:
    """P pairs of an image and a prototype, regions in the order of KINDS, fillings in that of FILLINGS.

    image, level, label (P,); area (P, 5); kept, removed (P, 5, F); half (P,): the area above half maximum;
    insertion, deletion (P, 2, T): the curves of the ranking and of the ranking moved elsewhere; measures
    (P, 12): in the order of MapMeasures.
    """

    image: NDArray[np.int64]
    level: NDArray[np.int64]
    label: NDArray[np.int64]
    area: Array
    kept: Array
    removed: Array
    half: Array
    insertion: Array
    deletion: Array
    measures: Array


def measure_faithfulness(
    run: Run,
    chosen: EvaluatedSplit,
    images: int = IMAGES,
    seed: int = 0,
    resamples: int = RESAMPLES,
    progress: Progress | None = None,
    tta: bool = True,
) -> Faithfulness:
    """The faithfulness of a run on images of a split, drawn with the seed; 0 images means all.

    Images of the negative class are not tested: they are what parts of the others are replaced with. Without
    `tta`, the maps are those of the image alone, at a fraction of the cost.
    """
    run = run if tta else without_tta(run)
    rng = np.random.default_rng(seed)
    data = run.config.data
    drawn = draw_images(chosen, data.negative_class, images, rng)
    others = [n for n, each in enumerate(chosen.samples) if each.label == data.negative_class]
    store = ImageStore(chosen.samples, data.model_copy(update={"memory_budget": 0.0}))
    found = []
    quality = PrototypePass(run)
    for number, index in enumerate(drawn):
        loaded, label = store.load([index]), data.classes.index(chosen.samples[index].label)
        other = store.load([int(rng.choice(others))]).images[0] if others else negative_image(run)
        tested = ImageUnderTest(
            loaded.images[0], other, label, number, *annotation_masks(chosen, [index], loaded)
        )
        found.append(_test_image(run, tested, rng))
        quality.update(tested)
        if progress is not None:
            progress(number + 1, len(drawn))
    samples = [chosen.samples[index] for index in drawn]
    weights = resample_weights(patients(samples), resamples, seed)
    pairs = _Pairs(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
    per_level = {
        str(level): replace(
            _group(pairs, pairs.level == level, weights),
            prototypes=quality.of_level(level, weights),
        )
        for level in np.unique(pairs.level).tolist()
    }
    used = used_prototypes(run, chosen)
    return Faithfulness(
        system=run.config.system,
        split=chosen.name,
        manifest=chosen.manifest.path.name,
        maps="Grad-CAM" if run.model.prototypes is None else "prototypes",
        leaked=chosen.leaked,
        images=len(drawn),
        patients=len(set(patients(samples))),
        seed=seed,
        bootstrap=Bootstrap(resamples, seed, "patient"),
        all=replace(
            _group(pairs, np.ones(len(pairs.image), dtype=bool), weights),
            prototypes=quality.of_all(weights),
        ),
        per_level=per_level,
        per_class={
            data.classes[label]: replace(
                _group(pairs, pairs.label == label, weights),
                prototypes=quality.of_class(label, weights),
            )
            for label in np.unique(pairs.label).tolist()
        },
        compactness=quality.compactness(weights),
        used=used,
        targets=judge(per_level, used),
        model=model_digest(run),
        tta=run.model.tta,
    )


def without_tta(run: Run) -> Run:
    """The same run, whose model sees every image once."""
    alone = copy.copy(run.model)  # shares all weights
    alone.tta = 1
    return replace(run, model=alone)


def draw_images(
    chosen: EvaluatedSplit, negative: str | None, images: int, rng: np.random.Generator
) -> list[int]:
    """Which images are tested, in the order of the manifest."""
    candidates = [n for n, each in enumerate(chosen.samples) if each.label != negative]
    if not candidates:
        raise UserError(
            f"{chosen.manifest.path}: split {chosen.name} has only images of class {negative}; "
            "give a manifest with lesions"
        )
    count = min(images, len(candidates)) if images else len(candidates)
    return sorted(rng.choice(candidates, count, replace=False).tolist())


# -- one image -----------------------------------------------------------------------------------
def _test_image(
    run: Run, image: ImageUnderTest, rng: np.random.Generator
) -> tuple[NDArray[Any], ...]:
    """The fields of `_Pairs` for one image."""
    tested: list[int]
    rivals: list[int | None] = [None]
    if run.model.prototypes is None:
        perturbed = _perturbed_grad_cam(run, image.pixels, image.other, image.label)
        tested = [0]
        rankings, gains = upsampled(perturbed, tested), None
    else:
        perturbed = perturbed_image(run.model, run.config.data, image.pixels, image.other)
        tested, rivals = strongest_prototypes(run, perturbed, image.label, rng)
        gradients = Gradients(run.model, run.config.data)
        rankings, gains = gradients.attributed(perturbed, tested)
    regions = _regions(perturbed, rankings, gains, tested, rivals, rng)
    kept, removed = _left(perturbed, ~regions, tested), _left(perturbed, regions, tested)
    missing = np.array([rival is None for rival in rivals])
    area = regions.double().mean((-2, -1)).numpy()
    other = KINDS.index("other_prototype")
    for values in (area, kept, removed):
        values[missing, other] = np.nan
    levels = [perturbed.level_and_row(index)[0] for index in tested]
    same = np.ones(len(tested), dtype=np.int64)
    shown, rival = regions[:, KINDS.index("shown")], regions[:, other]
    measures = map_measures(run, perturbed, image, tested, shown)
    contrast = np.where(missing, np.nan, 1 - overlap(shown, rival))
    return (
        same * image.number,
        np.array(levels, dtype=np.int64),
        same * image.label,
        area,
        kept,
        removed,
        half_maximum_areas(upsampled(perturbed, tested)),
        *_curves(perturbed, rankings, tested, rng),
        np.concatenate([measures, contrast[:, None]], axis=1),
    )


def _curves(
    perturbed: PerturbedImage, rankings: Tensor, tested: Sequence[int], rng: np.random.Generator
) -> tuple[Array, Array]:
    """Insertion and deletion of the rankings (n, S, S), and of both moved elsewhere. -> (n, 2, T) each."""
    moved = torch.from_numpy(shifted_around(list(rankings.numpy()), rng))
    whole = torch.ones(len(tested), 1, *rankings.shape[1:], dtype=torch.bool)
    nothing_left = np.median(_left(perturbed, whole, tested), axis=-1)  # (n, 1)
    everything = np.where(np.isnan(nothing_left), np.nan, 1.0)
    insertion, deletion = [], []
    for each in (rankings, moved):
        regions = torch.stack([largest_share(each, share) for share in SHARES], dim=1)
        kept = np.median(_left(perturbed, ~regions, tested), axis=-1)
        removed = np.median(_left(perturbed, regions, tested), axis=-1)
        insertion.append(np.concatenate([nothing_left, kept, everything], axis=1))
        deletion.append(np.concatenate([everything, removed, nothing_left], axis=1))
    return np.stack(insertion, axis=1), np.stack(deletion, axis=1)


def strongest_prototypes(
    run: Run, perturbed: PerturbedImage, label: int, rng: np.random.Generator
) -> tuple[list[int], list[int | None]]:
    """On each level, the prototype of the class with the greatest rise, and any other one."""
    layer = layer_of(run.model)
    owners = layer.classes.tolist()
    tested: list[int] = []
    rivals: list[int | None] = []
    for rows in layer.slices.values():
        level = list(range(rows.start, rows.stop))
        own = [index for index in level if owners[index] == label]
        if not own:
            continue
        tested.append(max(own, key=lambda index: float(perturbed.rises[index])))
        rest = [index for index in level if index != tested[-1]]
        rivals.append(int(rng.choice(rest)) if rest else None)
    if not tested:
        name = run.config.data.classes[label]
        raise UserError(f"{run.folder.path}: no prototype of class {name}; it cannot be tested")
    return tested, rivals


def _regions(
    perturbed: PerturbedImage,
    rankings: Tensor,
    gains: Tensor | None,
    tested: Sequence[int],
    rivals: Sequence[int | None],
    rng: np.random.Generator,
) -> Tensor:
    """The regions of each pair in the order of KINDS: bool (n, 5, S, S)."""
    shown = strongest_region(upsampled(perturbed, tested))
    instead = [own if rival is None else rival for own, rival in zip(tested, rivals, strict=True)]
    others = strongest_region(upsampled(perturbed, instead))
    found = evidence_regions(perturbed, rankings, tested, gains)
    # A flat map has no evidence region; what it keeps is NaN whatever the region.
    evidence = torch.stack(
        [
            torch.from_numpy(each.mask) if each else mask
            for each, mask in zip(found, shown, strict=True)
        ]
    )
    moved = [regions_elsewhere(list(each.numpy()), rng) for each in (shown, evidence)]
    return torch.stack([shown, moved[0], others, evidence, moved[1]], dim=1)


def _left(perturbed: PerturbedImage, regions: Tensor, tested: Sequence[int]) -> Array:
    """The rise left when regions bool (n, 5, S, S) are replaced, by filling. -> (n, 5, F)."""
    count, kinds = regions.shape[:2]
    rows = torch.arange(count * kinds)
    columns = torch.tensor(tested).repeat_interleave(kinds)
    each = [
        perturbed.removed(regions.flatten(0, 1), number)[rows, columns].view(count, kinds)
        for number in range(len(perturbed.fillings))
    ]
    values: Array = torch.stack(each, dim=-1).numpy()
    return values


def _perturbed_grad_cam(
    run: Run, image: Tensor, other: Tensor | None, label: int
) -> PerturbedImage:
    """An image as Grad-CAM of a class sees its changes: one map, whose top 5 % are the cells K."""

    def maps_of(images: Tensor) -> dict[int, Tensor]:
        ready = model_input(images, run.config.data, device_of(run.model))
        targets = torch.full((len(images),), label)
        return {COARSEST: grad_cam(run.model, ready, targets)[:, None].cpu()}

    def patches(level: int, maps: Tensor) -> int:
        return round((1 - PERCENTILE) * maps.shape[-2] * maps.shape[-1])

    return PerturbedImage(maps_of, patches, image, other)


# -- means ---------------------------------------------------------------------------------------
def _group(pairs: _Pairs, chosen: NDArray[np.bool_], weights: Array) -> GroupFaithfulness:
    image = pairs.image[chosen]
    names = FILLINGS[-pairs.kept.shape[-1] :]

    def region(kind: int) -> RegionFaithfulness:
        kept, removed = pairs.kept[chosen, kind], pairs.removed[chosen, kind]
        return RegionFaithfulness(
            area=estimate(pairs.area[chosen, kind], image, weights),
            kept=estimate(np.median(kept, axis=-1), image, weights),
            removed=estimate(np.median(removed, axis=-1), image, weights),
            kept_by_filling={name: mean_of(kept[:, n]) for n, name in enumerate(names)},
            removed_by_filling={name: mean_of(removed[:, n]) for n, name in enumerate(names)},
        )

    def curves(number: int) -> RankingCurves:
        deletion, insertion = pairs.deletion[chosen, number], pairs.insertion[chosen, number]
        shares = np.array([0.0, *SHARES, 1.0])
        areas = [
            np.array([curve_area(shares, one) for one in each]) for each in (deletion, insertion)
        ]
        return RankingCurves(
            tuple(shares.tolist()),
            tuple(mean_of(column) for column in deletion.T),
            tuple(mean_of(column) for column in insertion.T),
            estimate(areas[0], image, weights),
            estimate(areas[1], image, weights),
        )

    regions = {name: region(kind) for kind, name in enumerate(KINDS)}
    return GroupFaithfulness(
        images=len(np.unique(image)),
        pairs=int(chosen.sum()),
        shown=regions["shown"],
        shown_elsewhere=regions["shown_elsewhere"],
        other_prototype=regions["other_prototype"],
        evidence=regions["evidence"],
        evidence_elsewhere=regions["evidence_elsewhere"],
        half_maximum_area=estimate(pairs.half[chosen], image, weights),
        curves=curves(0),
        curves_elsewhere=curves(1),
        measures=MapMeasures(
            *(estimate(column, image, weights) for column in pairs.measures[chosen].T)
        ),
    )
