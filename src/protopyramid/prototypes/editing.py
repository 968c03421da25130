"""Editing a run's prototypes, answered exactly: what is the best head without these, or with those kept?

With everything but the head fixed, the head's weights solve a convex problem (training/head_fit.py):

    loss(W) = mean_i w_i CE(W x_i, y_i)  +  l1 sum |W_other|  +  ridge |W - first|_F^2

over the prototypes that are there. So each question has one answer, found by solving the problem again, to
convergence, in milliseconds:

- *remove*: the same problem without the columns of the removed prototypes. Its least loss is the best that
  any head without them can reach. A removed prototype takes its part of the ridge with it, so the loss can
  also fall: then the ridge was all that held the prototype at its weight.
- *require*: the same problem with the weight between a prototype and its own class at least at a bound, as
  in Proto-RSet (Donnelly et al. 2025); by default the weight that it starts training with.
- *weights* chosen by hand: no problem is solved. The weights are taken as they are, and their loss is told.

Everything is computed from scores (inference/score_table.py): those that the run keeps, or those of its
images. Nothing here writes.

Examples:
    >>> import protopyramid as pp                                          # doctest: +SKIP
    >>> run = pp.load_run("runs/demo")                                     # doctest: +SKIP
    >>> for cost in removal_costs(run)[:3]:                                # doctest: +SKIP
    ...     print(cost.index, cost.loss_increase, len(cost.changes))
    >>> plan = plan_edit(run, remove=[7, 12], require=[3])                 # doctest: +SKIP
    >>> plan.after.loss - plan.before.loss, plan.changes                   # doctest: +SKIP
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.inference.score_table import (
    Progress,
    ScoreTable,
    SplitScores,
    measure_scores,
    read_scores,
)
from protopyramid.metrics.prototype_health import own_weights, times_decisive, times_leading
from protopyramid.metrics.validation import ValidationMetrics, validation_metrics
from protopyramid.model.build import initial_head_weights
from protopyramid.prototypes.cases import layer_of
from protopyramid.prototypes.ellipsoid import Ellipsoid, ellipsoid_at
from protopyramid.prototypes.pruning import kept_prototypes
from protopyramid.runs import layout
from protopyramid.runs.provenance import samples_of
from protopyramid.runs.run import Run
from protopyramid.training.head_fit import (
    Bounds,
    HeadFitResult,
    HeadProblem,
    fit_head,
    unbounded,
)
from protopyramid.training.sampling import fit_pool
from protopyramid.utils.opening import real_path

Place = str | Path
Required = Mapping[int, float]  # prototype: least weight for its own class
Weights = Mapping[int, Mapping[str, float]]  # prototype: class: weight
KEY = "editor"  # in the run's cache
NOTHING: Required = {}


# -- answers -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Change:
    """An image whose predicted class is another after an edit; `label` is its true class."""

    image: str
    label: str
    before: str
    after: str

    def to_json(self) -> dict[str, str]:
        """Plain values; the two predictions are called `from` and `to`.

        >>> Change("a.png", "negative", "negative", "spiculated").to_json()["to"]
        'spiculated'
        """
        return {
            "image": self.image,
            "label": self.label,
            "from": self.before,
            "to": self.after,
        }


@dataclass(frozen=True)
class Judged:
    """A head, judged: the loss on training images and its part that is cross entropy; validation metrics.

    `validation` is None where there are no validation images.
    """

    loss: float
    cross_entropy: float
    validation: ValidationMetrics | None

    @property
    def auroc(self) -> float | None:
        """AUROC on validation images, where it is defined."""
        return None if self.validation is None else self.validation.auroc


@dataclass(frozen=True)
class EditPlan:
    """What an edit would do; nothing is written.

    `kept`: the prototypes that stay, whose new indices are their places in it. weight (C, len(kept)).
    `required`: the least weight of prototypes for their own class, by old index. `by_hand`: weights that
    were chosen and not fitted, or None. `best`: the loss of the best head of the run as it is, with its
    requirements; `before` is that of the head that it has. `changes`: validation images (training images
    where there are none) that are predicted otherwise. `exact`: the fit converged to its tolerance.
    """

    removed: tuple[int, ...]
    required: Required
    by_hand: Weights | None
    kept: tuple[int, ...]
    weight: Tensor
    best: float
    before: Judged
    after: Judged
    changes: tuple[Change, ...]
    images: int
    exact: bool

    @property
    def loss_increase(self) -> float:
        """How much higher the loss is than that of the best head of the run as it is."""
        return self.after.loss - self.best

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the weights."""
        return {
            "removed": list(self.removed),
            "required": {str(index): least for index, least in self.required.items()},
            "by_hand": None
            if self.by_hand is None
            else {str(index): dict(row) for index, row in self.by_hand.items()},
            "kept": list(self.kept),
            "loss": {"best": self.best, "before": self.before.loss, "after": self.after.loss},
            "cross_entropy": {
                "before": self.before.cross_entropy,
                "after": self.after.cross_entropy,
            },
            "before": _plain(self.before.validation),
            "validation": _plain(self.after.validation),
            "changes": [change.to_json() for change in self.changes],
            "images": self.images,
            "exact": self.exact,
        }


