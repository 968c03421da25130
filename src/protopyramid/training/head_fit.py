"""The fit of the head: with everything else fixed, its weights are the solution of a convex problem.

    minimise over W (C, m):   mean_i w_i CE(W x_i, y_i)  +  l1 sum |W_other|  +  ridge |W - first|_F^2

x_i are the scores of image i, W_other the weights between a prototype and other classes (none where the
model has no prototypes: then it is logistic regression, and the first weights are zero). The ridge makes
the objective strongly convex: the optimum exists, is unique, and does not depend on the start. Without it
this is the problem that ProtoPNet and IAIA-BL train their last layer on (by epochs of Adam). It is convex,
but where the own-class weights alone separate the classes, longer weights are always better and there is no
optimum: the fit then stops at small gradients or after `max_iterations`, and says so.

Solved by a semi-smooth Newton method on the proximal-gradient equation: the weights that a proximal step
would set to zero are set to zero, the others take a Newton step. The Newton system is solved by conjugate
gradients, without forming the Hessian (m C x m C), preconditioned by the Hessian of one class
with its mean curvature (m x m). Where such a step does not decrease the objective, a plain proximal
step is taken, which always does. Small problems that are still unsolved after that get a start from a
smoothed objective, with the whole Hessian (see `_smoothed_optimum`).

Weights without an L1 penalty may have bounds (`bounds`: prototypes that are required). A weight that a
proximal step would move past its bound is set to the bound, as one that it would set to zero is set to zero.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from protopyramid.config.schema import HeadFitConfig
from protopyramid.errors import UserError

FIRST_ITERATIONS = 20
MAX_CONJUGATE_STEPS = 200
MAX_HALVINGS = 20
SUFFICIENT = 1e-4  # Armijo: share of the predicted decrease that a step must give
DAMPING = 0.01  # without a ridge, added to Newton's system, times the root of the optimality error
LEAST_DAMPING = 1e-9
ROUNDING = 1e-14  # relative error of the objective itself
SMALL_PROBLEM = 2000  # weights, up to which a whole Hessian is formed
SMOOTH_WIDTHS = [10.0**-power for power in range(7)]
SMOOTH_STEPS = 30
SMOOTH_TOLERANCE = 1e-13  # Newton decrement

UNBOUNDED = (
    "head fit: without a ridge this problem has no optimum, because the scores separate the classes; it was "
    "stopped at small gradients or after head_fit.max_iterations (head_fit.ridge > 0 gives it an optimum)"
)


@dataclass(frozen=True)
class HeadFitResult:
    """weight (C, m) float32; iterations of Newton's method; largest optimality error; objective.

    `unbounded`: the problem has no optimum, since longer weights are always better.
    """

    weight: Tensor
    iterations: int
    optimality: float
    objective: float
    unbounded: bool = False


class Bounds(NamedTuple):
    """The least and the greatest value of each weight, (C, m) both; -inf and inf where there is none."""

    lower: Tensor
    upper: Tensor


def unbounded(shape: Sequence[int]) -> Bounds:
    """Bounds of a head (C, m) that hold nothing."""
    lower = torch.full(tuple(shape), -torch.inf, dtype=torch.float64)
    return Bounds(lower, -lower)


def fit_head(
    scores: Tensor,
    labels: Tensor,
    classes: Tensor | None,
    first: Tensor,
    settings: HeadFitConfig,
    start: Tensor | None = None,
    bounds: Bounds | None = None,
) -> HeadFitResult:
    """The head that minimises the objective above, to `settings.tolerance`.

    scores (N, m); labels (N,); classes (m,) of the prototypes, or None where scores are not of prototypes
    and so no weight has an L1 penalty; first (C, m), the weights that the ridge draws to; start (C, m), where
    the search begins, by default at `first`; bounds of weights without an L1 penalty.

    >>> labels = classes = torch.tensor([0, 1])
    >>> fit = fit_head(torch.eye(2), labels, classes, torch.eye(2), HeadFitConfig())
    >>> bool(fit.weight[0, 0] > 1 > 0 > fit.weight[0, 1]), fit.optimality < 1e-7
    (True, True)
    """
    problem = HeadProblem(scores, labels, classes, first, settings, bounds)
    begin = problem.first if start is None else start.detach().double().cpu()
    weight, iterations, optimality = _minimise(
        problem, problem.within(begin), settings.tolerance, settings.max_iterations
    )
    unbounded = problem.is_unbounded(weight)
    if unbounded:
        warnings.warn(UNBOUNDED, stacklevel=2)
    elif optimality > settings.tolerance:
        warnings.warn(
            # The same words after each fit, so that they are said once.
            f"head_fit.tolerance: after {settings.max_iterations} iterations a head fit had not reached "
            f"{settings.tolerance:.0e}; its optimality error is in metrics.jsonl",
            stacklevel=2,
        )
    found = weight.to(first.device, torch.float32)
    return HeadFitResult(found, iterations, optimality, problem.objective(weight), unbounded)


def image_weights(labels: Tensor, count: int, balance: bool) -> Tensor:
    """Weight of each image (N,), N in sum; balanced: every class that is present weighs the same.

    >>> image_weights(torch.tensor([0, 0, 0, 2]), 3, balance=True).tolist()
    [0.6666666666666666, 0.6666666666666666, 0.6666666666666666, 2.0]
    """
    if balance:
        per_class = 1.0 / torch.bincount(labels, minlength=count).clamp(min=1).double()
    else:
        per_class = torch.ones(count, dtype=torch.float64)
    weights = per_class[labels]
    return weights * (len(labels) / weights.sum())


class HeadProblem:
    """The objective, its derivatives and its proximal step, in double precision."""

    def __init__(
        self,
        scores: Tensor,
        labels: Tensor,
        classes: Tensor | None,
        first: Tensor,
        settings: HeadFitConfig,
        bounds: Bounds | None = None,
    ) -> None:
        _check(scores, labels, classes, first)
        self.x = scores.detach().double().cpu()
        self.labels = labels.detach().long().cpu()
        self.first = first.detach().double().cpu()
        self.ridge = settings.ridge
        self.damping = 0.0  # of Newton's system; the objective has none
        count = len(self.first)
        weights = image_weights(self.labels, count, settings.balance)
        self.share = (weights / len(weights))[:, None]
        self.l1 = settings.l1 * _between_classes(classes, self.first).double()
        self.bounds = _checked_bounds(bounds, self.l1)
        self.gram = self.x.T @ (self.x * self.share)
        # Single precision is enough for Newton directions, but not for errors and sums
        small = self.first.numel() <= SMALL_PROBLEM
        self.fast = self.x if small else self.x.float()

    def logits_loss(self, logits: Tensor) -> Tensor:
        own = logits.gather(1, self.labels[:, None])
        return (self.share * (logits.logsumexp(dim=1, keepdim=True) - own)).sum()

    def penalty(self, weight: Tensor) -> Tensor:
        return (self.l1 * weight.abs()).sum() + self.ridge * (weight - self.first).square().sum()

    def within(self, weight: Tensor) -> Tensor:
        """The weight (C, m), or its bound where it lies beyond."""
        return weight if self.bounds is None else weight.clamp(*self.bounds)

    def proximal(self, weight: Tensor, step: float = 1.0) -> Tensor:
        """Proximal step of the L1 term and the bounds: (C, m) -> (C, m)."""
        return self.within(_shrink(weight, step * self.l1))

    def objective(self, weight: Tensor) -> float:
        """The value to minimise, at a weight (C, m) of double precision."""
        return float(self.logits_loss(self.x @ weight.T) + self.penalty(weight))

    def gradient(self, weight: Tensor, probabilities: Tensor) -> Tensor:
        """Of all but the L1 term, (C, m)."""
        error = self.share * probabilities
        error[torch.arange(len(error)), self.labels] -= self.share[:, 0]
        return error.T @ self.x + 2 * self.ridge * (weight - self.first)

    def curvature(self, direction: Tensor, probabilities: Tensor) -> Tensor:
        """Hessian of all but the L1 term, times a direction (C, m); all in the type of `fast`."""
        change = probabilities * (self.fast @ direction.T)
        change -= probabilities * change.sum(dim=1, keepdim=True)
        change *= self.share.to(change.dtype)
        return change.T @ self.fast + (2 * self.ridge + self.damping) * direction

    def diagonal(self) -> Tensor:
        """Bound of the Hessian's diagonal, (m,): p (1 - p) is at most 1/4."""
        return 0.25 * self.gram.diagonal() + 2 * self.ridge

    def hessian(self, probabilities: Tensor) -> Tensor:
        """Hessian of all but the L1 term, whole: (C m, C m)."""
        count, m = self.first.shape
        whole = torch.empty(count, m, count, m, dtype=torch.float64)
        for a in range(count):
            for b in range(a, count):
                spread = probabilities[:, a] * (float(a == b) - probabilities[:, b])
                block = self.x.T @ (self.x * self.share * spread[:, None])
                whole[a, :, b], whole[b, :, a] = block, block
        whole = whole.view(count * m, count * m)
        whole.diagonal().add_(2 * self.ridge + self.damping)
        return whole

    def damp(self, optimality: float) -> None:
        """Keep Newton's system positive definite where there is no ridge, the less the nearer the optimum.

        Adding the same to the weights of all classes leaves the probabilities as they are.
        """
        if not self.ridge:
            self.damping = max(LEAST_DAMPING, DAMPING * optimality**0.5)

    def is_unbounded(self, weight: Tensor) -> bool:
        """Whether the weights without a penalty, made longer, lower the objective forever.

        So it is where they alone give every image its largest logit in its own class.
        """
        if self.ridge:
            return False
        free = torch.where(self.l1 > 0, 0.0, weight)
        logits = self.x @ free.T
        own = logits.gather(1, self.labels[:, None])
        others = logits.scatter(1, self.labels[:, None], -torch.inf)
        return bool((own > others).all())

    def smoothness(self) -> float:
        """Bound of the Hessian: that of CE is at most half the Gram matrix (Boehning, 1992)."""
        return float(0.5 * self.gram.abs().sum(dim=1).max()) + 2 * self.ridge

    def preconditioner(self, probabilities: Tensor) -> Tensor:
        """Inverse (m, m) of the Hessian of one class, at the mean of p (1 - p) over images and classes."""
        mean = float((self.share * probabilities * (1 - probabilities)).sum(dim=0).mean())
        one_class = mean * self.gram
        one_class.diagonal().add_(2 * self.ridge + self.damping)
        return torch.cholesky_inverse(torch.linalg.cholesky(one_class))


