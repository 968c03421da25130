"""Explaining an image: every logit as a sum over prototypes, with the cases behind them.

Example::

    explanation = protopyramid.load_run("runs/demo").explain("lesion.png")
    explanation.predicted                       # 'spiculated'
    explanation.strongest(1)[0].class_name      # whose prototype adds most
    explanation.save("why.png")                 # or .pdf, .svg, .json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopyramid.config.schema import DataConfig
from protopyramid.data.images import prepare
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.explanations.origin import Origin, open_sample
from protopyramid.explanations.result import Explanation, PrototypePart, contribution_sums
from protopyramid.inference.batches import device_of, model_input
from protopyramid.inference.ood import limits_for, ood_features
from protopyramid.inference.reference import reference_for
from protopyramid.inference.requests import region_sample
from protopyramid.metrics.softmax import softmax
from protopyramid.model.activation import Box, activation_boxes
from protopyramid.model.network import Evidence
from protopyramid.prototypes.cases import layer_of, to_picture
from protopyramid.runs.run import Run
from protopyramid.utils.arguments import as_path
from protopyramid.utils.opening import is_file, missing_image

__all__ = [
    "Explanation",
    "PreparedImage",
    "PrototypePart",
    "explain_array",
    "explain_batch",
    "explain_file",
    "explain_prepared",
    "explain_sample",
]


def explain_file(
    run: Run,
    image: str | Path,
    name: str | None = None,
    region: Box | None = None,
    evidence: bool | None = None,
    against: str | None = None,
) -> Explanation:
    """The explanation of an image file, called `name` or else by the file's name.

    region: what the model is to see, x0, y0, x1, y1 in pixels of the file, made square around its centre.
    evidence: whether to find the evidence regions of the strongest prototypes, by default if there are any.
    against: the class that the predicted one is compared with, by default the runner-up.
    """
    path = as_path(image, "image")
    if not is_file(path):
        raise missing_image(path)
    called = name or path.name
    sample = Sample(0, called, path, label="", split="test")
    marked = sample if region is None else region_sample(path, region, called)
    explanation = explain_sample(run, marked).compared_with(against)
    return explanation.outlined(evidence)


def explain_sample(run: Run, sample: Sample, data: DataConfig | None = None) -> Explanation:
    """The explanation of what `data`, by default that of the run, lets the model see of a sample."""
    prepared, origin = open_sample(run, sample, data or run.config.data)
    return explain_prepared(run, prepared.image, sample.name, origin)


def explain_array(run: Run, image: NDArray[np.float32], name: str = "image") -> Explanation:
    """The explanation of an image (H, W) or (H, W, 3) in [0, 1]."""
    data = run.config.data
    prepared = prepare(image, None, None, data.image_size, data.fit)
    return explain_prepared(run, prepared.image, name, Origin(prepared.mapping))


def explain_prepared(
    run: Run, image: Tensor, name: str = "image", origin: Origin | None = None
) -> Explanation:
    """The explanation of an image (C, S, S) in [0, 1] at the size of the model's input."""
    return explain_batch(run, [PreparedImage(image, name, origin)])[0]


class PreparedImage(NamedTuple):
    """An image (C, S, S) in [0, 1] at the size of the model's input, its name, and where it comes from."""

    image: Tensor
    name: str = "image"
    origin: Origin | None = None


def explain_batch(run: Run, batch: Sequence[PreparedImage]) -> list[Explanation]:
    """The explanations of several images by one pass of the network."""
    found = _evidence(run, batch)
    return [_explained(run, each, one) for each, one in zip(batch, found, strict=True)]


def _explained(run: Run, prepared: PreparedImage, evidence: Evidence) -> Explanation:
    """The explanation of one image, given the network's evidence of it."""
    parts = _parts(run, evidence) if run.model.prototypes is not None else []
    classes = run.config.data.classes
    logits = dict(zip(classes, evidence.logits[0].double().tolist(), strict=True))
    if parts:
        logits = contribution_sums(parts, classes)
    shares = softmax(np.array([list(logits.values())]))[0]
    return Explanation(
        image=prepared.name,
        predicted=max(logits, key=lambda each: logits[each]),
        logits=logits,
        probabilities=dict(zip(classes, shares.tolist(), strict=True)),
        prototypes=parts,
        picture=to_picture(prepared.image),
        run=run,
        evidence=evidence,
        unlike_training=_unlike_training(run, prepared.image, evidence),
        reference=reference_for(run),
        origin=prepared.origin,
    )


def _evidence(run: Run, batch: Sequence[PreparedImage]) -> list[Evidence]:
    """What the network says of each image, on the CPU."""
    run.model.eval()
    channels = max(len(each.image) for each in batch)  # grey is repeated where the batch has colour
    images = torch.stack([each.image.expand(channels, -1, -1) for each in batch])
    with torch.inference_mode():
        found = run.model(model_input(images, run.config.data, device_of(run.model)))
    logits, scores, closeness = found.logits.cpu(), found.scores.cpu(), found.closeness.cpu()
    maps = {level: maps.cpu() for level, maps in found.maps.items()}
    for row, each in enumerate(batch):
        if not bool(torch.isfinite(logits[row]).all()):
            raise UserError(f"{each.name}: the model's output is not finite; the run is damaged")
    return [
        Evidence(
            logits[row : row + 1],
            scores[row : row + 1],
            {level: of_level[row : row + 1] for level, of_level in maps.items()},
            closeness[row : row + 1],
        )
        for row in range(len(batch))
    ]


def _parts(run: Run, evidence: Evidence) -> list[PrototypePart]:
    """One part per prototype, in double precision: contributions sum to the logits."""
    layer, classes = layer_of(run.model), run.config.data.classes
    scores = evidence.scores[0].double()
    weights = run.model.head.weight.detach().cpu().double()
    contributions = (weights * scores).T.tolist()
    boxes = _boxes(run, evidence)
    owners, levels = layer.classes.tolist(), layer.levels.tolist()
    return [
        PrototypePart(
            index=index,
            class_name=classes[owners[index]],
            level=levels[index],
            score=score,
            weights=dict(zip(classes, weights[:, index].tolist(), strict=True)),
            contributions=dict(zip(classes, contributions[index], strict=True)),
            box=boxes[index],
        )
        for index, score in enumerate(scores.tolist())
    ]


def _boxes(run: Run, evidence: Evidence) -> list[Box]:
    """The box around the region of every prototype, in their order."""
    size = run.config.data.image_size
    return [
        box
        for level in layer_of(run.model).slices
        for box in activation_boxes(evidence.maps[level][0], size, size)
    ]


def _unlike_training(run: Run, image: Tensor, evidence: Evidence) -> bool | None:
    """Whether an image (C, S, S) is out of distribution; None if the run has no limits."""
    limits = limits_for(run)
    if limits is None:
        return None
    features = ood_features(image[None], evidence.scores, evidence.closeness)
    return bool(limits.relative_distance(features)[0] > 1)