@dataclass(frozen=True)
class RemovalCost:
    """What it costs to remove one prototype alone, with the head fitted again without it.

    `loss_increase` is negative where the fit is better off without it. `last_of_its_class`: it cannot be
    removed, since its class would have none left.
    """

    index: int
    loss_increase: float
    cross_entropy_increase: float
    auroc_change: float | None
    changes: tuple[Change, ...]
    last_of_its_class: bool
    exact: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "changes": [change.to_json() for change in self.changes]}


@dataclass(frozen=True)
class Use:
    """How often a prototype matters, on `images` images of `split`, with the head as it is.

    `leading`: images on which it is in the rows of a figure, the five largest contributions by size;
    `deciding`: images that are predicted otherwise when its contribution alone is left out.
    """

    index: int
    leading: int
    deciding: int
    images: int
    split: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class NearOptimalWeight:
    """What the ellipsoid says of one prototype, beside exact fits.

    `weight`: for its own class, in the best head; `low`, `high`: the ends of its range in the ellipsoid;
    `rise_at_low`, `rise_at_high`: the exact rise of the least loss with the weight at that end, equal to the
    bound where the ellipsoid is right; `removal_estimate`, `removal_exact`: the rise of the loss without it.
    """

    index: int
    weight: float
    low: float
    high: float
    rise_at_low: float
    rise_at_high: float
    removal_estimate: float
    removal_exact: float

    def agree(self, bound: float) -> bool:
        """Whether both say the same on whether the prototype could go alone within a bound."""
        return (self.removal_estimate <= bound) == (self.removal_exact <= bound)


