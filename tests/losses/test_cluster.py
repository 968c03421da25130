"""Cluster and separation against a loop over images, levels and prototypes."""

import pytest
import torch

from protopyramid.errors import UserError
from protopyramid.losses import cluster, separation

# Class 3 has no prototype on level 2, level 4 belongs to class 1 alone.
CLASSES = torch.tensor([0, 0, 1, 2, 1, 1, 0, 1, 2, 3])
LEVELS = torch.tensor([2, 2, 2, 2, 4, 4, 5, 5, 5, 5])
LABELS = torch.tensor([0, 1, 2, 3, 0])


def naive(closeness, labels, classes, levels, scope, own, over="max"):
    """Mean over images of the mean over groups of the largest, or mean, eligible closeness."""
    groups = sorted(set(levels.tolist())) if scope == "level" else [None]
    per_image = []
    for i, label in enumerate(labels.tolist()):
        maxima = []
        for group in groups:
            eligible = [
                closeness[i, j]
                for j, (owner, level) in enumerate(
                    zip(classes.tolist(), levels.tolist(), strict=True)
                )
                if (group is None or level == group) and (owner == label) == own
            ]
            if eligible and over == "mean":
                maxima.append(sum(eligible) / len(eligible))
            elif eligible:
                largest = eligible[0]
                for value in eligible[1:]:
                    largest = value if value > largest else largest
                maxima.append(largest)
        if maxima:
            per_image.append(sum(maxima) / len(maxima))
    mean = sum(per_image) / len(per_image)
    return -mean if own else mean


