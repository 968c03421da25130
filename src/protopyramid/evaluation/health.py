"""Are the prototypes in good health: duplicates, unused ones, weights of the wrong sign, sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from protopyramid.data.images import content_hash, read_image
from protopyramid.data.manifest import Sample, read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.evaluation.split import training_manifest
from protopyramid.model.activation import activation_maps
from protopyramid.model.inference import evidence_batches
from protopyramid.model.prototypes import PrototypeLayer

if TYPE_CHECKING:
    from protopyramid.run import Run

SAME = 0.99  # cosine from which two prototypes of a class and level count as one
MATTERS = 3  # a prototype is used where it is among so many greatest contributions


def prototype_health(run: Run, logits: Tensor, scores: Tensor) -> dict[str, Any] | None:
    """Indices of prototypes with a problem; None for a model without prototypes.

    logits (N, C), scores (N, m) of the evaluated images. `duplicates` are pairs of one class and level
    that point the same way; `unused` are never among the three greatest contributions to a
    predicted class; `own_weight_not_positive` and `stronger_for_another_class` are sign errors of the
    head.
    """
    prototypes = run.model.prototypes
    if prototypes is None:
        return None
    weight = run.model.head.weight.detach().cpu()
    owners = prototypes.classes.cpu()
    own = weight[owners, torch.arange(len(owners))]
    return {
        "prototypes": len(owners),
        "duplicates": duplicates(prototypes),
        "unused": _unused(weight, logits, scores),
        "own_weight_not_positive": (own <= 0).nonzero()[:, 0].tolist(),
        "stronger_for_another_class": (weight.argmax(0) != owners).nonzero()[:, 0].tolist(),
    }


def duplicates(prototypes: PrototypeLayer) -> list[list[int]]:
    """Pairs of prototypes of one class and level with a cosine of at least .99."""
    unit = F.normalize(prototypes.vectors.detach().cpu(), dim=1)
    classes, levels = prototypes.classes.cpu(), prototypes.levels.cpu()
    together = (classes[:, None] == classes) & (levels[:, None] == levels)
    same = ((unit @ unit.T) >= SAME) & together
    return same.triu(diagonal=1).nonzero().tolist()


def _unused(weight: Tensor, logits: Tensor, scores: Tensor) -> list[int]:
    contributions = weight[logits.argmax(1)] * scores
    matters = min(MATTERS, contributions.shape[1])
    used = contributions.topk(matters, dim=1).indices.flatten().tolist()
    return sorted(set(range(contributions.shape[1])) - set(used))


def source_peaks(run: Run) -> dict[str, Any]:
    """Share of prototypes whose own peak, on their source image, lies inside its annotation.

    `mean`, `per_class`, `per_level`, `prototypes` (how many could be judged), `chance`. The source images
    come from the manifest of training; all are None where it, or every annotation, is gone.
    """
    judged = _judge(run)
    inside = np.array([found for _, found, _ in judged])
    owners = np.array([run.prototypes[index].class_name for index, _, _ in judged])
    levels = np.array([run.prototypes[index].level for index, _, _ in judged])
    every_level = sorted({record.level for record in run.prototypes})
    return {
        "mean": _mean(inside),
        "per_class": {name: _mean(inside[owners == name]) for name in run.config.data.classes},
        "per_level": {str(level): _mean(inside[levels == level]) for level in every_level},
        "chance": _mean(np.array([share for _, _, share in judged])),
        "prototypes": len(judged),
    }


def _judge(run: Run) -> list[tuple[int, bool, float]]:
    """(prototype, peak inside, annotation's share of the pixels) of those with an annotated source."""
    layer = run.model.prototypes
    if layer is None:
        return []
    samples = _sources(run)
    store = ImageStore(list(samples.values()), run.config.data)
    wanted: dict[str, list[int]] = {}
    for number, record in enumerate(run.prototypes):
        wanted.setdefault(record.image, []).append(number)
    first = {level: rows.start for level, rows in layer.slices.items()}
    names, judged = list(samples), []
    for seen in evidence_batches(run.model, store, batch_size=run.config.train.eval_batch_size):
        for row, image in enumerate(seen.images):
            mask = seen.loaded.masks[row].bool()
            if not mask.any():
                continue
            for number in wanted[names[image]]:
                index, level = run.prototypes[number].index, run.prototypes[number].level
                similarity = seen.evidence.maps[level][row, index - first[level]].cpu()
                peak = activation_maps(similarity[None, None], *mask.shape).argmax()
                judged.append((number, bool(mask.flatten()[peak]), float(mask.float().mean())))
    return judged


def _sources(run: Run) -> Mapping[str, Sample]:
    """The annotated source images of the prototypes, as far as they are still what they were."""
    path = training_manifest(run)
    if path is None:
        return {}
    try:
        manifest = read_manifest(path)
    except UserError:
        return {}
    hashes = run.folder.read_json("data.json").get("splits", {}).get("train", {})
    wanted = {record.image for record in run.prototypes}
    return {
        sample.name: sample
        for sample in manifest.samples
        if sample.name in wanted
        and (sample.mask is not None or sample.box is not None)
        and content_hash(read_image(sample.image)) == hashes.get(sample.name)
    }


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None