@dataclass(frozen=True)
class NearOptimalHeads:
    """The heads whose loss is within `bound` of the best one's: the ellipsoid, checked by exact fits.

    `free` of `weights` weights vary in it; the others are held at zero by the L1 term, or by a requirement.
    """

    bound: float
    free: int
    weights: int
    prototypes: tuple[NearOptimalWeight, ...]

    @property
    def disagreements(self) -> tuple[int, ...]:
        """The prototypes for which ellipsoid and exact fit differ on whether they could go alone."""
        return tuple(each.index for each in self.prototypes if not each.agree(self.bound))

    @property
    def largest_error(self) -> float:
        """The largest difference between estimated and exact loss of a removal."""
        errors = (abs(each.removal_estimate - each.removal_exact) for each in self.prototypes)
        return max(errors, default=0.0)

    @property
    def rises(self) -> tuple[float, float]:
        """The least and greatest exact rise at the ends of the weights' ranges; both `bound` ideally."""
        found = [
            rise
            for each in self.prototypes
            if each.low < each.high
            for rise in (each.rise_at_low, each.rise_at_high)
        ]
        return (min(found), max(found)) if found else (0.0, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


# -- questions -----------------------------------------------------------------------------------
def removal_costs(run: Run, data: Place | None = None) -> list[RemovalCost]:
    """The cost of removing each prototype alone, by index: one exact fit each, done once per run."""
    return editor_of(run, data).removal_costs()


def how_often_matters(run: Run, data: Place | None = None) -> list[Use]:
    """How often each prototype matters on validation images (training images where there are none)."""
    return editor_of(run, data).uses()


def near_optimal_heads(
    run: Run, bound: float, data: Place | None = None
) -> NearOptimalHeads | None:
    """The heads whose loss is within a bound of the best: an ellipsoid, checked by exact fits.

    None where head_fit.ridge is 0: then nothing bounds them.
    """
    return editor_of(run, data).near_optimal(bound)


def plan_edit(
    run: Run,
    remove: Sequence[int] = (),
    require: Sequence[int] | Required = (),
    weights: Weights | None = None,
    data: Place | None = None,
) -> EditPlan:
    """What removing and requiring prototypes, or other weights, would do.

    Args:
        run: The run.
        remove: Indices of the prototypes to remove.
        require: Indices of prototypes to keep in use: their weight for their own class is at least the one
            they start training with; or {index: least weight}. Earlier requirements of the run hold as well.
        weights: {prototype: {class: weight}} chosen by hand. The others stay as they are; nothing is fitted.
        data: The manifest, by default the scores that the run keeps, or its manifest.
    """
    return editor_of(run, data).plan(remove, require, weights)


def editor_of(
    run: Run, data: Place | None = None, progress: Progress = lambda done, total: None
) -> HeadEditor:
    """The editor of a run, made once: with the scores that the run keeps, or from its images."""
    layer_of(run.model)  # refuses a model without prototypes
    key = f"{KEY} {'' if data is None else real_path(data)}"
    if key not in run.cache:
        run.cache[key] = HeadEditor(run, score_table(run, data, progress))
    found: HeadEditor = run.cache[key]
    return found


def score_table(
    run: Run, data: Place | None = None, progress: Progress = lambda done, total: None
) -> ScoreTable:
    """The scores of a run: those that it keeps or, with `data` or without them, from its images."""
    stored = read_scores(run) if data is None else None
    if stored is not None:
        return stored
    train, validation = (samples_of(run, data, split) for split in ("train", "validation"))
    if not train:
        raise UserError(
            f"{data or run.folder.path}: no training rows to fit the head to; give a manifest "
            "that has some with --data"
        )
    config = run.config
    numbers = np.array([config.data.classes.index(sample.label) for sample in train])
    pool = fit_pool(numbers, config.data, config.train.seed)
    return measure_scores(run, [train[place] for place in pool], validation, progress)


class HeadEditor:
    """Answers about the head of one run. Each fit is kept, so that asking again costs nothing."""

    def __init__(self, run: Run, table: ScoreTable) -> None:
        self.run, self.table = run, table
        self.classes = layer_of(run.model).classes.cpu()
        self.names = run.config.data.classes
        self.first = initial_head_weights(self.classes, len(self.names), run.config.model.head)
        self.weight = run.model.head.weight.detach().double().cpu()  # (C, m), as the run has it
        self.required = requirements(run)
        self.everything = tuple(range(len(self.classes)))
        self._fits: dict[tuple[tuple[int, ...], tuple[tuple[int, float], ...]], HeadFitResult] = {}
        self._costs: list[RemovalCost] | None = None

    # -- heads -----------------------------------------------------------------------------------
    def fit(self, kept: Sequence[int], required: Required) -> HeadFitResult:
        """The best head of these prototypes with these requirements, started from the run's."""
        wanted = {index: least for index, least in required.items() if index in set(kept)}
        key = (tuple(kept), tuple(sorted(wanted.items())))
        if key not in self._fits:
            start = self._start(kept)
            self._fits[key] = self._fit(kept, start, self._bounds(kept, wanted))
        return self._fits[key]

    def _fit(self, kept: Sequence[int], start: Tensor, bounds: Bounds | None) -> HeadFitResult:
        """The best head of these prototypes within bounds, from a start: both (C, len(kept))."""
        columns = list(kept)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `exact` tells of a fit that did not converge
            return fit_head(
                self.table.train.scores[:, columns],
                self.table.train.labels,
                self.classes[columns],
                self.first[:, columns],
                self.run.config.head_fit,
                start,
                bounds,
            )

    def _start(self, kept: Sequence[int]) -> Tensor:
        """Where the fit of these prototypes starts, (C, len(kept)): near its optimum."""
        gone = [index for index in self.everything if index not in set(kept)]
        if gone and self.ellipsoid is not None:
            return self.ellipsoid.without(gone)[1][:, list(kept)]
        return self.weight[:, list(kept)]

    def best(self) -> HeadFitResult:
        """The best head of the run as it is: all prototypes, with the run's requirements."""
        return self.fit(self.everything, self.required)

    @cached_property
    def ellipsoid(self) -> Ellipsoid | None:
        """The near-optimal heads around the best one, to second order; None without a ridge."""
        return ellipsoid_at(self.problem(self.everything, self.required), self.best().weight)

    def judge(self, kept: Sequence[int], weight: Tensor) -> Judged:
        """The loss and the validation metrics of a head (C, len(kept)) of these prototypes."""
        problem, weight = self.problem(kept), weight.double()
        return Judged(
            problem.objective(weight),
            float(problem.logits_loss(problem.x @ weight.T)),
            self._validate(kept, weight),
        )

    def problem(self, kept: Sequence[int], required: Required = NOTHING) -> HeadProblem:
        """The head's problem with these prototypes and requirements."""
        columns = list(kept)
        return HeadProblem(
            self.table.train.scores[:, columns],
            self.table.train.labels,
            self.classes[columns],
            self.first[:, columns],
            self.run.config.head_fit,
            self._bounds(columns, required),
        )

    def exact(self, fit: HeadFitResult) -> bool:
        """Whether a fit converged to the tolerance of the settings."""
        return not fit.unbounded and fit.optimality <= self.run.config.head_fit.tolerance

    # -- answers ---------------------------------------------------------------------------------
    def plan(
        self,
        remove: Sequence[int] = (),
        require: Sequence[int] | Required = (),
        weights: Weights | None = None,
    ) -> EditPlan:
        """What an edit would do; see `plan_edit`."""
        kept = tuple(kept_prototypes(self.run, remove))
        required = self._requirements(require, set(kept))
        if weights is None:
            fit = self.fit(kept, required)
            weight, exact = fit.weight, self.exact(fit)
        else:
            if require:
                raise UserError(
                    "weights chosen by hand are not fitted: they cannot be required, too"
                )
            weight, exact = self._by_hand(weights, kept), True
            required = {}
        return EditPlan(
            removed=tuple(sorted(set(remove))),
            required=required,
            by_hand=weights,
            kept=kept,
            weight=weight,
            best=self.best().objective,
            before=self.judge(self.everything, self.weight),
            after=self.judge(kept, weight),
            changes=self.changes(kept, weight),
            images=len(self.judged[1]),
            exact=exact,
        )

    def removal_costs(self) -> list[RemovalCost]:
        """The cost of removing each prototype alone."""
        if self._costs is None:
            whole = self.judge(self.everything, self.best().weight)
            self._costs = [self._removal_cost(index, whole) for index in self.everything]
        return self._costs

    def _removal_cost(self, index: int, whole: Judged) -> RemovalCost:
        kept = [each for each in self.everything if each != index]
        fit = self.fit(kept, self.required)
        judged = self.judge(kept, fit.weight)
        known = judged.auroc is not None and whole.auroc is not None
        return RemovalCost(
            index=index,
            loss_increase=fit.objective - self.best().objective,
            cross_entropy_increase=judged.cross_entropy - whole.cross_entropy,
            auroc_change=judged.auroc - whole.auroc if known else None,  # type: ignore[operator]
            changes=self.changes(kept, fit.weight),
            last_of_its_class=int((self.classes == self.classes[index]).sum()) == 1,
            exact=self.exact(fit),
        )

    def near_optimal(self, bound: float) -> NearOptimalHeads | None:
        """The heads within a bound of the best loss; None without a ridge, where nothing bounds them."""
        if self.ellipsoid is None:
            return None
        free = self.ellipsoid.free
        parts = [
            self._near_optimal_weight(index, bound, self.ellipsoid) for index in self.everything
        ]
        return NearOptimalHeads(bound, int(free.sum()), free.numel(), tuple(parts))

    def _near_optimal_weight(
        self, index: int, bound: float, ellipsoid: Ellipsoid
    ) -> NearOptimalWeight:
        row, cost = int(self.classes[index]), self.removal_costs()[index]
        weight = float(ellipsoid.weight[row, index])
        half = ellipsoid.half_width(row, index, bound)
        # In the loss without the prototype, its part of the ridge is gone, too.
        rise, _ = ellipsoid.without([index])
        ridge = self.run.config.head_fit.ridge * float(self.first[:, index].double().square().sum())
        low, high = weight - half, weight + half
        rises = [self._rise_at(index, end, ellipsoid) if half else 0.0 for end in (low, high)]
        return NearOptimalWeight(
            index=index,
            weight=weight,
            low=low,
            high=high,
            rise_at_low=rises[0],
            rise_at_high=rises[1],
            removal_estimate=rise - ridge,
            removal_exact=cost.loss_increase,
        )

    def _rise_at(self, index: int, value: float, ellipsoid: Ellipsoid) -> float:
        """How much the least loss rises, exactly, when a prototype's own-class weight is at a value.

        The loss is convex, so a weight that may not be nearer to its optimum than the value is at the value.
        """
        row = int(self.classes[index])
        lower, upper = self._bounds(self.everything, self.required) or unbounded(self.weight.shape)
        (lower if value > ellipsoid.weight[row, index] else upper)[row, index] = value
        start = ellipsoid.with_weight(row, index, value)
        fit = self._fit(self.everything, start, Bounds(lower, upper))
        return fit.objective - self.best().objective

    def uses(self) -> list[Use]:
        """How often each prototype matters."""
        split, images = self.judged
        scores = images.scores.double()
        logits = scores @ self.weight.T
        leading = times_leading(self.weight, logits, scores).tolist()
        deciding = times_decisive(self.weight, scores).tolist()
        return [
            Use(index, leading[index], deciding[index], len(images), split)
            for index in self.everything
        ]

    def changes(self, kept: Sequence[int], weight: Tensor) -> tuple[Change, ...]:
        """The images that a head (C, len(kept)) predicts otherwise than the run does."""
        _, images = self.judged
        scores = images.scores.double()
        before = (scores @ self.weight.T).argmax(1)
        after = (scores[:, list(kept)] @ weight.double().T).argmax(1)
        return tuple(
            Change(
                images.names[place],
                *(self.names[int(each[place])] for each in (images.labels, before, after)),
            )
            for place in (before != after).nonzero()[:, 0].tolist()
        )

    @property
    def judged(self) -> tuple[str, SplitScores]:
        """The images on which predictions are compared: validation or, where there are none, training."""
        if len(self.table.validation):
            return "validation", self.table.validation
        return "train", self.table.train

    # -- parts -----------------------------------------------------------------------------------
    def _validate(self, kept: Sequence[int], weight: Tensor) -> ValidationMetrics | None:
        images = self.table.validation
        if not len(images):
            return None
        logits = images.scores[:, list(kept)].double() @ weight.T
        negative = self.run.config.data.negative_class
        return validation_metrics(logits.numpy(), images.labels.numpy(), self.names, negative)

    def _requirements(self, require: Sequence[int] | Required, kept: set[int]) -> Required:
        """Least weights by prototype: those of the run that stay, and those asked for."""
        usual = own_weights(self.first, self.classes)
        asked = require if isinstance(require, Mapping) else dict.fromkeys(require)
        found = {index: least for index, least in self.required.items() if index in kept}
        for index, least in asked.items():
            self._check_index(index)
            if index not in kept:
                raise UserError(f"prototype {index}: removed and required at once; choose one")
            found[index] = float(usual[index]) if least is None else float(least)
            if not math.isfinite(found[index]):
                raise UserError(f"prototype {index}: its least weight is {least}, not a number")
        return dict(sorted(found.items()))

    def _bounds(self, columns: Sequence[int], required: Required) -> Bounds | None:
        if not required:
            return None
        bounds = unbounded((len(self.names), len(columns)))
        for index, least in required.items():
            bounds.lower[self.classes[index], list(columns).index(index)] = least
        return bounds

    def _by_hand(self, weights: Weights, kept: Sequence[int]) -> Tensor:
        """The run's head (C, len(kept)) with other weights in some places."""
        weight = self.weight.clone()
        for index, row in weights.items():
            self._check_index(index)
            for name, value in row.items():
                if name not in self.names:
                    raise UserError(f'no class "{name}"; the classes are {", ".join(self.names)}')
                if not math.isfinite(value):
                    raise UserError(
                        f"prototype {index}: its weight for {name} is {value}, not a number"
                    )
                weight[self.names.index(name), index] = value
        return weight[:, list(kept)].float()

    def _check_index(self, index: int) -> None:
        if index not in self.everything:
            raise UserError(
                f"no prototype {index}; they are numbered 0 to {len(self.everything) - 1}"
            )


def requirements(run: Run) -> dict[int, float]:
    """The least own-class weights that earlier edits of the run require, by its present indices."""
    if not (run.folder / layout.DATA).is_file() or not run.provenance.edits:
        return {}
    found: Mapping[str, float] = run.provenance.edits[-1].get("requirements", {})
    return {int(index): float(least) for index, least in found.items()}


def _plain(metrics: ValidationMetrics | None) -> dict[str, Any] | None:
    return None if metrics is None else asdict(metrics)
