"""The fit of the head against an independent solver, and against the conditions of an optimum."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from protopyramid.config.schema import HeadFitConfig
from protopyramid.errors import UserError
from protopyramid.training.head_fit import UNBOUNDED, HeadProblem, fit_head, image_weights

Case = tuple[Tensor, Tensor, Tensor, Tensor]


def case(kind: str, n: int = 120, m: int = 9, count: int = 3, seed: int = 0) -> Case:
    """Scores that tell the classes apart somewhat: cosine focal (small) or log-l2 (large, positive)."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(count, (n,), generator=generator)
    classes = torch.arange(m) % count
    noise = torch.randn(n, m, generator=generator)
    own = (labels[:, None] == classes).float()
    scores = 0.3 + 0.1 * noise + 0.1 * own if kind == "cosine" else 3 + 0.8 * noise + 0.7 * own
    first = torch.where(torch.arange(count)[:, None] == classes, 1.0, -0.5)
    return scores, labels, classes, first


def naive_objective(weight: np.ndarray, data: Case, settings: HeadFitConfig) -> float:
    scores, labels, classes, first = (x.double().numpy() for x in data)
    labels = labels.astype(int)
    present = sorted(set(labels.tolist()))
    total = 0.0
    for x, y in zip(scores, labels, strict=True):
        logits = weight @ x
        share = 1 / (len(present) * (labels == y).sum()) if settings.balance else 1 / len(labels)
        total += share * (logsumexp(logits) - logits[y])
    for c in range(weight.shape[0]):
        for j in range(weight.shape[1]):
            total += settings.l1 * abs(weight[c, j]) * (c != classes[j])
            total += settings.ridge * (weight[c, j] - first[c, j]) ** 2
    return float(total)