@dataclass(frozen=True)
class _State:
    """A weight (C, m), its logits (N, C) and the objective there."""

    weight: Tensor
    logits: Tensor
    value: float

    @classmethod
    def at(cls, problem: HeadProblem, weight: Tensor) -> _State:
        logits = problem.x @ weight.T
        return cls(weight, logits, float(problem.logits_loss(logits) + problem.penalty(weight)))


def _minimise(
    problem: HeadProblem, begin: Tensor, tolerance: float, limit: int
) -> tuple[Tensor, int, float]:
    """The optimum; small problems that the first attempt leaves unsolved get a better start."""
    first = min(FIRST_ITERATIONS, limit)
    state, iterations, optimality = _descend(problem, begin, tolerance, first)
    if optimality > tolerance and limit > first:
        start = state.weight
        if start.numel() <= SMALL_PROBLEM:
            start = _smoothed_optimum(problem, start)
        state, more, optimality = _descend(problem, start, tolerance, limit - first)
        iterations += more
    return state.weight, iterations, optimality


def _descend(
    problem: HeadProblem, start: Tensor, tolerance: float, limit: int
) -> tuple[_State, int, float]:
    """Semi-smooth Newton from a start: the state it reached, its iterations, its optimality error."""
    state = _State.at(problem, start)
    for iteration in range(limit + 1):
        weight, probabilities = state.weight, state.logits.softmax(dim=1)
        gradient = problem.gradient(weight, probabilities)
        optimality = float((weight - problem.proximal(weight - gradient)).abs().max())
        if optimality <= tolerance or iteration == limit:
            break
        problem.damp(optimality)
        target, signs = _newton_target(problem, weight, gradient, probabilities)
        moved = _line_search(problem, state, gradient, target, signs)
        if moved is None:
            step = 1.0 / problem.smoothness()
            moved = _State.at(problem, problem.proximal(weight - step * gradient, step))
        state = moved
    return state, iteration, optimality


