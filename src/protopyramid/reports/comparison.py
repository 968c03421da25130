"""The comparison figures: test images x methods, and the paper's 3 x 3 teaser.

    write_comparison([fpn, iaia, vgg], samples, "out/comparison.png")

A run with prototypes shows the activation map of the prototype that adds most to the predicted class, of
each level that is asked for; a run without them shows one column per saliency method.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
TEASER = 3  # rows of the teaser
MULTI_SCALE = ("fpn-iaia-bl", "protopyramid")  # systems of the teaser, the paper's first
SINGLE_SCALE = ("iaia-bl",)
TITLE = "Where each method looks"
NOTE = (
    "Dashed: annotation. White outline: the strongest 5% of the map, in its box. "
    "Below: the prediction, ✕ if wrong."
)
TEASER_NOTE = (
    "Bright: best match; white: its strongest 5 %. Dashed: annotation. ✕: wrong prediction."
)


def write_comparison(
    runs: Sequence[Run],
    samples: Sequence[Sample],
    path: str | Path,
    methods: Mapping[str, Saliency] = METHODS,
    colour_map: str = COLOUR_MAP,
    levels: Sequence[int] = (),
) -> Path:
    """Write the paper's comparison figure: some images of every class (down) by methods (across).

    levels: for runs with several of them, one column per level; by default the leading prototype of any.
    """
    chosen = pick(samples, runs[0].config.data.classes, IMAGES)
    columns = ["Image"]
    for run, name in zip(runs, run_names(runs), strict=True):
        columns += _columns(run, name, methods, levels)
    panels = [
        [
            _image_panel(runs[0], sample),
            *(panel for run in runs for panel in run_panels(run, sample, methods, levels)),
        ]
        for sample in chosen
    ]
    rows = [sample.label for sample in chosen]
    return save_figure(grid_figure(panels, columns, rows, TITLE, colour_map, note=NOTE), path)


def write_teaser(
    runs: Sequence[Run],
    samples: Sequence[Sample],
    path: str | Path,
    colour_map: str = COLOUR_MAP,
    levels: Sequence[int] = (),
) -> Path:
    """Write the paper's figure 1: an image of each margin class, FPN-IAIA-BL on it, and IAIA-BL.

    levels: those of FPN-IAIA-BL, one column each; by default its finest. A system that none of the runs is
    of is warned about and left out; without both, UserError.
    """
    multi, single = teaser_runs(runs)
    shown = [run for run in (multi, single) if run is not None]
    if not shown:
        raise UserError(
            "the teaser shows FPN-IAIA-BL and IAIA-BL, but none of these runs is of either; add one"
        )
    for run, system in ((multi, "FPN-IAIA-BL (or protopyramid)"), (single, "IAIA-BL")):
        if run is None:
            warnings.warn(f"{path}: no run of {system}, so its column is left out", stacklevel=2)
    data = shown[0].config.data
    classes = [name for name in data.classes if name != data.negative_class][:TEASER]
    chosen = pick(samples, classes, len(classes))
    chosen_levels = list(levels) or (prototype_levels(multi)[:1] if multi is not None else [])
    columns = ["Image"]
    for run, name in zip(shown, run_names(shown), strict=True):
        columns += _columns(run, name, {}, chosen_levels)
    panels = [
        [
            _image_panel(shown[0], sample),
            *(
                panel and replace(panel, boxed=False)
                for run in shown
                for panel in run_panels(run, sample, {}, chosen_levels)
            ),
        ]
        for sample in chosen
    ]
    rows = [sample.label for sample in chosen]
    figure = grid_figure(panels, columns, rows, colour_map=colour_map, tile=2.3, note=TEASER_NOTE)
    return save_figure(figure, path)


def teaser_runs(runs: Sequence[Run]) -> tuple[Run | None, Run | None]:
    """The runs of the teaser, whatever their order: prototypes of several scales, and IAIA-BL's.

    The paper's systems come first, then ours, then runs of the same structure under another name.
    """
    multi = _first(runs, MULTI_SCALE, lambda run: len(prototype_levels(run)) > 1)
    return multi, _first(runs, SINGLE_SCALE, _like_iaia_bl)


def _first(runs: Sequence[Run], systems: Sequence[str], alike: Callable[[Run], bool]) -> Run | None:
    """The first run of the first of these systems, else the first that is alike."""
    for system in systems:
        for run in runs:
            if run.config.system == system and run.model.prototypes is not None:
                return run
    return next((run for run in runs if alike(run)), None)


def _like_iaia_bl(run: Run) -> bool:
    """Prototypes on one level, compared as IAIA-BL does; ProtoPNet's distance is squared."""
    similarity = run.config.model.similarity
    one_level = len(prototype_levels(run)) == 1
    return one_level and similarity.kind == "log-l2" and not similarity.squared


