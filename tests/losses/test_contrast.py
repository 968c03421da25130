"""The contrast loss against loops over images, prototypes and cells."""

import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from protopyramid.losses import contrast as contrast_loss

# `protopyramid.losses.contrast` is the function; the module of that name is found where it lives.
module = sys.modules[contrast_loss.__module__]

TOLERANCE = 1e-5


def touches(mask: Tensor, row: int, column: int, height: int, width: int) -> bool:
    """Whether the pixels under a cell, cut ones included, hold any of the annotation."""
    h, w = mask.shape
    rows = range(row * h // height, -(-(row + 1) * h // height))
    columns = range(column * w // width, -(-(column + 1) * w // width))
    return any(mask[y, x] > 0 for y in rows for x in columns)


def top_mean(values: list[Tensor], k: int) -> Tensor:
    best = sorted(values, key=lambda value: value.item(), reverse=True)[:k]
    return sum(best) / len(best)


def naive_contrast(maps, masks, own, k, margin=0.5) -> Tensor:
    """Mean of max(0, margin + outside - inside), one image, prototype and cell at a time."""
    height, width = maps.shape[-2:]
    costs = []
    for i in range(len(maps)):
        cells = [(y, x) for y in range(height) for x in range(width)]
        within = [c for c in cells if touches(masks[i], *c, height, width)]
        beyond = [c for c in cells if c not in within]
        for j in range(maps.shape[1]):
            if own[i, j] and within and beyond:
                inside = top_mean([maps[i, j, y, x] for y, x in within], k)
                outside = top_mean([maps[i, j, y, x] for y, x in beyond], k)
                cost = margin + outside - inside
                costs.append(cost if cost > 0 else cost * 0.0)
    return sum(costs) / len(costs) if costs else maps.sum() * 0.0


def problem(shape=(3, 4, 5, 6), size=(20, 24), seed=0, dtype=torch.float32):
    """Maps, 0/1 masks of one rectangle each, and about half of the prototypes own."""
    g = torch.Generator().manual_seed(seed)
    maps = (torch.rand(shape, generator=g, dtype=torch.float64) * 2 - 1).to(dtype)
    masks = torch.zeros(shape[0], *size)
    for mask in masks:
        top, left = (int(torch.randint(0, n, (1,), generator=g)) for n in size)
        mask[top : top + 1 + size[0] // 3, left : left + 1 + size[1] // 3] = 1.0
    own = torch.rand(shape[:2], generator=g) > 0.5
    own[0, 0] = True
    return maps, masks, own


def disagreement(maps, masks, own, k, margin=0.5) -> tuple[float, float]:
    """Largest absolute errors of the loss and of its gradient against the loops in float64."""
    fast, slow = maps.clone().requires_grad_(), maps.double().requires_grad_()
    ours = contrast_loss(fast, masks, own, k, margin)
    theirs = naive_contrast(slow, masks, own, k, margin)
    ours.backward()
    theirs.backward()
    return abs(ours.item() - theirs.item()), (fast.grad - slow.grad).abs().max().item()


@pytest.mark.parametrize("k", [1, 3, 9, 30])
@pytest.mark.parametrize("margin", [0.1, 0.5, 2.0])
def test_loss_and_gradient_equal_loops(k, margin):
    for seed in range(3):
        value, gradient = disagreement(*problem(seed=seed), k, margin)
        assert value < TOLERANCE
        assert gradient < TOLERANCE


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 3),
    prototypes=st.integers(1, 3),
    cells=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    pixels=st.tuples(st.integers(1, 13), st.integers(1, 13)),
    k=st.integers(1, 30),
    seed=st.integers(0, 10_000),
)
def test_loss_is_right_for_all_shapes(batch, prototypes, cells, pixels, k, seed):
    """Among them: masks smaller than the map, one side empty, more patches asked for than there are."""
    value, gradient = disagreement(*problem((batch, prototypes, *cells), pixels, seed), k)
    assert value < TOLERANCE
    assert gradient < TOLERANCE


@pytest.mark.parametrize("k", [1, 4, 100])
def test_gradient_passes_gradcheck(k):
    maps, masks, own = problem((2, 2, 3, 4), (9, 8), dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda s: contrast_loss(s, masks, own, k), (maps.requires_grad_(),)
    )


def one_image(inside: float, outside: float):
    """A 4 x 4 map whose upper left cell alone is annotated."""
    maps = torch.full((1, 1, 4, 4), outside)
    maps[..., 0, 0] = inside
    mask = torch.zeros(1, 16, 16)
    mask[:, :3, :3] = 1.0
    return maps.requires_grad_(), mask, torch.ones(1, 1, dtype=torch.bool)


@pytest.mark.parametrize(
    ("inside", "outside", "expected"),
    [(0.9, 0.2, 0.0), (0.6, 0.2, 0.1), (0.2, 0.2, 0.5), (0.1, 0.9, 1.3), (0.0, 0.0, 0.5)],
)
def test_known_values(inside, outside, expected):
    assert contrast_loss(*one_image(inside, outside), k=3).item() == pytest.approx(expected)


def test_being_like_nothing_is_no_way_out():
    """Zero maps pay the margin and are pulled: up inside, down outside. The fine loss gives them 0."""
    maps, mask, own = one_image(0.0, 0.0)
    contrast_loss(maps, mask, own, k=2).backward()
    assert maps.grad[0, 0, 0, 0].item() == -1.0
    assert maps.grad.sum().item() == pytest.approx(0.0)
    assert (maps.grad > 0).sum() == 2


def test_beyond_the_margin_nothing_pulls():
    maps, mask, own = one_image(0.9, 0.2)
    contrast_loss(maps, mask, own, k=2).backward()
    assert torch.equal(maps.grad, torch.zeros_like(maps))


def test_fewer_patches_inside_than_k_are_averaged_as_they_are():
    """One cell inside, k = 3: its own value, not a third of it."""
    maps, mask, own = one_image(0.6, 0.2)
    assert contrast_loss(maps, mask, own, k=3).item() == pytest.approx(0.5 + 0.2 - 0.6)


@pytest.mark.parametrize("fill", [0.0, 1.0], ids=["all outside", "all inside"])
def test_an_image_with_an_empty_side_says_nothing(fill):
    maps, masks, own = problem()
    own[:] = True
    expected = naive_contrast(maps[:2], masks[:2], own[:2], 3)
    masks[2] = fill
    maps.requires_grad_()
    loss = contrast_loss(maps, masks, own, 3)
    loss.backward()
    torch.testing.assert_close(loss.detach(), expected, rtol=TOLERANCE, atol=0)
    assert torch.equal(maps.grad[2], torch.zeros_like(maps[2]))
    assert torch.isfinite(maps.grad).all()


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_a_batch_that_says_nothing_is_zero_with_a_zero_gradient(fill):
    maps, masks, own = problem()
    maps.requires_grad_()
    loss = contrast_loss(maps, torch.full_like(masks, fill), own, 3)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(maps.grad, torch.zeros_like(maps))


def test_no_own_class_prototype_is_zero_with_a_zero_gradient():
    maps, masks, own = problem()
    maps.requires_grad_()
    loss = contrast_loss(maps, masks, torch.zeros_like(own), 3)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(maps.grad, torch.zeros_like(maps))


def test_prototypes_of_other_classes_are_left_alone():
    maps, masks, own = problem()
    expected = contrast_loss(maps, masks, own, 3)
    maps[~own] = torch.rand_like(maps[~own])
    maps.requires_grad_()
    loss = contrast_loss(maps, masks, own, 3)
    loss.backward()
    assert loss.item() == expected.item()
    assert torch.equal(maps.grad[~own], torch.zeros_like(maps[~own]))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float64])
