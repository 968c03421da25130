"""Orthogonality against a loop over groups and pairs."""

import pytest
import torch

from protopyramid.errors import UserError
from protopyramid.losses import orthogonality

CLASSES = torch.tensor([0, 0, 1, 1, 0, 0, 1])
LEVELS = torch.tensor([2, 2, 2, 2, 5, 5, 5])


def naive(vectors, classes, levels, group):
    """sum_g sum_ab (p_a . p_b / |p_a||p_b| - [a = b])^2."""
    keys = [
        (c, lv) if group == "class-level" else c
        for c, lv in zip(classes.tolist(), levels.tolist(), strict=True)
    ]
    total = vectors.new_zeros(())
    for key in set(keys):
        members = [vectors[j] for j in range(len(keys)) if keys[j] == key]
        for a, p in enumerate(members):
            for b, q in enumerate(members):
                cosine = (p @ q) / (p.square().sum().sqrt() * q.square().sum().sqrt())
                total = total + (cosine - float(a == b)) ** 2
    return total


def vectors(dtype=torch.float32):
    return torch.randn(7, 6, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("group", ["class-level", "class"])
def test_loss_and_gradient_equal_a_loop_over_pairs(group):
    fast, slow = vectors().requires_grad_(), vectors().double().requires_grad_()
    ours = orthogonality(fast, CLASSES, LEVELS, group)
    theirs = naive(slow, CLASSES, LEVELS, group)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=0)
    ours.backward()
    theirs.backward()
    error = torch.linalg.vector_norm(fast.grad - slow.grad) / torch.linalg.vector_norm(slow.grad)
    assert error < 1e-5


@pytest.mark.parametrize("group", ["class-level", "class"])
def test_gradient_passes_gradcheck(group):
    p = vectors(torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda p: orthogonality(p, CLASSES, LEVELS, group), (p,))


def test_orthogonal_prototypes_cost_nothing_whatever_their_length():
    p = torch.diag(torch.tensor([0.5, 3.0, 7.0]))
    loss = orthogonality(p, torch.zeros(3, dtype=torch.long), torch.full((3,), 5))
    assert loss.item() == pytest.approx(0.0, abs=1e-10)


def test_equal_prototypes_cost_two_a_pair_within_a_group_and_nothing_between_groups():
    p = torch.ones(2, 4)
    same, two = torch.tensor([0, 0]), torch.tensor([0, 1])
    five, mixed = torch.tensor([5, 5]), torch.tensor([2, 5])
    assert orthogonality(p, same, five).item() == pytest.approx(2.0)
    assert orthogonality(p, two, five).item() == pytest.approx(0.0, abs=1e-10)
    assert orthogonality(p, same, mixed, "class-level").item() == pytest.approx(0.0, abs=1e-10)
    assert orthogonality(p, same, mixed, "class").item() == pytest.approx(2.0)


def test_groups_follow_the_class_of_each_prototype_not_its_place():
    """The slip of Deformable ProtoPNet's code is a reshape that mixes classes."""
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    before = orthogonality(vectors(), CLASSES, LEVELS)
    after = orthogonality(vectors()[order], CLASSES[order], LEVELS[order])
    torch.testing.assert_close(before, after)


def test_a_zero_prototype_has_a_finite_gradient():
    p = vectors()
    p[0] = 0.0
    p.requires_grad_()
    orthogonality(p, CLASSES, LEVELS).backward()
    assert torch.isfinite(p.grad).all()
    assert torch.equal(p.grad[0], torch.zeros(6))


def test_an_unknown_group_is_refused():
    with pytest.raises(UserError, match=r"class-level.*class.*all"):
        orthogonality(vectors(), CLASSES, LEVELS, "all")