def independent_fit(data: Case, settings: HeadFitConfig) -> np.ndarray:
    """L-BFGS-B over positive and negative parts: |w| = u + v, w = u - v, u and v >= 0."""
    scores, labels, classes, first = (x.double().numpy() for x in data)
    labels = labels.astype(int)
    count, m = first.shape
    share = np.full(len(labels), 1 / len(labels))
    if settings.balance:
        sizes = np.bincount(labels, minlength=count)
        share = 1 / (sizes[labels] * (sizes > 0).sum())
    penalty = settings.l1 * (np.arange(count)[:, None] != classes)

    def value_and_slope(parts: np.ndarray) -> tuple[float, np.ndarray]:
        positive, negative = parts.reshape(2, count, m)
        weight = positive - negative
        logits = scores @ weight.T
        norm = logsumexp(logits, axis=1, keepdims=True)
        rows = np.arange(len(labels))
        value = (share * (norm[:, 0] - logits[rows, labels])).sum()
        value += (penalty * (positive + negative)).sum()
        value += settings.ridge * ((weight - first) ** 2).sum()
        error = np.exp(logits - norm)
        error[rows, labels] -= 1
        slope = (share[:, None] * error).T @ scores + 2 * settings.ridge * (weight - first)
        return value, np.stack([slope + penalty, penalty - slope]).ravel()

    weight = first
    options = {"maxiter": 50_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 50}
    for _ in range(6):  # one run at times stops early; a fresh one continues from there
        start = np.stack([weight.clip(0), (-weight).clip(0)]).ravel()
        bounds = [(0, None)] * len(start)
        best = minimize(
            value_and_slope, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        positive, negative = best.x.reshape(2, count, m)
        weight = positive - negative
    return np.asarray(weight)


@pytest.mark.parametrize("kind", ["cosine", "log-l2"])
@pytest.mark.parametrize("l1", [0.0, 1e-4, 1e-2])
@pytest.mark.parametrize("balance", [True, False])
def test_the_fit_is_that_of_an_independent_solver(kind: str, l1: float, balance: bool) -> None:
    data, settings = case(kind), HeadFitConfig(l1=l1, balance=balance)
    expected = independent_fit(data, settings)
    fit = fit_head(*data, settings)
    assert np.abs(fit.weight.numpy() - expected).max() < 1e-3
    assert fit.objective == pytest.approx(naive_objective(expected, data, settings), abs=1e-5)
    assert fit.objective <= naive_objective(expected, data, settings) + 1e-9


@pytest.mark.parametrize("kind", ["cosine", "log-l2"])
@pytest.mark.parametrize("l1, ridge", [(1e-4, 1e-3), (1e-2, 1e-3), (1e-3, 1e-5), (1e-4, 1e-6)])
def test_the_conditions_of_an_optimum_hold(kind: str, l1: float, ridge: float) -> None:
    scores, labels, classes, first = data = case(kind, n=200, m=12, count=4)
    settings = HeadFitConfig(l1=l1, ridge=ridge, balance=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fit_head(*data, settings)
    assert fit.optimality <= settings.tolerance
    weight = fit.weight.double().requires_grad_()
    loss = torch.nn.functional.cross_entropy(scores.double() @ weight.T, labels)
    loss = loss + ridge * (weight - first).square().sum()
    (slope,) = torch.autograd.grad(loss, weight)
    other = torch.arange(4)[:, None] != classes
    rounding = 1e-5 * float(scores.max())  # weights come back in single precision
    zero = (fit.weight == 0) & other
    nonzero = (fit.weight != 0) & other
    assert slope[~other].abs().max() < rounding
    assert ((slope + l1 * weight.sign())[nonzero].abs() < rounding).all()
    assert (slope[zero].abs() <= l1 + rounding).all()


def test_a_strong_l1_zeroes_other_class_weights_and_no_others() -> None:
    scores, labels, classes, first = case("cosine")
    fit = fit_head(scores, labels, classes, first, HeadFitConfig(l1=0.1))
    other = torch.arange(3)[:, None] != classes
    assert (fit.weight[other] == 0).all()
    assert (fit.weight[~other] != 0).all()


def test_a_strong_ridge_keeps_the_first_weights() -> None:
    scores, labels, classes, first = case("cosine")
    fit = fit_head(scores, labels, classes, first, HeadFitConfig(l1=0, ridge=1e4))
    assert torch.allclose(fit.weight, first, atol=1e-4)


def test_the_objective_is_the_sum_written_out() -> None:
    data = case("log-l2", n=30)
    weight = torch.randn(3, 9, generator=torch.Generator().manual_seed(4))
    for settings in (
        HeadFitConfig(l1=0.02, ridge=0.03),
        HeadFitConfig(l1=0.02, ridge=0.03, balance=False),
    ):
        expected = naive_objective(weight.double().numpy(), data, settings)
        found = HeadProblem(*data, settings).objective(weight.double())
        assert found == pytest.approx(expected, rel=1e-9)


def test_balance_gives_every_present_class_the_same_weight_and_n_in_sum() -> None:
    labels = torch.tensor([0] * 50 + [2] * 5 + [3] * 2)
    weights = image_weights(labels, 4, balance=True)
    sums = [float(weights[labels == c].sum()) for c in (0, 2, 3)]
    assert sums == pytest.approx([57 / 3] * 3)
    assert float(weights.sum()) == pytest.approx(57)
    assert image_weights(labels, 4, balance=False).tolist() == pytest.approx([1.0] * 57)


def test_balance_is_the_same_as_repeating_the_rare_images() -> None:
    scores, labels, classes, first = case("cosine", n=90)
    labels = torch.arange(90) % 3
    rare = labels != 2
    rare[:4] = True  # two classes in full, class 2 with one image
    scores, labels = scores[rare], labels[rare]
    repeats = torch.where(labels == 2, 30, 1)
    repeated = scores.repeat_interleave(repeats, 0), labels.repeat_interleave(repeats)
    balanced = fit_head(scores, labels, classes, first, HeadFitConfig())
    plain = fit_head(*repeated, classes, first, HeadFitConfig(balance=False))
    assert torch.allclose(balanced.weight, plain.weight, atol=1e-4)


def test_a_class_without_images_still_has_finite_weights() -> None:
    scores, labels, classes, first = case("log-l2")
    labels = labels.clamp(max=1)
    fit = fit_head(scores, labels, classes, first, HeadFitConfig())
    assert fit.weight.isfinite().all() and fit.optimality <= 1e-7
    assert (scores @ fit.weight.T).argmax(dim=1).max() < 2


def test_separable_data_and_constant_scores_are_solved_too() -> None:
    scores, labels, classes, first = case("log-l2")
    separable = scores + 20 * (labels[:, None] == classes)
    for x in (separable, torch.full_like(scores, 2.0), torch.zeros_like(scores)):
        fit = fit_head(x, labels, classes, first, HeadFitConfig())
        assert fit.optimality <= 1e-7 and fit.weight.isfinite().all()
    zero = fit_head(torch.zeros_like(scores), labels, classes, first, HeadFitConfig(l1=0))
    assert torch.equal(zero.weight, first)


def test_the_fit_is_the_same_each_time_and_for_each_order_of_images() -> None:
    scores, labels, classes, first = case("cosine")
    once = fit_head(scores, labels, classes, first, HeadFitConfig())
    again = fit_head(scores, labels, classes, first, HeadFitConfig())
    assert torch.equal(once.weight, again.weight)
    turned = fit_head(scores.flip(0), labels.flip(0), classes, first, HeadFitConfig())
    assert torch.allclose(once.weight, turned.weight, atol=1e-4)


def test_the_fit_beats_the_head_it_starts_from_on_the_objective() -> None:
    data = case("cosine")
    fit = fit_head(*data, HeadFitConfig())
    problem = HeadProblem(*data, HeadFitConfig())
    assert fit.objective < problem.objective(data[3].double())
    assert fit.objective == pytest.approx(problem.objective(fit.weight.double()), abs=1e-7)
    assert fit.weight.dtype == torch.float32 and fit.weight.shape == (3, 9)


def test_scores_that_are_not_finite_are_told() -> None:
    scores, labels, classes, first = case("cosine")
    scores[3, 2] = torch.nan
    with pytest.raises(UserError, match="diverged"):
        fit_head(scores, labels, classes, first, HeadFitConfig())


@pytest.mark.parametrize("ridge", [1e-3, 1e-1])
def test_without_prototypes_it_is_logistic_regression(ridge: float) -> None:
    """Ridge towards zero, no L1 and no intercept: scikit-learn solves the same problem."""
    scores, labels, _, first = case("cosine", n=60, m=12)
    settings = HeadFitConfig(l1=0.5, ridge=ridge, balance=False)
    fitted = fit_head(scores, labels, None, torch.zeros_like(first), settings).weight
    strength = 1 / (2 * ridge * len(scores))
    solver = LogisticRegression(C=strength, fit_intercept=False, tol=1e-10, max_iter=10_000)
    expected = solver.fit(scores.double().numpy(), labels.numpy()).coef_
    assert fitted.numpy() == pytest.approx(expected, abs=1e-4)


# -- the ancestors' problem: no ridge ------------------------------------------------------------
@pytest.mark.parametrize("kind", ["cosine", "log-l2"])
@pytest.mark.parametrize("l1", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("count", [3, 4])
def test_without_a_ridge_the_fit_is_that_of_an_independent_solver(
    kind: str, l1: float, count: int
) -> None:
    """Images of several classes overlap, so there is an optimum.

    With three classes its weights are not unique: a prototype's weights for all classes can be shifted
    together, up to a zero. Objective and probabilities are.
    """
    data = case(kind, n=160, m=4 * count, count=count)
    settings = HeadFitConfig(l1=l1, ridge=0, balance=False)
    expected = independent_fit(data, settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit = fit_head(*data, settings)
    assert fit.optimality <= settings.tolerance
    assert not fit.unbounded
    assert fit.objective == pytest.approx(naive_objective(expected, data, settings), abs=1e-7)
    ours = (data[0] @ fit.weight.T).softmax(1).numpy()
    theirs = data[0].double().numpy() @ expected.T
    theirs = np.exp(theirs - logsumexp(theirs, axis=1, keepdims=True))
    assert np.abs(ours - theirs).max() < 1e-4
    if count == 4:
        assert np.abs(fit.weight.numpy() - expected).max() < 2e-3 * np.abs(expected).max()


def test_without_a_ridge_the_start_does_not_matter() -> None:
    scores, labels, classes, first = case("log-l2", n=200, m=12, count=4)
    settings = HeadFitConfig(ridge=0, balance=False)
    fits = [
        fit_head(scores, labels, classes, start, settings)
        for start in (first, torch.zeros_like(first))
    ]
    assert torch.allclose(fits[0].weight, fits[1].weight, atol=1e-3)


def test_a_ridge_and_class_weights_make_it_another_problem() -> None:
    scores, labels, classes, first = case("log-l2", n=200, m=12, count=4)
    keep = (labels > 0) | (torch.arange(200) % 4 == 0)  # one class is rare
    data = (scores[keep], labels[keep], classes, first)
    plain = HeadFitConfig(ridge=0, balance=False)
    best = fit_head(*data, plain)
    for other in (HeadFitConfig(ridge=1e-3, balance=False), HeadFitConfig(ridge=0)):
        weight = fit_head(*data, other).weight
        assert HeadProblem(*data, plain).objective(weight.double()) > best.objective + 1e-4


@pytest.mark.parametrize("most", [1, 4, 500])
def test_separable_classes_have_no_optimum_without_a_ridge_and_that_is_told(most: int) -> None:
    scores, labels, classes, first = case("cosine")
    separable = scores + 0.8 * (labels[:, None] == classes)
    settings = HeadFitConfig(ridge=0, balance=False, max_iterations=most)
    with pytest.warns(UserWarning) as told:
        fit = fit_head(separable, labels, classes, first, settings)
    assert [str(each.message) for each in told] == [UNBOUNDED]
    assert "\n" not in UNBOUNDED
    assert fit.unbounded and fit.iterations <= most
    assert fit.weight.isfinite().all()
    own = torch.arange(3)[:, None] == classes
    further = fit.weight + own * fit.weight  # own-class weights of twice the length
    problem = HeadProblem(separable, labels, classes, first, settings)
    assert problem.objective(further.double()) < problem.objective(fit.weight.double())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not fit_head(separable, labels, classes, first, HeadFitConfig()).unbounded


def test_the_fit_stops_after_so_many_iterations() -> None:
    data = case("cosine", n=200, m=20, count=4)
    with pytest.warns(UserWarning, match="after 3 iterations"):
        fit = fit_head(*data, HeadFitConfig(ridge=0, balance=False, max_iterations=3))
    assert fit.iterations == 3 and not fit.unbounded


def test_without_a_ridge_constant_and_repeated_scores_are_solved_too() -> None:
    scores, labels, classes, first = case("cosine", n=200, m=20, count=4)
    settings = HeadFitConfig(ridge=0, balance=False)
    for x in (torch.full_like(scores, 2.0), torch.zeros_like(scores)):
        fit = fit_head(x, labels, classes, first, settings)
        assert fit.optimality <= 1e-7 and fit.weight.isfinite().all()
    once = fit_head(scores, labels, classes, first, settings)
    twice = fit_head(
        torch.cat([scores, scores], 1), labels, classes.repeat(2), first.repeat(1, 2), settings
    )
    assert twice.objective == pytest.approx(once.objective, abs=1e-7)