def _smoothed_optimum(problem: HeadProblem, weight: Tensor) -> Tensor:
    """Near the optimum, by Newton steps on sqrt(w^2 + e^2) in place of |w|, for smaller and smaller e.

    With a weak ridge and correlated scores, many weights change between zero and not zero on the way,
    which the semi-smooth steps sort out a few at a time. The smooth path has no such corners, but its
    systems are so ill-conditioned that they need the whole Hessian, hence small problems only.
    """
    for width in SMOOTH_WIDTHS:
        for _ in range(SMOOTH_STEPS):
            probabilities = (problem.x @ weight.T).softmax(dim=1)
            soft = (weight.square() + width**2).sqrt()
            slope = problem.gradient(weight, probabilities) + problem.l1 * weight / soft
            hessian = problem.hessian(probabilities)
            hessian.diagonal().add_((problem.l1 * width**2 / soft**3).flatten())
            factor = torch.linalg.cholesky(hessian)
            move = -torch.cholesky_solve(slope.reshape(-1, 1), factor).view_as(weight)
            decrease = -float((slope * move).sum())
            if decrease < SMOOTH_TOLERANCE:
                break
            weight = _smooth_line_search(problem, weight, move, width, decrease)
    probabilities = (problem.x @ weight.T).softmax(dim=1)
    free, _, rest = _free_weights(problem, weight, problem.gradient(weight, probabilities))
    return problem.within(torch.where(free, weight, rest))


