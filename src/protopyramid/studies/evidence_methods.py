"""Which ranking of pixels needs the smallest evidence region? A small study on one run.

On images of a split, the strongest own-class prototype of each level gets an evidence region
(`explanations.evidence`) by each ranking; the mean areas are printed by level, the smaller the better:

    python -m protopyramid.studies.evidence_methods RUN [MANIFEST] [IMAGES]
"""

from __future__ import annotations

import sys
from collections import defaultdict

import numpy as np

from protopyramid.data.store import ImageStore
from protopyramid.evaluation.faithfulness import draw_images, strongest_prototypes
from protopyramid.evaluation.split import EvaluatedSplit, evaluated_split
from protopyramid.explanations.evidence import (
    Gradients,
    Ranking,
    evidence_regions,
    near_cells,
    negative_image,
    occlusion,
    perturbed_image,
    upsampled,
)
from protopyramid.runs.run import Run, load_run
from protopyramid.utils.tables import number

IMAGES = 10


def rankings(run: Run) -> dict[str, Ranking]:
    """The rankings that are compared, and what each costs beside the search."""
    gradients = Gradients(run.model, run.config.data)
    return {
        "upsampled map (no pass)": upsampled,
        "near the top-k cells (no pass)": near_cells,
        "gradient x input (1 backward)": gradients.times_input,
        "SmoothGrad (4 backward)": gradients.smooth_grad,
        "occlusion (49 forward for all)": occlusion,
    }


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
        print(f"{name:32} {cells}  all {number(float(np.mean(list(levels.values()))))}")


if __name__ == "__main__":
    main(sys.argv[1:])
