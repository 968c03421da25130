"""Which ranking of pixels needs the smallest evidence region? A small study on one run.

On images of a split, the strongest own-class prototype of each level gets an evidence region
(`explanations.evidence`) by each ranking; the mean areas are printed by level, the smaller the better:

    python -m protopyramid.studies.evidence_methods RUN [MANIFEST] [IMAGES]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from protopyramid.config.schema import DataConfig
from protopyramid.data.store import ImageStore
from protopyramid.evaluation.faithfulness import draw_images, strongest_prototypes
from protopyramid.evaluation.split import EvaluatedSplit, evaluated_split
from protopyramid.explanations.evidence import (
    SMOOTHING,
    Gradients,
    PerturbedImage,
    Ranking,
    evidence_regions,
    near_cells,
    negative_image,
    occlusion,
    perturbed_image,
    upsampled,
)
from protopyramid.inference.batches import device_of, model_input
from protopyramid.metrics.faithfulness import gaussian
from protopyramid.model.activation import activation_maps
from protopyramid.model.backbones import IMAGE
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs.run import Run, load_run
from protopyramid.utils.tables import number

IMAGES = 10


def rankings(run: Run) -> dict[str, Ranking]:
    """The rankings that are compared, and what each costs beside the search."""
    gradients = Gradients(run.model, run.config.data)
    relevance = Relevance(run.model, run.config.data)
    return {
        "upsampled map (no pass)": upsampled,
        "near the top-k cells (no pass)": near_cells,
        "gradient x input (1 backward)": gradients.times_input,
        "midpoint gradient x input (1 backward)": gradients.midpoint,
        "SmoothGrad (4 backward)": gradients.smooth_grad,
        "relevance, z+ rule (1 backward)": relevance.positive,
        "occlusion (49 forward for all)": occlusion,
    }


class Relevance:
    """Layer-wise relevance of the similarity by the z+ rule, as in PRP (Gautam 2023), down to block 1.

    Each convolution passes relevance on in proportion to its positive products. That is the gradient of
    a network whose convolutions have their positive weights alone, scaled to the true outputs, times the
    map.
    """

    def __init__(self, model: PrototypeNetwork, data: DataConfig) -> None:
        self._model, self._data = model, data

    def positive(self, perturbed: PerturbedImage, maps: Sequence[int]) -> Tensor:
        """The ranking. -> (n, S, S)."""
        model, size = self._model.eval(), perturbed.size
        images = model_input(perturbed.image[None], self._data, device_of(model))
        with torch.no_grad():
            first = model.backbone.advance({IMAGE: images}, [1])[1]
        leaf = first.clone().requires_grad_(True)
        layers = [each for each in model.modules() if isinstance(each, nn.Conv2d)]
        hooks = [layer.register_forward_hook(_positive_part) for layer in layers]
        try:
            with torch.enable_grad():
                found = model.evidence_from_pyramid(model.pyramid_from_maps({1: leaf})).maps
        finally:
            for hook in hooks:
                hook.remove()
        ranked = []
        for index in maps:
            level, row = perturbed.level_and_row(index)
            mean = found[level][0, row][perturbed.cells(index)].mean()
            (gradient,) = torch.autograd.grad(mean, leaf, retain_graph=True)
            ranked.append((gradient * leaf).detach()[0].sum(0).abs())
        maps_of_block = torch.stack(ranked)[:, None]
        return gaussian(activation_maps(maps_of_block, size, size)[:, 0], SMOOTHING * size)


def _positive_part(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    assert isinstance(layer, nn.Conv2d)
    bias = None if layer.bias is None else layer.bias.clamp(min=0)
    positive = layer._conv_forward(inputs[0], layer.weight.clamp(min=0), bias)
    safe = torch.where(positive.abs() > 1e-9, positive, torch.full_like(positive, 1e-9))
    return safe * (output / safe).detach()


def areas_by_method(
    run: Run, chosen: EvaluatedSplit, images: int = IMAGES, seed: int = 0
) -> dict[str, dict[int, float]]:
    """The mean area of evidence regions by ranking and level, as shares of the image."""
    rng = np.random.default_rng(seed)
    data, other = run.config.data, negative_image(run)
    store = ImageStore(chosen.samples, data.model_copy(update={"memory_budget": 0.0}))
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for index in draw_images(chosen, data.negative_class, images, rng):
        perturbed = perturbed_image(run.model, data, store.load([index]).images[0], other)
        label = data.classes.index(chosen.samples[index].label)
        tested, _ = strongest_prototypes(run, perturbed, label, rng)
        for name, method in rankings(run).items():
            regions = evidence_regions(perturbed, method(perturbed, tested), tested)
            for prototype, region in zip(tested, regions, strict=True):
                if region is not None:
                    level, _ = perturbed.level_and_row(prototype)
                    found[name][level].append(region.share)
    return {
        name: {level: float(np.mean(areas)) for level, areas in sorted(levels.items())}
        for name, levels in found.items()
    }


def main(arguments: list[str]) -> None:
    """Print the mean areas."""
    run = load_run(arguments[0])
    manifest = arguments[1] if len(arguments) > 1 else None
    images = int(arguments[2]) if len(arguments) > 2 else IMAGES
    found = areas_by_method(run, evaluated_split(run, manifest, "test"), images)
    for name, levels in found.items():
        cells = "  ".join(f"level {level} {number(area)}" for level, area in levels.items())
        print(f"{name:38} {cells}  all {number(float(np.mean(list(levels.values()))))}")


if __name__ == "__main__":
    main(sys.argv[1:])
