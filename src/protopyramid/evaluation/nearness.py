"""How near an image is to anything learned, and the limit below which it is flagged.

The nearness of an image on a level is its similarity to the nearest prototype of that level (top-k
mean, as the losses see it). An image is unlike the training data when, on some level, it is farther
from every prototype than all but 1 % of the validation images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.evaluation.split import split_samples, training_manifest
from protopyramid.model.inference import evidence_batches
from protopyramid.model.network import PrototypeNetwork
from protopyramid.run import Run, RunFolder

FILE = "thresholds.json"
QUANTILE = 0.01  # share of validation images that each level may flag


def nearness(closeness: Tensor, levels: Tensor) -> dict[int, Tensor]:
    """Similarity to the nearest prototype of each level. (B, m), (m,) -> {level: (B,)}."""
    found = sorted(set(levels.tolist()))
    return {level: closeness[:, levels == level].amax(1) for level in found}


def thresholds(by_level: Mapping[int, Tensor]) -> dict[str, Any] | None:
    """The limits of each level from the nearness of validation images; None without any.

    The content of thresholds.json: {"quantile", "images", "similarity": {level: limit}}.
    """
    images = min((len(values) for values in by_level.values()), default=0)
    if not images:
        return None
    limits = {
        str(level): float(np.quantile(values.double().cpu().numpy(), QUANTILE))
        for level, values in by_level.items()
    }
    return {"quantile": QUANTILE, "images": images, "similarity": limits}


def validation_threshold(
    model: PrototypeNetwork,
    store: ImageStore,
    images: Sequence[int] | None = None,
    batch_size: int = 32,
) -> dict[str, Any] | None:
    """The limits of a model from validation images (indices into the store; None = all of it).

    None for a model without prototypes. Write it with ``folder.write_json("thresholds.json", ...)``.
    """
    if model.prototypes is None:
        return None
    closeness = [
        seen.evidence.closeness.cpu() for seen in evidence_batches(model, store, images, batch_size)
    ]
    if not closeness:
        return None
    return thresholds(nearness(torch.cat(closeness), model.prototypes.levels.cpu()))


def write_threshold(run: Run) -> None:
    """Write thresholds.json of a run from its validation images, where it has prototypes and they exist."""
    manifest = training_manifest(run)
    if manifest is None:
        return
    splits = run.folder.read_json("data.json").get("splits", {})
    samples = split_samples(read_manifest(manifest), "validation", splits)
    store = ImageStore(samples, run.config.data)
    limits = validation_threshold(run.model, store, batch_size=run.config.train.eval_batch_size)
    if limits is not None:
        run.folder.write_json(FILE, limits)


def read_thresholds(folder: RunFolder) -> dict[int, float] | None:
    """The limits of a run, {level: similarity}; None where it has none."""
    if not (folder / FILE).is_file():
        return None
    content = folder.read_json(FILE)
    return {int(level): float(limit) for level, limit in content["similarity"].items()}