def prototype_levels(run: Run) -> list[int]:
    """The levels on which a run has prototypes, finest first."""
    layer = run.model.prototypes
    return [] if layer is None else sorted(set(layer.levels.tolist()))


def check_levels(runs: Sequence[Run], levels: Sequence[int]) -> None:
    """Refuse levels on which no run with several has prototypes."""
    found = [prototype_levels(run) for run in runs]
    known = {level for own in found if len(own) > 1 for level in own}
    missing = [level for level in levels if level not in known]
    if missing:
        there = ", ".join(map(str, sorted(known)))
        remedy = f"choose among {there}" if known else "add a run with prototypes on several levels"
        raise UserError(f"--levels {missing[0]}: none of these runs has that level; {remedy}")


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


def run_panels(
    run: Run, sample: Sample, methods: Mapping[str, Saliency], levels: Sequence[int] = ()
) -> list[Panel | None]:
    """What a run shows of an image: a panel, one per level, or for a black box one per saliency method.

    None where the predicted class has no prototype on a level.
    """
    prepared = prepare_sample(sample, run.config.data)
    explanation = explain_prepared(run, prepared.image, sample.name)
    wrong = "" if explanation.predicted == sample.label else "✕ "
    caption = f"{wrong}{explanation.predicted}"
    mask = _mask(prepared)
    if explanation.prototypes:
        wanted: list[int | None] = [*_split_by_level(run, levels)] or [None]
        return [
            _prototype_panel(explanation, leading(explanation, level), mask, caption)
            for level in wanted
        ]
    return [
        Panel(
            explanation.picture,
            _saliency(run, prepared, explanation.predicted, method),
            mask,
            caption,
        )
        for method in methods.values()
    ]


def _prototype_panel(
    explanation: Explanation,
    part: PrototypePart | None,
    mask: NDArray[np.uint8] | None,
    caption: str,
) -> Panel | None:
    if part is None:
        return None
    caption = f"{caption}, level {part.level}"
    return Panel(explanation.picture, explanation.region(part.index), mask, caption)


def leading(explanation: Explanation, level: int | None = None) -> PrototypePart | None:
    """The prototype of the predicted class that adds most to it, on any level or on one.

    On any level, of any class if the predicted one has none; on one level, None.
    """
    name = explanation.predicted
    own = [
        part
        for part in explanation.prototypes
        if part.class_name == name and level in (None, part.level)
    ]
    candidates = own or (explanation.prototypes if level is None else [])
    return max(candidates, key=lambda part: part.contributions[name], default=None)


def _split_by_level(run: Run, levels: Sequence[int]) -> list[int]:
    """The levels that a run shows in columns of their own: none unless it has several."""
    own = prototype_levels(run)
    return [level for level in levels if level in own] if len(own) > 1 else []


def _saliency(run: Run, prepared: Prepared, class_name: str, method: Saliency) -> Region:
    """The saliency map of a class with its region."""
    target = torch.tensor([run.config.data.classes.index(class_name)])
    ready = model_input(prepared.image[None], run.config.data, device_of(run.model))
    return region_of(method(run.model, ready, target)[0])


def _columns(
    run: Run, name: str, methods: Mapping[str, Saliency], levels: Sequence[int]
) -> list[str]:
    if run.model.prototypes is None:
        return [f"{name} {each}" for each in methods]
    return [f"{name}\nlevel {level}" for level in _split_by_level(run, levels)] or [name]


def _image_panel(run: Run, sample: Sample) -> Panel:
    prepared = prepare_sample(sample, run.config.data)
    return Panel(to_picture(prepared.image), None, _mask(prepared), Path(sample.name).stem)


def _mask(prepared: Prepared) -> NDArray[np.uint8] | None:
    return None if prepared.mask is None else prepared.mask.numpy()
