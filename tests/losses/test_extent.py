"""The extent loss against loops over images, prototypes and cells."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.losses import extent as extent_loss

TOLERANCE = 1e-5


LIMITS = ("most", "around", "least")


def naive_extent(maps: Tensor, own: Tensor, share: float, limit: str = "most") -> Tensor:
    """Mean of max(0, similarity - half maximum) beyond the highest cells, or those around the highest one; or
    of the reverse among the highest. One pair at a time."""
    costs = []
    for i in range(len(maps)):
        for j in range(maps.shape[1]):
            cells = maps[i, j].flatten()
            width, peak = maps.shape[-1], int(cells.argmax())

            def away(n, width=width, peak=peak):
                return (n // width - peak // width) ** 2 + (n % width - peak % width) ** 2

            order = sorted(range(len(cells)), key=lambda n: -cells[n].item())
            half = (cells[order[0]] + cells[order[-1]]) / 2
            if limit == "around":
                order = sorted(range(len(cells)), key=away)
            free = min(len(cells), max(1, round(share * len(cells))))
            if limit == "least":
                wrong = [half - cells[n] for n in order[:free]]
            else:
                wrong = [cells[n] - half for n in order[free:]]
            if own[i, j]:
                positive = [cell if cell > 0 else cell * 0.0 for cell in wrong]
                costs.append(sum(positive, maps.sum() * 0.0) / max(1, len(positive)))
    return sum(costs) / len(costs) if costs else maps.sum() * 0.0


def distinct(shape, share):
    """Whether the cells around any peak are the same however equal distances are ordered."""
    height, width = shape[-2:]
    count = min(height * width, max(1, round(share * height * width)))
    for peak in range(height * width):
        away = sorted(
            (n // width - peak // width) ** 2 + (n % width - peak % width) ** 2
            for n in range(height * width)
        )
        if count < len(away) and away[count - 1] == away[count]:
            return False
    return True


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
    limit=st.sampled_from(LIMITS),
)
def test_loss_and_gradient_equal_loops(shape, share, seed, limit):
    assume(limit != "around" or distinct(shape, share))
    maps, own = problem(shape, seed)
    fast, slow = maps.clone().requires_grad_(), maps.double().requires_grad_()
    ours, theirs = extent_loss(fast, own, share, limit), naive_extent(slow, own, share, limit)
    ours.backward()
    theirs.backward()
    assert abs(ours.item() - theirs.item()) < TOLERANCE
    assert (fast.grad - slow.grad).abs().max().item() < TOLERANCE


@pytest.mark.parametrize("limit", LIMITS)
def test_gradient_passes_gradcheck(limit):
    maps, own = problem((2, 2, 3, 4), dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda s: extent_loss(s, own, 0.2, limit), (maps.requires_grad_(),)
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
    loss = extent_loss(maps, torch.ones(1, 1, dtype=torch.bool), share, "least")
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("second", "expected"),
    [((2, 3), 0.0), ((3, 2), 0.0), ((0, 0), 0.4 / 20)],  # beside the peak, or far from it
)
def test_what_is_around_the_peak_is_free_and_a_second_place_is_not(second, expected):
    maps = torch.zeros(1, 1, 5, 5)
    maps[0, 0, 2, 2] = 1.0
    maps[0, 0, second[0], second[1]] = 0.9
    own = torch.ones(1, 1, dtype=torch.bool)
    assert extent_loss(maps, own, 5 / 25, "around").item() == pytest.approx(expected)
    assert extent_loss(maps, own, 5 / 25, "most").item() == 0.0


def test_a_limit_is_one_of_three():
    maps, own = problem()
    with pytest.raises(UserError, match="limit: expected 'most', 'around' or 'least', got 'some'"):
        extent_loss(maps, own, 0.5, "some")


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
