"""The fit-head phase: the head is solved for, with everything else fixed."""

from __future__ import annotations

from dataclasses import asdict

import torch
from torch import Tensor

from protopyramid.model.build import initial_head_weights
from protopyramid.training.head_fit import HeadFitResult, fit_head
from protopyramid.training.keeping import Keeper
from protopyramid.training.passes import Passes
from protopyramid.training.schedule import Phase
from protopyramid.training.state import Position
from protopyramid.utils.faults import reached
from protopyramid.utils.progress import metrics_text


def run_fit_head(phase: Phase, projected: bool, passes: Passes, keeper: Keeper) -> None:
    """Fit the head, measure the model, record and save.

    The result is a candidate for the model that is kept; with prototypes, only if they have just been
    `projected`.
    """
    result = fit_model_head(passes)
    validated = passes.validate()
    candidate = projected or passes.model.prototypes is None
    best = candidate and keeper.offer(validated, f"phase {phase.number + 1}, ")
    passes.reporter.say(
        f"head fitted in {result.iterations} iterations: {metrics_text(asdict(validated))}"
    )
    record = {
        "kind": "fit-head",
        "iterations": result.iterations,
        "optimality": result.optimality,
        "objective": result.objective,
        "validation": asdict(validated),
        "candidate": candidate,
        "best": best,
    }
    position = Position(phase.number + 1)
    keeper.record(position, record)
    keeper.save(position)


def fit_model_head(passes: Passes) -> HeadFitResult:
    """Fit the model's head on the training images."""
    model, pool = passes.model, passes.pool()
    scores = passes.scores(passes.train, pool, "scoring training images for the head fit")
    labels = torch.from_numpy(passes.train.labels[pool])
    classes = None if model.prototypes is None else model.prototypes.classes.cpu()
    reached("fit-head")
    result = fit_head(scores, labels, classes, _first_head(passes), passes.config.head_fit)
    with torch.no_grad():
        model.head.weight.copy_(result.weight)
    return result


def _first_head(passes: Passes) -> Tensor:
    """What the ridge draws the weights to, (C, m): the first weights, or zeros without prototypes."""
    model, config = passes.model, passes.config
    if model.prototypes is None:
        return torch.zeros_like(model.head.weight, device="cpu")
    classes = model.prototypes.classes.cpu()
    return initial_head_weights(classes, len(config.data.classes), config.model.head)
