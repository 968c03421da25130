"""The fit-head phase: the head is solved for, with everything else fixed."""

from __future__ import annotations

import warnings
from dataclasses import asdict

import torch
from torch import Tensor

from protopyramid.metrics.prototype_health import health_lines, prototype_health
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
    result, scores = fit_model_head(passes)
    warn_of_unhealthy_prototypes(passes, result.weight, scores)
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


def fit_model_head(passes: Passes) -> tuple[HeadFitResult, Tensor]:
    """Fit the model's head on the training images; also returns their scores (N, m)."""
    model, pool = passes.model, passes.pool()
    scores = passes.scores(passes.train, pool, "scoring training images for the head fit")
    labels = torch.from_numpy(passes.train.labels[pool])
    classes = None if model.prototypes is None else model.prototypes.classes.cpu()
    reached("fit-head")
    result = fit_head(scores, labels, classes, _first_head(passes), passes.config.head_fit)
    with torch.no_grad():
        model.head.weight.copy_(result.weight)
    return result, scores


def warn_of_unhealthy_prototypes(passes: Passes, weight: Tensor, scores: Tensor) -> None:
    """Name unhealthy prototypes, in one line for each kind of finding."""
    prototypes = passes.model.prototypes
    if prototypes is None or not passes.fabric.is_global_zero:
        return
    findings = prototype_health(
        prototypes.vectors.detach().cpu(),
        prototypes.classes.cpu(),
        prototypes.levels.cpu(),
        passes.config.model.similarity.kind,
        weight,
        scores,
        class_names=passes.config.data.classes,
    )
    for line in health_lines(findings):
        warnings.warn(line, stacklevel=2)


def _first_head(passes: Passes) -> Tensor:
    """What the ridge draws the weights to, (C, m): the first weights, or zeros without prototypes."""
    model, config = passes.model, passes.config
    if model.prototypes is None:
        return torch.zeros_like(model.head.weight, device="cpu")
    classes = model.prototypes.classes.cpu()
    return initial_head_weights(classes, len(config.data.classes), config.model.head)