def test_masks_of_any_dtype_mean_the_same(dtype):
    maps, masks, own = problem()
    expected = contrast_loss(maps, masks, own, 3)
    assert contrast_loss(maps, masks.to(dtype), own, 3).item() == expected.item()


def test_only_differences_matter():
    """Unlike the fine loss: adding the same to every similarity of a prototype changes nothing."""
    maps, masks, own = problem(dtype=torch.float64)
    shift = torch.randn(3, 4, 1, 1, dtype=torch.float64)
    torch.testing.assert_close(
        contrast_loss(maps + shift, masks, own, 3), contrast_loss(maps, masks, own, 3)
    )


def test_log_l2_similarities_are_as_good_as_cosines():
    """They are positive and go up to log(1e4), so the margin is in other units; nothing else changes."""
    maps, masks, own = problem()
    distances = (maps + 1.0) * 3.0
    similarities = torch.log((distances + 1.0) / (distances + 1e-4))
    value, gradient = disagreement(similarities, masks, own, 3, margin=2.0)
    assert value < TOLERANCE * math.log(1e4)
    assert gradient < TOLERANCE


def test_a_nan_is_not_hidden():
    maps, masks, own = problem()
    maps[0, 0] = torch.nan
    assert contrast_loss(maps, masks, own, 3).isnan()


def test_half_precision_maps_are_accepted():
    maps, masks, own = problem()
    loss = contrast_loss(maps.bfloat16(), masks, own, 3)
    expected = contrast_loss(maps, masks, own, 3)
    torch.testing.assert_close(loss.float(), expected, rtol=0.02, atol=0.02)


# The comparison itself is worth something only if it sees a wrong function.


def include_one_cell(masks, height, width, real=module.touching_cells):
    touching = real(masks, height, width)
    touching[..., 0, 0] ^= True
    return touching


def divide_by_k(maps, chosen, k, real=module.masked_top_mean):
    count = chosen.flatten(1).sum(1, keepdim=True).clamp(max=k)
    return real(maps, chosen, k) * count / k


def one_patch_more(maps, chosen, k, real=module.masked_top_mean):
    return real(maps, chosen, k + 1)


def count_the_rest_as_zero(maps, chosen, k, real=module.masked_top_mean):
    return real(maps * chosen, torch.ones_like(chosen), k)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("touching_cells", include_one_cell),
        ("touching_cells", lambda *a, real=module.touching_cells: ~real(*a)),
        ("masked_top_mean", divide_by_k),
        ("masked_top_mean", one_patch_more),
        ("masked_top_mean", count_the_rest_as_zero),
    ],
    ids=["one cell", "polarity", "divided by k", "k + 1", "zeros for -inf"],
)
def test_comparison_detects_a_wrong_part(monkeypatch, name, wrong):
    tensors = (*problem((3, 4, 6, 6), (24, 24)), 6)
    assert max(disagreement(*tensors)) < TOLERANCE
    monkeypatch.setattr(module, name, wrong)
    assert max(disagreement(*tensors)) > 100 * TOLERANCE
