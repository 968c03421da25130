"""The extent loss against loops over images, prototypes and cells."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.losses import extent as extent_loss

TOLERANCE = 1e-5


def naive_extent(maps: Tensor, own: Tensor, share: float, at_least: bool = False) -> Tensor:
    """Mean of max(0, similarity - half maximum) beyond the highest cells, or of the reverse among them, one
    pair at a time."""
    costs = []
    for i in range(len(maps)):
        for j in range(maps.shape[1]):
            cells = sorted(maps[i, j].flatten(), key=lambda cell: -cell.item())
            free = min(len(cells), max(1, round(share * len(cells))))
            half = (cells[0] + cells[-1]) / 2
            beyond = [half - cell for cell in cells[:free]] if at_least else None
            beyond = beyond or [cell - half for cell in cells[free:]]
            if own[i, j]:
                positive = [cell if cell > 0 else cell * 0.0 for cell in beyond]
                costs.append(sum(positive, maps.sum() * 0.0) / max(1, len(positive)))
    return sum(costs) / len(costs) if costs else maps.sum() * 0.0


def problem(shape=(3, 4, 5, 6), seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    maps = (torch.rand(shape, generator=g, dtype=torch.float64) * 2 - 1).to(dtype)
    own = torch.rand(shape[:2], generator=g) > 0.5
    own[0, 0] = True
    return maps, own


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, n) for n in (3, 3, 5, 5))),
    share=st.floats(0.01, 1.0),
    seed=st.integers(0, 10_000),
    at_least=st.booleans(),
)
def test_loss_and_gradient_equal_loops(shape, share, seed, at_least):
    maps, own = problem(shape, seed)
    fast, slow = maps.clone().requires_grad_(), maps.double().requires_grad_()
    ours, theirs = (
        extent_loss(fast, own, share, at_least),
        naive_extent(slow, own, share, at_least),
    )
    ours.backward()
    theirs.backward()
    assert abs(ours.item() - theirs.item()) < TOLERANCE
    assert (fast.grad - slow.grad).abs().max().item() < TOLERANCE


@pytest.mark.parametrize("at_least", [False, True])
def test_gradient_passes_gradcheck(at_least):
    maps, own = problem((2, 2, 3, 4), dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda s: extent_loss(s, own, 0.2, at_least), (maps.requires_grad_(),)
    )


@pytest.mark.parametrize(
    ("cells", "share", "expected"),
    [
        ([1.0, 0.4, 0.3, 0.2], 0.25, 0.0),  # one cell above half, one is free
        ([1.0, 0.9, 0.3, 0.2], 0.25, 0.1),  # .3 above half, over three cells
        ([1.0, 0.9, 0.3, 0.2], 0.5, 0.0),
        ([0.8, 0.8, 0.8, 0.8], 0.25, 0.0),  # a flat map has no half maximum to exceed
        ([0.0, -0.1, -0.1, -0.4], 0.25, 0.2 / 3),  # whatever the offset
    ],
)
def test_known_values(cells, share, expected):
    maps = torch.tensor(cells).view(1, 1, 2, 2)
    loss = extent_loss(maps, torch.ones(1, 1, dtype=torch.bool), share)
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("cells", "share", "expected"),
    [
        ([1.0, 0.9, 0.3, 0.2], 0.5, 0.0),  # two cells above half are half of the map
        ([1.0, 0.4, 0.3, 0.2], 0.5, 0.2 / 2),  # .4 is .2 below half, of two cells
        ([1.0, 0.4, 0.3, 0.2], 0.25, 0.0),
        ([0.8, 0.8, 0.8, 0.8], 0.75, 0.0),
    ],
)
def test_known_values_of_the_least_extent(cells, share, expected):
    maps = torch.tensor(cells).view(1, 1, 2, 2)
    loss = extent_loss(maps, torch.ones(1, 1, dtype=torch.bool), share, at_least=True)
    assert loss.item() == pytest.approx(expected)


def test_it_pulls_the_peak_up_and_the_rest_down():
    maps = torch.tensor([1.0, 0.8, 0.3, 0.2]).view(1, 1, 2, 2).requires_grad_()
    extent_loss(maps, torch.ones(1, 1, dtype=torch.bool), 0.25).backward()
    torch.testing.assert_close(maps.grad.flatten(), torch.tensor([-1 / 6, 1 / 3, 0.0, -1 / 6]))


def test_no_own_class_prototype_is_zero_with_a_zero_gradient():
    maps, own = problem()
    maps.requires_grad_()
    loss = extent_loss(maps, torch.zeros_like(own), 0.1)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(maps.grad, torch.zeros_like(maps))


@pytest.mark.parametrize("share", [0.0, -1, 1.5, float("nan")])
def test_a_share_is_a_part_of_the_map(share):
    maps, own = problem()
    with pytest.raises(UserError, match="share: expected a number above 0 and up to 1, got"):
        extent_loss(maps, own, share)
