"""The comparison figures: test images x methods, and the paper's 3 x 3 teaser.

    write_comparison([fpn, iaia, vgg], samples, "out/comparison.png")

A run with prototypes shows the activation map of the prototype that adds most to the predicted class; a
run without them shows one column per saliency method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from protopyramid.data.images import Prepared, prepare_sample
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.evaluation.comparison import run_names
from protopyramid.explanations.explanation import Explanation, PrototypePart, explain_prepared
from protopyramid.explanations.saliency import METHODS, Saliency
from protopyramid.figures.drawing import COLOUR_MAP, save_figure
from protopyramid.figures.grid_figure import Panel, grid_figure
from protopyramid.inference.batches import device_of, model_input
from protopyramid.model.activation import Region, region_of
from protopyramid.prototypes.cases import to_picture
from protopyramid.runs.run import Run

IMAGES = 6  # rows of the comparison figure
TEASER = 3
TITLE = "Where each method looks"
NOTE = (
    "Dashed: annotation. White outline: the strongest 5% of the map, in its box. "
    "Below: the prediction, ✕ if wrong."
)


def write_comparison(
    runs: Sequence[Run],
    samples: Sequence[Sample],
    path: str | Path,
    methods: Mapping[str, Saliency] = METHODS,
    colour_map: str = COLOUR_MAP,
) -> Path:
    """Write the paper's comparison figure: some images of every class (down) by methods (across)."""
    chosen = pick(samples, runs[0].config.data.classes, IMAGES)
    columns = ["Image"]
    for run, name in zip(runs, run_names(runs), strict=True):
        columns += _columns(run, name, methods)
    panels = [
        [_image_panel(runs[0], sample), *(p for r in runs for p in run_panels(r, sample, methods))]
        for sample in chosen
    ]
    rows = [sample.label for sample in chosen]
    return save_figure(grid_figure(panels, columns, rows, TITLE, colour_map, note=NOTE), path)


def write_teaser(
    runs: Sequence[Run], samples: Sequence[Sample], path: str | Path, colour_map: str = COLOUR_MAP
) -> Path:
    """Write the 3 x 3 teaser: one image of each margin class, by the first two runs with prototypes."""
    shown = [run for run in runs if run.model.prototypes is not None][: TEASER - 1]
    if not shown:
        raise UserError(
            "the teaser needs a run with prototypes, but all of these are black boxes; add one"
        )
    data = shown[0].config.data
    classes = [name for name in data.classes if name != data.negative_class][:TEASER]
    chosen = pick(samples, classes, len(classes))
    panels = [
        [_image_panel(shown[0], sample), *(run_panels(run, sample, {})[0] for run in shown)]
        for sample in chosen
    ]
    columns = ["Image", *run_names(shown)]
    rows = [sample.label for sample in chosen]
    figure = grid_figure(panels, columns, rows, colour_map=colour_map, tile=2.3)
    return save_figure(figure, path)


def pick(samples: Sequence[Sample], classes: Sequence[str], count: int) -> list[Sample]:
    """Samples of every class in turn, annotated ones first, ordered by class."""
    pools = {
        name: sorted(
            (s for s in samples if s.label == name), key=lambda s: s.mask is None and s.box is None
        )
        for name in classes
    }
    chosen: list[Sample] = []
    while len(chosen) < count and any(pools.values()):
        for name in classes:
            if pools[name] and len(chosen) < count:
                chosen.append(pools[name].pop(0))
    return sorted(chosen, key=lambda sample: classes.index(sample.label))


def run_panels(run: Run, sample: Sample, methods: Mapping[str, Saliency]) -> list[Panel]:
    """What a run shows of an image: one panel, or one per saliency method for a black box."""
    prepared = prepare_sample(sample, run.config.data)
    explanation = explain_prepared(run, prepared.image, sample.name)
    wrong = "" if explanation.predicted == sample.label else "✕ "
    caption = f"{wrong}{explanation.predicted}"
    mask = _mask(prepared)
    if explanation.prototypes:
        part = leading(explanation)
        caption = f"{caption}, level {part.level}"
        return [Panel(explanation.picture, explanation.region(part.index), mask, caption)]
    return [
        Panel(
            explanation.picture,
            _saliency(run, prepared, explanation.predicted, method),
            mask,
            caption,
        )
        for method in methods.values()
    ]


def leading(explanation: Explanation) -> PrototypePart:
    """The prototype of the predicted class that adds most to it; of any class if it has none."""
    name = explanation.predicted
    own = [part for part in explanation.prototypes if part.class_name == name]
    return max(own or explanation.prototypes, key=lambda part: part.contributions[name])


def _saliency(run: Run, prepared: Prepared, class_name: str, method: Saliency) -> Region:
    """The saliency map of a class with its region."""
    target = torch.tensor([run.config.data.classes.index(class_name)])
    ready = model_input(prepared.image[None], run.config.data, device_of(run.model))
    return region_of(method(run.model, ready, target)[0])


def _columns(run: Run, name: str, methods: Mapping[str, Saliency]) -> list[str]:
    return [name] if run.model.prototypes is not None else [f"{name} {each}" for each in methods]


def _image_panel(run: Run, sample: Sample) -> Panel:
    prepared = prepare_sample(sample, run.config.data)
    return Panel(to_picture(prepared.image), None, _mask(prepared), Path(sample.name).stem)


def _mask(prepared: Prepared) -> NDArray[np.uint8] | None:
    return None if prepared.mask is None else prepared.mask.numpy()
