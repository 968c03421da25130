"""Similarity maps against a loop over images, prototypes and patches."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.model.similarity import cosine_maps, l2_maps, log_similarity


def naive(z, p, compare):
    """compare(patch, prototype) at every place, as a map."""
    batch, _, height, width = z.shape
    values = [
        compare(z[i, :, y, x].tolist(), p[j].tolist())
        for i in range(batch)
        for j in range(len(p))
        for y in range(height)
        for x in range(width)
    ]
    return torch.tensor(values, dtype=z.dtype).view(batch, len(p), height, width)


def cosine(a, b):
    norms = math.hypot(*a) * math.hypot(*b)
    return sum(x * y for x, y in zip(a, b, strict=True)) / norms if norms else 0.0


def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def problem(dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(2, 5, 3, 4, generator=g, dtype=dtype)
    return z, torch.randn(6, 5, generator=g, dtype=dtype) * 3


def test_cosine_equals_a_loop_over_patches():
    z, p = problem()
    torch.testing.assert_close(cosine_maps(z, p), naive(z, p, cosine), rtol=1e-5, atol=1e-6)


def test_cosine_with_relu_has_no_negative_values():
    z, p = problem()
    expected = naive(z, p, lambda a, b: max(cosine(a, b), 0.0))
    torch.testing.assert_close(cosine_maps(z, p, relu=True), expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    dim=st.integers(1, 40),
    scale=st.floats(1e-3, 1e3),
    aligned=st.booleans(),
)
def test_cosine_lies_between_minus_one_and_one(seed, dim, scale, aligned):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(2, dim, 3, 3, generator=g) * scale
    p = z[0, :, 0, :].T.clone() if aligned else torch.randn(4, dim, generator=g)
    maps = cosine_maps(z, torch.cat([p, -p]))
    assert maps.min() >= -1
    assert maps.max() <= 1


def test_a_patch_is_perfectly_similar_to_itself_at_any_length():
    z, _ = problem()
    p = 7.5 * z[0, :, 1, 2][None]
    assert cosine_maps(z, p)[0, 0, 1, 2].item() == pytest.approx(1.0)
    assert cosine_maps(z, -p)[0, 0, 1, 2].item() == pytest.approx(-1.0)


def test_a_zero_patch_has_similarity_zero_and_a_zero_gradient():
    z, p = problem()
    z[0, :, 1, 1] = 0.0
    z.requires_grad_()
    p.requires_grad_()
    maps = cosine_maps(z, p)
    assert torch.equal(maps[0, :, 1, 1], torch.zeros(6))
    maps.sum().backward()
    assert torch.isfinite(z.grad).all() and torch.isfinite(p.grad).all()
    assert torch.equal(z.grad[0, :, 1, 1], torch.zeros(5))
    assert z.grad[0, :, 0, 0].abs().sum() > 0


def test_a_zero_prototype_has_similarity_zero_and_a_zero_gradient():
    z, p = problem()
    p[2] = 0.0
    z.requires_grad_()
    p.requires_grad_()
    maps = cosine_maps(z, p)
    assert torch.equal(maps[:, 2], torch.zeros(2, 3, 4))
    maps.sum().backward()
    assert torch.isfinite(z.grad).all() and torch.isfinite(p.grad).all()
    assert torch.equal(p.grad[2], torch.zeros(5))


def test_a_whole_map_of_zeros_is_safe():
    z = torch.zeros(1, 5, 3, 3, requires_grad=True)
    maps = cosine_maps(z, problem()[1])
    maps.square().sum().backward()
    assert torch.equal(maps, torch.zeros(1, 6, 3, 3))
    assert torch.equal(z.grad, torch.zeros(1, 5, 3, 3))


@pytest.mark.parametrize("squared", [False, True])
def test_distances_equal_a_loop_over_patches(squared):
    z, p = problem()
    expected = naive(z, p, lambda a, b: distance(a, b) ** (2 if squared else 1))
    torch.testing.assert_close(l2_maps(z, p, squared), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("squared", [False, True])
def test_log_similarity_is_protopnets(squared):
    z, p = problem()

    def similarity(a, b):
        d = distance(a, b) ** (2 if squared else 1)
        return math.log((d + 1) / (d + 1e-4))

    ours = log_similarity(l2_maps(z, p, squared))
    torch.testing.assert_close(ours, naive(z, p, similarity), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("squared", [False, True])
def test_a_patch_that_is_the_prototype_is_at_distance_zero_with_a_finite_gradient(squared):
    z, _ = problem()
    p = z[0, :, 1, 2][None].clone().requires_grad_()
    z.requires_grad_()
    distances = l2_maps(z, p, squared)
    assert distances[0, 0, 1, 2].item() == 0.0
    maps = log_similarity(distances)
    assert maps[0, 0, 1, 2].item() == pytest.approx(math.log(1e4), rel=1e-5)
    maps.sum().backward()
    assert torch.isfinite(z.grad).all() and torch.isfinite(p.grad).all()


def test_small_distances_are_not_lost_to_cancellation():
    z = torch.full((1, 64, 1, 1), 100.0)
    p = torch.full((1, 64), 100.0)
    p[0, 0] += 1e-2
    assert l2_maps(z, p, squared=False).item() == pytest.approx(1e-2, rel=1e-2)


@pytest.mark.parametrize(
    "similarity",
    [
        cosine_maps,
        lambda z, p: log_similarity(l2_maps(z, p, False)),
        lambda z, p: log_similarity(l2_maps(z, p, True)),
    ],
)
def test_gradients_pass_gradcheck(similarity):
    z, p = problem(torch.float64)
    assert torch.autograd.gradcheck(similarity, (z.requires_grad_(), p.requires_grad_()))


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("relu", [False, True])
def test_the_hand_written_gradient_of_the_cosine_is_the_one_of_normalised_copies(order, relu):
    z, p = problem(torch.float64, seed=3)
    z[1, :, 2, 3] = 0.0
    z = z.contiguous(memory_format=order).requires_grad_()
    p.requires_grad_()
    incoming = torch.randn(2, 6, 3, 4, dtype=torch.float64)
    ours = torch.autograd.grad(cosine_maps(z, p, relu), (z, p), incoming)
    assert ours[0].is_contiguous(memory_format=order)
    unit = torch.nn.functional.normalize(z, dim=1), torch.nn.functional.normalize(p, dim=1)
    slow = torch.einsum("bdhw,md->bmhw", *unit)
    expected = torch.autograd.grad(slow.relu() if relu else slow, (z, p), incoming)
    alive = z.detach().norm(dim=1, keepdim=True) > 0  # normalize has another gradient at zero
    torch.testing.assert_close(ours[0], expected[0] * alive)
    torch.testing.assert_close(ours[1], expected[1])


def test_under_autocast_the_cosine_still_has_a_gradient():
    z, p = problem()
    z.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        maps = cosine_maps(z, p)
    torch.testing.assert_close(maps.float(), naive(z.detach(), p, cosine), rtol=0.05, atol=0.05)
    maps.float().square().sum().backward()
    assert torch.isfinite(z.grad).all() and z.grad.abs().sum() > 0
