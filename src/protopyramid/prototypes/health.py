"""The health of a trained run's prototypes, and whether they point at the annotation of their source."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from protopyramid.data.images import file_hash
from protopyramid.data.manifest import Manifest, Sample, read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.inference.batches import evidence_batches
from protopyramid.metrics import prototype_health as health
from protopyramid.metrics.localisation import places
from protopyramid.model.activation import activation_maps
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.runs.provenance import training_manifest

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

Indices = tuple[int, ...]
MOST = 0.5  # share of prototypes
LOOK_ELSEWHERE = (
    "the prototypes look at something other than the lesion: inspect them (protopyramid prototypes RUN); "
    "training from pretrained weights helps"
)


@dataclass(frozen=True)
class RunHealth:
    """Indices of the prototypes with a problem, and all findings in words.

    What evaluations of earlier versions do not have is None.
    """

    prototypes: int
    duplicates: tuple[tuple[int, int], ...]
    unused: Indices
    own_weight_not_positive: Indices
    stronger_for_another_class: Indices
    without_weight: Indices | None = None
    constant_score: Indices | None = None
    far_from_patches: Indices | None = None
    findings: tuple[str, ...] | None = None


@dataclass(frozen=True)
class SourcePointing:
    """The pointing game on source images: share of prototypes whose own peak lies inside the annotation.

    `prototypes`: how many could be judged; all else is None where there are none.
    """

    mean: float | None
    per_class: Mapping[str, float | None]
    per_level: Mapping[str, float | None]
    chance: float | None
    prototypes: int


def run_health(run: Run, logits: Tensor, scores: Tensor) -> RunHealth | None:
    """The health of a run's prototypes on evaluated images; None for a model without prototypes.

    logits (N, C), scores (N, m) of the images.
    """
    layer = run.model.prototypes
    if layer is None:
        return None
    weight, scores = run.model.head.weight.detach().cpu(), scores.cpu()
    vectors, classes, levels = layer.vectors.detach().cpu(), layer.classes.cpu(), layer.levels.cpu()
    kind = layer.similarity.kind
    nearest = torch.tensor([record.similarity for record in run.prototypes])
    findings = _findings(run, layer, scores, nearest)
    return RunHealth(
        prototypes=len(classes),
        duplicates=tuple(health.duplicate_pairs(vectors, classes, levels, kind)),
        unused=tuple(health.unused(weight, logits, scores)),
        own_weight_not_positive=tuple(health.own_weight_not_positive(weight, classes)),
        stronger_for_another_class=tuple(health.stronger_for_another_class(weight, classes)),
        without_weight=tuple(health.without_weight(weight)),
        constant_score=tuple(health.with_constant_score(scores)),
        far_from_patches=tuple(health.far_from_patches(nearest, kind)),
        findings=tuple(finding.message for finding in findings),
    )


def head_warnings(run: Run, scores: Tensor | None) -> list[str]:
    """Unhealthy prototypes of a fitted head, one line per kind; scores (N, m) of training images or None."""
    layer = run.model.prototypes
    return [] if layer is None else health.health_lines(_findings(run, layer, scores, None))


def _findings(
    run: Run, layer: PrototypeLayer, scores: Tensor | None, nearest: Tensor | None
) -> list[health.Finding]:
    return health.prototype_health(
        layer.vectors.detach().cpu(),
        layer.classes.cpu(),
        layer.levels.cpu(),
        layer.similarity.kind,
        run.model.head.weight.detach().cpu(),
        scores,
        nearest,
        run.config.data.classes,
    )


def source_pointing(run: Run, manifest: Manifest | None = None) -> SourcePointing:
    """The pointing game of each prototype on the image it comes from.

    The source images come from the manifest given or from that of training.
    """
    judged = _judge(run, manifest)
    inside = np.array([found for _, found, _ in judged])
    owners = np.array([run.prototypes[index].class_name for index, _, _ in judged])
    levels = np.array([run.prototypes[index].level for index, _, _ in judged])
    every_level = sorted({record.level for record in run.prototypes})
    return SourcePointing(
        mean=_mean(inside),
        per_class={name: _mean(inside[owners == name]) for name in run.config.data.classes},
        per_level={str(level): _mean(inside[levels == level]) for level in every_level},
        chance=_mean(np.array([share for _, _, share in judged])),
        prototypes=len(judged),
    )


def source_warnings(run: Run, pointing: SourcePointing) -> list[str]:
    """What is wrong with where the prototypes come from, one line each; nothing where nothing is."""
    found = []
    if below_chance(pointing.mean, pointing.chance):
        found.append(
            f"{pointing.mean:.0%} of the prototypes have their peak inside the annotation of their source "
            f"image, below chance ({pointing.chance:.0%}); {LOOK_ELSEWHERE}"
        )
    share, chance = border_share(run)
    expected = chance + 2 * math.sqrt(chance * (1 - chance) / max(len(run.prototypes), 1))
    if share > max(MOST, expected):
        found.append(
            f"{share:.0%} of the prototypes come from the border of their source image (chance "
            f"{chance:.0%}); {LOOK_ELSEWHERE}"
        )
    return found


def border_share(run: Run) -> tuple[float, float]:
    """Share of prototypes whose source patch is a border cell of its map, and its chance level."""
    at_border, chances = [], []
    for record in run.prototypes:
        side = math.ceil(run.config.data.image_size / run.model.backbone.strides[record.level])
        at_border.append(not (0 < record.row < side - 1 and 0 < record.col < side - 1))
        chances.append(1 - (max(side - 2, 0) / side) ** 2)
    if not at_border:
        return 0.0, 0.0
    return sum(at_border) / len(at_border), sum(chances) / len(chances)


def below_chance(value: float | None, chance: float | None) -> bool:
    """Whether a metric is known and below its chance level."""
    return value is not None and chance is not None and value < chance


def _judge(run: Run, manifest: Manifest | None) -> list[tuple[int, float, float]]:
    """(prototype, peak inside, annotation's share of the pixels) of those with an annotated source."""
    layer = run.model.prototypes
    if layer is None:
        return []
    samples = _sources(run, manifest)
    store = ImageStore(list(samples.values()), run.config.data)
    wanted: dict[str, list[int]] = {}
    for number, record in enumerate(run.prototypes):
        wanted.setdefault(record.image, []).append(number)
    first = {level: rows.start for level, rows in layer.slices.items()}
    names, judged = list(samples), []
    size = run.config.train.eval_batch_size
    for batch in evidence_batches(run.model, store, batch_size=size, tta=False):
        for row, image in enumerate(batch.images):
            mask = batch.loaded.masks[row].bool()
            if not mask.any():
                continue
            for number in wanted[names[image]]:
                index, level = run.prototypes[number].index, run.prototypes[number].level
                similarity = batch.evidence.maps[level][row, index - first[level]].cpu()
                activation = activation_maps(similarity[None, None], *mask.shape)[0]
                inside = float(places(activation, mask[None], mask[None]).pointing_fine[0])
                judged.append((number, inside, float(mask.float().mean())))
    return judged


def _sources(run: Run, manifest: Manifest | None) -> Mapping[str, Sample]:
    """The annotated source images of the prototypes, those that are unchanged."""
    found = {} if manifest is None else _annotated_sources(run, manifest)
    path = training_manifest(run)
    if found or path is None:
        return found
    try:
        return _annotated_sources(run, read_manifest(path))
    except UserError:  # the manifest of training has changed since: nothing can be judged
        return {}


def _annotated_sources(run: Run, manifest: Manifest) -> dict[str, Sample]:
    hashes = run.provenance.splits.get("train", {})
    wanted = {record.image for record in run.prototypes}
    return {
        sample.name: sample
        for sample in manifest.samples
        if sample.name in wanted
        and (sample.mask is not None or sample.box is not None)
        and file_hash(sample.image) == hashes.get(sample.name)
    }


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None