def _smooth_line_search(
    problem: HeadProblem, weight: Tensor, move: Tensor, width: float, decrease: float
) -> Tensor:
    def value(at: Tensor) -> float:
        smooth = (problem.l1 * (at.square() + width**2).sqrt()).sum()
        return float(
            problem.logits_loss(problem.x @ at.T)
            + problem.ridge * (at - problem.first).square().sum()
            + smooth
        )

    before = value(weight)
    for halving in range(MAX_HALVINGS):
        length = 0.5**halving
        if value(weight + length * move) <= before - SUFFICIENT * length * decrease:
            return weight + length * move
    return weight


def _free_weights(
    problem: HeadProblem, weight: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Which weights a proximal step leaves free, their signs, and where it sets the others: all (C, m)."""
    step = 1.0 / problem.diagonal()
    forward = weight - step * gradient
    free = (forward.abs() > step * problem.l1) | (problem.l1 == 0)
    rest = torch.zeros_like(weight)
    if problem.bounds is not None:
        held = problem.within(forward)
        free &= held == forward
        rest = torch.where(problem.l1 > 0, rest, held)
    return free, forward.sign() * free, rest


def _newton_target(
    problem: HeadProblem, weight: Tensor, gradient: Tensor, probabilities: Tensor
) -> tuple[Tensor, Tensor]:
    """Where Newton's method would go from a weight (C, m), and the signs expected there.

    Weights that a proximal step sets to zero, or to a bound, go there; the others solve the linearised
    optimality conditions with the signs that the proximal step gives them.
    """
    free, signs, rest = _free_weights(problem, weight, gradient)
    to_rest = torch.where(free, 0.0, rest - weight)
    dtype = problem.fast.dtype
    fast_probabilities = probabilities.to(dtype)
    right = -(gradient + problem.l1 * signs).to(dtype)
    if bool(to_rest.any()):
        right -= problem.curvature(to_rest.to(dtype), fast_probabilities)
    inverse = problem.preconditioner(probabilities).to(dtype)
    direction = _conjugate_gradients(
        lambda v: free * problem.curvature(v, fast_probabilities),
        lambda v: free * (v @ inverse),
        free * right,
    )
    return weight + direction.double() + to_rest, signs


def _conjugate_gradients(
    times: Callable[[Tensor], Tensor], precondition: Callable[[Tensor], Tensor], right: Tensor
) -> Tensor:
    """Solve times(v) = right, more exactly the smaller `right`, the error, is."""
    size = float(right.abs().max())
    wanted = min(0.1, size**0.5) * size
    solution, residual = torch.zeros_like(right), right
    direction = preconditioned = precondition(residual)
    product = (residual * preconditioned).sum()
    for _ in range(MAX_CONJUGATE_STEPS):
        if float(residual.abs().max()) <= wanted:
            break
        along = times(direction)
        length = product / (direction * along).sum()
        solution = solution + length * direction
        residual = residual - length * along
        preconditioned = precondition(residual)
        previous, product = product, (residual * preconditioned).sum()
        direction = preconditioned + (product / previous) * direction
    return solution


def _line_search(
    problem: HeadProblem, state: _State, gradient: Tensor, target: Tensor, signs: Tensor
) -> _State | None:
    """The first of 1, 1/2, 1/4 ... of the way to the target that decreases the objective enough.

    A weight that would leave both the side of zero where it is and the side where it should be stops
    at zero.
    """
    weight = state.weight
    for halving in range(MAX_HALVINGS):
        moved = weight + 0.5**halving * (target - weight)
        strays = (moved * weight <= 0) & (moved * signs <= 0) & (problem.l1 > 0)
        moved = problem.within(torch.where(strays, 0.0, moved))
        slope = (gradient * (moved - weight)).sum()
        slope = slope + (problem.l1 * (moved.abs() - weight.abs())).sum()
        if float(slope) >= 0:
            continue
        new = _State.at(problem, moved)
        if new.value <= state.value + SUFFICIENT * float(slope) + ROUNDING * abs(state.value):
            return new
    return None


def _shrink(weight: Tensor, threshold: Tensor) -> Tensor:
    """Proximal step of the L1 term: towards zero by the threshold, and not past it."""
    return weight.sign() * (weight.abs() - threshold).clamp(min=0)


def _between_classes(classes: Tensor | None, first: Tensor) -> Tensor:
    """Which weights (C, m) are between a prototype and other classes; none without prototypes."""
    if classes is None:
        return torch.zeros_like(first, dtype=torch.bool)
    return torch.arange(len(first))[:, None] != classes.detach().cpu()


def _checked_bounds(bounds: Bounds | None, l1: Tensor) -> Bounds | None:
    """Bounds in double precision; ValueError where one is impossible, or of a weight with an L1 penalty."""
    if bounds is None:
        return None
    lower, upper = (each.detach().double().cpu() for each in bounds)
    if lower.shape != l1.shape or upper.shape != l1.shape:
        raise ValueError(f"bounds: expected shape {tuple(l1.shape)}, got {tuple(lower.shape)}")
    bounded = lower.isfinite() | upper.isfinite()
    if bool((lower > upper).any()) or bool((bounded & (l1 > 0)).any()):
        raise ValueError(
            "bounds: a lower one above the upper one, or of a weight with an L1 penalty"
        )
    return Bounds(lower, upper)


def _check(scores: Tensor, labels: Tensor, classes: Tensor | None, first: Tensor) -> None:
    n, m = scores.shape
    expected = ((n,), (m,), (len(first), m))
    of_columns = (m,) if classes is None else tuple(classes.shape)
    got = (tuple(labels.shape), of_columns, tuple(first.shape))
    if got != expected or n == 0:
        raise ValueError(
            f"labels, classes, first: expected shapes {expected} with images, got {got} for scores {(n, m)}"
        )
    if not bool(scores.isfinite().all()):
        raise UserError(
            "head fit: the scores are not finite: training diverged; "
            "lower the learning rates in train.schedule"
        )