def closeness(kind="mixed", dtype=torch.float32):
    drawn = torch.rand(5, 10, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return {"mixed": 2 * drawn - 1, "negative": -drawn - 0.1, "distances": -10 * drawn}[kind]


@pytest.mark.parametrize("kind", ["mixed", "negative", "distances"])
@pytest.mark.parametrize("scope", ["level", "all"])
@pytest.mark.parametrize(("loss", "own"), [(cluster, True), (separation, False)])
def test_loss_and_gradient_equal_a_loop(loss, own, scope, kind):
    fast, slow = closeness(kind).requires_grad_(), closeness(kind).requires_grad_()
    ours = loss(fast, LABELS, CLASSES, LEVELS, scope)
    theirs = naive(slow, LABELS, CLASSES, LEVELS, scope, own)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(fast.grad, slow.grad, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("scope", ["level", "all"])
@pytest.mark.parametrize("loss", [cluster, separation])
def test_gradient_passes_gradcheck(loss, scope):
    a = closeness(dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: loss(a, LABELS, CLASSES, LEVELS, scope), (a,))


def test_negative_closeness_is_masked_not_multiplied():
    """Multiplying by a 0/1 mask would let the masked zeros win over negative similarities."""
    a = torch.tensor([[-0.3, -0.6]])
    labels, classes, levels = torch.tensor([0]), torch.tensor([0, 1]), torch.tensor([5, 5])
    multiplied = -(a * (classes == 0)).max()
    assert multiplied.item() == 0.0
    assert cluster(a, labels, classes, levels).item() == pytest.approx(0.3)
    assert separation(a, labels, classes, levels).item() == pytest.approx(-0.6)


def test_scope_level_teaches_every_level_and_scope_all_the_best_one_alone():
    a = torch.tensor([[0.9, 0.1]], requires_grad=True)
    labels, classes, levels = torch.tensor([0]), torch.tensor([0, 0]), torch.tensor([2, 5])
    cluster(a, labels, classes, levels, "level").backward()
    assert a.grad.tolist() == [[-0.5, -0.5]]
    a.grad = None
    cluster(a, labels, classes, levels, "all").backward()
    assert a.grad.tolist() == [[-1.0, 0.0]]


def test_a_class_without_prototypes_on_a_level_averages_over_its_own_levels():
    a = torch.tensor([[0.8, 0.4, 0.6]])
    labels, classes, levels = torch.tensor([0]), torch.tensor([0, 1, 0]), torch.tensor([2, 3, 5])
    assert cluster(a, labels, classes, levels).item() == pytest.approx(-(0.8 + 0.6) / 2)
    assert separation(a, labels, classes, levels).item() == pytest.approx(0.4)


def test_a_class_without_any_prototype_does_not_count_in_cluster():
    a = torch.tensor([[0.8], [0.2]], requires_grad=True)
    labels, classes, levels = torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([5])
    loss = cluster(a, labels, classes, levels)
    loss.backward()
    assert loss.item() == pytest.approx(-0.8)
    assert a.grad.tolist() == [[-1.0], [0.0]]


@pytest.mark.parametrize("loss", [cluster, separation])
def test_no_eligible_prototype_at_all_gives_zero_and_no_nan(loss):
    a = torch.ones(2, 1, requires_grad=True)
    labels = torch.tensor([1, 1]) if loss is cluster else torch.tensor([0, 0])
    value = loss(a, labels, torch.tensor([0]), torch.tensor([5]))
    value.backward()
    assert value.item() == 0.0
    assert a.grad.tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("loss", [cluster, separation])
def test_repeating_the_batch_does_not_change_the_loss(loss):
    a = closeness()
    once = loss(a, LABELS, CLASSES, LEVELS)
    twice = loss(torch.cat([a, a]), torch.cat([LABELS, LABELS]), CLASSES, LEVELS)
    torch.testing.assert_close(once, twice)


@pytest.mark.parametrize("kind", ["mixed", "negative", "distances"])
@pytest.mark.parametrize("scope", ["level", "all"])
def test_cluster_over_the_mean_and_its_gradient_equal_a_loop(scope, kind):
    fast, slow = closeness(kind).requires_grad_(), closeness(kind).requires_grad_()
    ours = cluster(fast, LABELS, CLASSES, LEVELS, scope, over="mean")
    theirs = naive(slow, LABELS, CLASSES, LEVELS, scope, own=True, over="mean")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(fast.grad, slow.grad, rtol=1e-5, atol=1e-8)


def test_over_the_mean_every_prototype_of_the_class_is_drawn_and_over_the_maximum_one():
    a = torch.tensor([[0.9, 0.1, 0.5]], requires_grad=True)
    labels, classes, levels = torch.tensor([0]), torch.tensor([0, 0, 1]), torch.tensor([5, 5, 5])
    cluster(a, labels, classes, levels, over="mean").backward()
    assert a.grad.tolist() == [[-0.5, -0.5, 0.0]]
    a.grad = None
    cluster(a, labels, classes, levels, over="max").backward()
    assert a.grad.tolist() == [[-1.0, 0.0, 0.0]]


def test_over_the_mean_images_count_equally_however_many_prototypes_their_class_has():
    a = torch.tensor([[0.6, 0.6, 0.6, 0.0], [0.0, 0.0, 0.0, 0.2]])
    labels, classes = torch.tensor([0, 1]), torch.tensor([0, 0, 0, 1])
    loss = cluster(a, labels, classes, torch.full((4,), 5), over="mean")
    assert loss.item() == pytest.approx(-(0.6 + 0.2) / 2)


def test_over_the_mean_without_a_prototype_is_zero_and_no_nan():
    a = torch.ones(2, 1, requires_grad=True)
    value = cluster(a, torch.tensor([1, 1]), torch.tensor([0]), torch.tensor([5]), over="mean")
    value.backward()
    assert value.item() == 0.0
    assert a.grad.tolist() == [[0.0], [0.0]]


def test_over_anything_else_is_refused():
    with pytest.raises(UserError, match=r"max.*mean.*median"):
        cluster(closeness(), LABELS, CLASSES, LEVELS, over="median")


def test_a_nan_is_not_hidden():
    a = closeness()
    a[0] = torch.nan
    assert cluster(a, LABELS, CLASSES, LEVELS, over="mean").isnan()
    for loss in (cluster, separation):
        for scope in ("level", "all"):
            assert loss(a, LABELS, CLASSES, LEVELS, scope).isnan()


def test_an_unknown_scope_is_refused():
    with pytest.raises(UserError, match=r"level.*all.*class"):
        cluster(closeness(), LABELS, CLASSES, LEVELS, "class")
