"""Are the prototypes in good health: duplicates, unused ones, weights of the wrong sign, sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from protopyramid.data.images import file_hash
from protopyramid.data.manifest import Manifest, Sample, read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.inference.batches import evidence_batches
from protopyramid.metrics.localisation import places
from protopyramid.model.activation import activation_maps
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.runs.provenance import training_manifest

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

SAME = 0.99  # cosine from which two prototypes of a class and level count as one
NEAR = 0.1  # and the same for distances, as a share of the median distance
MATTERS = 3  # a prototype is used where it is among so many greatest contributions


def prototype_health(run: Run, logits: Tensor, scores: Tensor) -> dict[str, Any] | None:
    """Indices of prototypes with a problem; None for a model without prototypes.

    logits (N, C), scores (N, m) of the evaluated images. `duplicates` are pairs of one class and level
    that are as good as one; `unused` are never among the three greatest contributions to a
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
    """Pairs of prototypes of one class and level that are as good as one.

    Cosine: at least .99. log-l2: a distance of at most a tenth of the median one; the angle says
    nothing there, since vectors after a sigmoid all point the same way.
    """
    vectors = prototypes.vectors.detach().cpu()
    classes, levels = prototypes.classes.cpu(), prototypes.levels.cpu()
    together = (classes[:, None] == classes) & (levels[:, None] == levels)
    if prototypes.similarity.kind == "cosine":
        unit = F.normalize(vectors, dim=1)
        same = (unit @ unit.T) >= SAME
    else:
        distances = (vectors[:, None] - vectors).norm(dim=2)
        others = distances[~torch.eye(len(vectors), dtype=torch.bool)]
        same = distances <= (NEAR * others.median() if len(others) else 0.0)
    found: list[list[int]] = (same & together).triu(diagonal=1).nonzero().tolist()
    return found


def _unused(weight: Tensor, logits: Tensor, scores: Tensor) -> list[int]:
    contributions = weight[logits.argmax(1)] * scores
    matters = min(MATTERS, contributions.shape[1])
    used = contributions.topk(matters, dim=1).indices.flatten().tolist()
    return sorted(set(range(contributions.shape[1])) - set(used))


def source_peaks(run: Run, manifest: Manifest | None = None) -> dict[str, Any]:
    """Share of prototypes whose own peak, on their source image, lies inside its annotation.

    `mean`, `per_class`, `per_level`, `prototypes` (how many could be judged), `chance`. The source images
    come from the manifest given or from that of training; all are None where these, or every
    annotation, are gone.
    """
    judged = _judge(run, manifest)
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
    for seen in evidence_batches(run.model, store, batch_size=size, tta=False):
        for row, image in enumerate(seen.images):
            mask = seen.loaded.masks[row].bool()
            if not mask.any():
                continue
            for number in wanted[names[image]]:
                index, level = run.prototypes[number].index, run.prototypes[number].level
                similarity = seen.evidence.maps[level][row, index - first[level]].cpu()
                activation = activation_maps(similarity[None, None], *mask.shape)[0]
                inside = float(places(activation, mask[None], mask[None]).peak_fine[0])
                judged.append((number, inside, float(mask.float().mean())))
    return judged


def _sources(run: Run, manifest: Manifest | None) -> Mapping[str, Sample]:
    """The annotated source images of the prototypes, as far as they are still what they were."""
    found = {} if manifest is None else _annotated_sources(run, manifest)
    path = training_manifest(run)
    if found or path is None:
        return found
    try:
        return _annotated_sources(run, read_manifest(path))
    except UserError:
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
