"""The context loss against loops over images, prototypes and cells."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from protopyramid.losses import context as context_loss

TOLERANCE = 1e-5


def naive_context(maps: Tensor, swapped: Tensor, own: Tensor, inner: Tensor, k: int) -> Tensor:
    """Mean of (1 - kept)^2 over the highest cells that are inner, one pair at a time."""
    height, width = maps.shape[-2:]
    costs = []
    for i in range(len(maps)):
        for j in range(maps.shape[1]):
            cells = [(y, x) for y in range(height) for x in range(width)]
            cells.sort(key=lambda c, i=i, j=j: -maps[i, j, c[0], c[1]].item())
            counted = [c for c in cells[:k] if inner[i, c[0], c[1]]]
            if own[i, j] and counted:
                before = sum(maps[i, j, y, x].detach() for y, x in counted) / len(counted)
                after = sum(swapped[i, j, y, x] for y, x in counted) / len(counted)
                rise = max(0.1, (before - maps[i, j].detach().mean()).item())
                costs.append(((before - after) / rise) ** 2)
    return sum(costs) / len(costs) if costs else swapped.sum() * 0.0


def problem(shape=(3, 4, 5, 6), seed=0, dtype=torch.float32):
    """Maps before and after, about half of the prototypes own, about half of the cells inner."""
    g = torch.Generator().manual_seed(seed)
    maps, swapped = (
        (torch.rand(shape, generator=g, dtype=torch.float64) * 2 - 1).to(dtype) for _ in range(2)
    )
    own = torch.rand(shape[:2], generator=g) > 0.5
    own[0, 0] = True
    return maps, swapped, own, torch.rand(shape[0], *shape[2:], generator=g) > 0.5


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, n) for n in (3, 3, 5, 5))),
    share=st.floats(0.01, 1.0),
    seed=st.integers(0, 10_000),
)
def test_loss_and_gradient_equal_loops(shape, share, seed):
    maps, swapped, own, inner = problem(shape, seed)
    k = max(1, round(share * shape[2] * shape[3]))
    fast, slow = swapped.clone().requires_grad_(), swapped.double().requires_grad_()
    ours = context_loss(maps, fast, own, inner, k)
    theirs = naive_context(maps.double(), slow, own, inner, k)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(ours.double(), theirs, rtol=TOLERANCE, atol=TOLERANCE)
    torch.testing.assert_close(fast.grad.double(), slow.grad, rtol=TOLERANCE, atol=TOLERANCE)


def test_gradient_passes_gradcheck():
    maps, swapped, own, inner = problem((2, 2, 3, 4), dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda s: context_loss(maps, s, own, inner, 4), (swapped.requires_grad_(),)
    )


def test_the_similarities_of_the_image_itself_are_the_goal_and_are_not_pulled():
    maps, swapped, own, inner = problem()
    maps.requires_grad_()
    assert not context_loss(maps, swapped, own, inner, 3).requires_grad


def test_a_map_that_does_not_change_costs_nothing():
    maps, _, own, inner = problem()
    assert context_loss(maps, maps.clone(), own, inner, 3).item() == 0.0


def test_changes_outside_the_window_and_below_the_highest_cells_do_not_count():
    maps = torch.tensor([[[[0.9, 0.8, 0.1, 0.7]]]])
    inner = torch.tensor([[[True, False, True, True]]])
    changed = maps.clone()
    changed[..., 1] = -1.0  # among the two highest, but not inner
    changed[..., 2:] = -1.0  # inner, but not among the two highest
    changed[..., 0] = 0.5
    own = torch.ones(1, 1, dtype=torch.bool)
    kept = (0.5 - 0.625) / (0.9 - 0.625)
    assert context_loss(maps, changed, own, inner, 2).item() == pytest.approx((1 - kept) ** 2)


def test_it_is_the_squared_share_of_the_rise_that_is_lost():
    """A map rises by .6 over its mean, and half of that is left. A flat map has little to lose."""
    maps = torch.tensor([[[[0.9, 0.1, 0.1, 0.1]]]])
    changed = torch.tensor([[[[0.6, 0.9, 0.9, 0.9]]]])
    inner, own = torch.ones(1, 1, 4, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)
    assert context_loss(maps, changed, own, inner, 1).item() == pytest.approx(0.25)
    flat = torch.full_like(maps, 0.5)
    found = context_loss(flat, flat - 0.01, own, inner, 1).item()
    assert found == pytest.approx(0.01, rel=1e-4)


def test_without_an_inner_cell_or_an_own_prototype_it_is_zero_with_a_zero_gradient():
    maps, swapped, own, inner = problem()
    for chosen, cells in ((own, torch.zeros_like(inner)), (torch.zeros_like(own), inner)):
        leaf = swapped.clone().requires_grad_()
        loss = context_loss(maps, leaf, chosen, cells, 3)
        loss.backward()
        assert loss.item() == 0.0
        assert torch.equal(leaf.grad, torch.zeros_like(leaf))
