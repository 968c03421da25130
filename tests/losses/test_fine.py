"""The fine-annotation losses against upsample, multiply, norm, written from the paper's equation."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from protopyramid.errors import UserError
from protopyramid.losses import fine, fine_annotation, fine_grouped, stencil

TOLERANCE = 1e-5  # of float32, relative
CLASSES = ("circumscribed", "indistinct", "spiculated", "negative")
# The two tables of the paper's supplement, read by their captions.
OUTSIDE = ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), (0, 0, 0, 0))
INSIDE = ((0, 0, 0, 1), (0, 0, 0, 1), (1, 1, 0, 1), (0, 0, 0, 0))


def pixel_weight(mask: Tensor, inside: Tensor, outside: Tensor, combine: str) -> Tensor:
    """W of one image and prototype; the mask is 1 inside, the paper's m is 1 outside."""
    m = 1.0 - mask
    if combine == "paper":
        return outside * m + inside
    return outside * m + inside * mask


def naive_fine(
    maps, masks, inside, outside, combine="paper", per_pixel=False, share=False
) -> Tensor:
    """Upsample, multiply, norm; one image and one prototype at a time."""
    per_image = []
    for i in range(len(maps)):
        total = maps.new_zeros(())
        for j in range(maps.shape[1]):
            pam = F.interpolate(
                maps[i, j][None, None], masks.shape[-2:], mode="bilinear", align_corners=False
            )[0, 0]
            w = pixel_weight(masks[i].to(maps.dtype), inside[i, j], outside[i, j], combine)
            norm = torch.linalg.vector_norm(w * pam)
            root = math.sqrt(masks[i].numel())
            if share:
                norm = norm / (torch.linalg.vector_norm(pam) + 0.01 * root)
            elif per_pixel:
                norm = norm / root
            total = total + norm
        per_image.append(total)
    return torch.stack(per_image).mean()


def bilinear_by_hand(s: list[list[float]], height: int, width: int) -> list[list[float]]:
    """Bilinear resampling with half-pixel centres (align_corners=False), pixel by pixel."""
    h, w = len(s), len(s[0])
    pam = []
    for row in range(height):
        y = max((row + 0.5) * h / height - 0.5, 0.0)
        y0 = min(int(y), h - 1)
        y1, fy = min(y0 + 1, h - 1), y - y0
        pam.append([])
        for column in range(width):
            x = max((column + 0.5) * w / width - 0.5, 0.0)
            x0 = min(int(x), w - 1)
            x1, fx = min(x0 + 1, w - 1), x - x0
            above = (1 - fx) * s[y0][x0] + fx * s[y0][x1]
            below = (1 - fx) * s[y1][x0] + fx * s[y1][x1]
            pam[-1].append((1 - fy) * above + fy * below)
    return pam


def relative(ours: Tensor, theirs: Tensor) -> float:
    ours, theirs = ours.double(), theirs.double()
    scale = torch.linalg.vector_norm(theirs)
    return (torch.linalg.vector_norm(ours - theirs) / scale.clamp(min=1e-12)).item()


def disagreement(maps, masks, inside, outside, **options) -> tuple[float, float]:
    """Relative errors of the loss and of its gradient, against the naive loss in float64."""
    fast = maps.clone().requires_grad_()
    slow = maps.double().requires_grad_()
    ours = fine_annotation(fast, masks, inside, outside, **options)
    theirs = naive_fine(slow, masks.double(), inside.double(), outside.double(), **options)
    ours.backward()
    theirs.backward()
    return relative(ours.detach(), theirs.detach()), relative(fast.grad, slow.grad)


def problem(shape=(2, 3, 7, 7), size=(32, 32), seed=0, mask="random"):
    """Maps, masks, and random 0/1 and fractional penalties."""
    g = torch.Generator().manual_seed(seed)
    maps = torch.rand(shape, generator=g) * 2 - 1
    drawn = torch.rand((shape[0], *size), generator=g)
    masks = {
        "random": (drawn > 0.5).float(),
        "soft": drawn,
        "all inside": torch.ones_like(drawn),
        "all outside": torch.zeros_like(drawn),
        "border": border(drawn),
    }[mask]
    inside = torch.rand(shape[:2], generator=g)
    outside = torch.rand(shape[:2], generator=g) + 0.1
    return maps, masks, inside, outside


def border(like: Tensor) -> Tensor:
    """A box that touches the upper and the left edge."""
    masks = torch.zeros_like(like)
    masks[:, : like.shape[-2] * 2 // 3, : max(1, like.shape[-1] // 3)] = 1.0
    return masks


MASKS = ("random", "soft", "all inside", "all outside", "border")


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("combine", ["paper", "disjoint"])
@pytest.mark.parametrize("per_pixel", [False, True])
def test_fine_loss_and_gradient_equal_upsample_multiply_norm(mask, combine, per_pixel):
    value, gradient = disagreement(*problem(mask=mask), combine=combine, per_pixel=per_pixel)
    assert value < TOLERANCE
    assert gradient < TOLERANCE


@pytest.mark.parametrize(
    ("cells", "pixels"),
    [
        ((14, 14), (224, 224)),
        ((56, 56), (224, 224)),
        ((7, 7), (7, 7)),
        ((5, 7), (32, 23)),  # sizes that do not divide
        ((9, 8), (4, 5)),  # a mask smaller than the map
        ((8, 3), (5, 40)),  # smaller one way, larger the other
        ((1, 1), (16, 16)),
        ((1, 6), (16, 17)),
        ((6, 1), (17, 16)),
        ((4, 4), (1, 1)),
        ((2, 2), (3, 3)),
    ],
)
@pytest.mark.parametrize("mask", ["border", "soft"])
def test_fine_loss_is_exact_at_any_size_ratio(cells, pixels, mask):
    value, gradient = disagreement(*problem((2, 2, *cells), pixels, mask=mask))
    assert value < TOLERANCE
    assert gradient < TOLERANCE


def test_fine_loss_equals_a_loop_over_every_pixel():
    maps, masks, inside, outside = problem((2, 2, 3, 4), (10, 7))
    total = 0.0
    for i in range(2):
        for j in range(2):
            pam = bilinear_by_hand(maps[i, j].tolist(), 10, 7)
            square = 0.0
            for row in range(10):
                for column in range(7):
                    m = 0.0 if masks[i, row, column] else 1.0
                    weight = outside[i, j].item() * m + inside[i, j].item()
                    square += (weight * pam[row][column]) ** 2
            total += math.sqrt(square)
    assert fine_annotation(maps, masks, inside, outside).item() == pytest.approx(
        total / 2, rel=TOLERANCE
    )


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("combine", ["paper", "disjoint"])
def test_every_class_pair_of_the_papers_tables(row, column, combine):
    maps, masks, *_ = problem((1, 1, 4, 4), (12, 12), seed=4 * row + column)
    inside, outside = (
        torch.tensor([[float(INSIDE[row][column])]]),
        torch.tensor([[float(OUTSIDE[row][column])]]),
    )
    pam = bilinear_by_hand(maps[0, 0].tolist(), 12, 12)
    beyond = OUTSIDE[row][column] + (INSIDE[row][column] if combine == "paper" else 0)
    expected = math.sqrt(
        sum(
            ((INSIDE[row][column] if masks[0, y, x] else beyond) * pam[y][x]) ** 2
            for y in range(12)
            for x in range(12)
        )
    )
    loss = fine_annotation(maps, masks, inside, outside, combine=combine)
    assert loss.item() == pytest.approx(expected, rel=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float64])
def test_masks_of_any_dtype_mean_the_same(dtype):
    maps, masks, inside, outside = problem()
    expected = naive_fine(maps, masks, inside, outside)
    loss = fine_annotation(maps, masks.to(dtype), inside, outside)
    torch.testing.assert_close(loss, expected, rtol=TOLERANCE, atol=0)


@settings(max_examples=60, deadline=None)
@given(
    batch=st.integers(1, 3),
    prototypes=st.integers(1, 4),
    cells=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    pixels=st.tuples(st.integers(1, 19), st.integers(1, 19)),
    mask=st.sampled_from(MASKS),
    combine=st.sampled_from(["paper", "disjoint"]),
    seed=st.integers(0, 10_000),
)
def test_fine_loss_is_right_for_all_shapes_and_masks(
    batch, prototypes, cells, pixels, mask, combine, seed
):
    maps, masks, inside, outside = problem((batch, prototypes, *cells), pixels, seed, mask)
    maps, masks, inside, outside = (x.double() for x in (maps, masks, inside, outside))
    maps.requires_grad_()
    loss = fine_annotation(maps, masks, inside, outside, combine=combine)
    expected = naive_fine(maps, masks, inside, outside, combine=combine)
    torch.testing.assert_close(loss, expected, rtol=1e-9, atol=1e-7)
    (ours,) = torch.autograd.grad(loss, maps)
    (theirs,) = torch.autograd.grad(expected, maps)
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), size=st.integers(2, 20), scale=st.floats(0.1, 10))
def test_fine_loss_is_a_norm_of_the_maps(seed, size, scale):
    maps, masks, inside, outside = problem((2, 2, 4, 5), (size, size + 3), seed)
    loss = fine_annotation(maps, masks, inside, outside)
    torch.testing.assert_close(fine_annotation(-maps, masks, inside, outside), loss)
    scaled = fine_annotation(scale * maps, masks, inside, outside)
    torch.testing.assert_close(scaled, scale * loss, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mask", ["border", "soft", "all inside"])
@pytest.mark.parametrize("combine", ["paper", "disjoint"])
def test_gradient_passes_gradcheck(mask, combine):
    maps, masks, inside, outside = (x.double() for x in problem((2, 2, 3, 4), (7, 6), mask=mask))
    assert torch.autograd.gradcheck(
        lambda s: fine_annotation(s, masks, inside, outside, combine=combine),
        (maps.requires_grad_(),),
    )


@pytest.mark.parametrize("mask", MASKS)
def test_zero_maps_cost_nothing_and_pull_nowhere(mask):
    maps, masks, inside, outside = problem(mask=mask)
    maps = torch.zeros_like(maps, requires_grad=True)
    loss = fine_annotation(maps, masks, inside, outside)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(maps.grad, torch.zeros_like(maps))


def test_a_zero_map_does_not_spoil_the_gradient_of_its_neighbour():
    maps, masks, inside, outside = problem((1, 2, 4, 4))
    maps[:, 0] = 0.0
    maps.requires_grad_()
    fine_annotation(maps, masks, inside, outside).backward()
    assert torch.isfinite(maps.grad).all()
    assert torch.equal(maps.grad[:, 0], torch.zeros(1, 4, 4))
    assert maps.grad[:, 1].abs().sum() > 0


def test_pairs_without_penalty_cost_nothing():
    maps, masks, inside, _ = problem()
    zeros = torch.zeros_like(inside)
    maps.requires_grad_()
    loss = fine_annotation(maps, masks, zeros, zeros)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(maps.grad, torch.zeros_like(maps))


def drawn_example():
    """A 16 x 16 image with the annotation on cells (4..7, 4..7) of a map of the same size."""
    mask = torch.zeros(1, 16, 16)
    mask[:, 4:8, 4:8] = 1.0
    within = torch.zeros(1, 1, 16, 16)
    within[:, :, 4:8, 4:8] = 0.9
    beyond = torch.zeros(1, 1, 16, 16)
    beyond[:, :, 10:14, 10:14] = 0.9
    return mask, within, beyond


@pytest.mark.parametrize("combine", ["paper", "disjoint"])
def test_an_own_class_activation_inside_the_annotation_is_free_and_one_outside_is_not(combine):
    mask, within, beyond = drawn_example()
    inside, outside = torch.zeros(1, 1), torch.ones(1, 1)  # the tables' own-class entries
    assert fine_annotation(within, mask, inside, outside, combine=combine).item() == 0.0
    # 16 pixels of 0.9, weight 1
    cost = fine_annotation(beyond, mask, inside, outside, combine=combine).item()
    assert cost == pytest.approx(math.sqrt(16 * 0.81), rel=TOLERANCE)


@pytest.mark.parametrize(("combine", "weight_outside"), [("paper", 2.0), ("disjoint", 1.0)])
def test_a_penalty_inside_is_paid_inside_and_by_the_papers_rule_outside_too(
    combine, weight_outside
):
    mask, within, beyond = drawn_example()
    ones = torch.ones(1, 1)
    assert fine_annotation(within, mask, ones, ones, combine=combine).item() == pytest.approx(3.6)
    cost = fine_annotation(beyond, mask, ones, ones, combine=combine).item()
    assert cost == pytest.approx(3.6 * weight_outside)


def test_upsampled_activation_well_inside_a_coarse_annotation_is_free():
    mask = torch.zeros(1, 64, 64)
    mask[:, 8:56, 8:56] = 1.0
    maps = torch.zeros(1, 1, 8, 8)
    maps[..., 3:5, 3:5] = 1.0
    assert fine_annotation(maps, mask, torch.zeros(1, 1), torch.ones(1, 1)).item() == 0.0


def test_repeating_the_batch_does_not_change_the_loss():
    tensors = problem()
    once = fine_annotation(*tensors)
    twice = fine_annotation(*(torch.cat([x, x]) for x in tensors))
    torch.testing.assert_close(twice, once, rtol=1e-6, atol=0)


def test_per_pixel_divides_by_the_root_of_the_number_of_pixels():
    maps, masks, inside, outside = problem(size=(20, 30))
    whole = fine_annotation(maps, masks, inside, outside)
    shared = fine_annotation(maps, masks, inside, outside, per_pixel=True)
    torch.testing.assert_close(shared, whole / math.sqrt(600))


def test_per_pixel_carries_the_loss_across_mask_sizes():
    maps, masks, inside, outside = problem((1, 2, 4, 4), (64, 64), mask="border")
    larger = masks.repeat_interleave(4, -1).repeat_interleave(4, -2)
    small = fine_annotation(maps, masks, inside, outside, per_pixel=True).item()
    large = fine_annotation(maps, larger, inside, outside, per_pixel=True).item()
    assert large == pytest.approx(small, rel=0.01)


def test_an_unknown_combination_is_refused():
    with pytest.raises(UserError, match=r"paper.*disjoint.*mine"):
        fine_annotation(*problem(), combine="mine")


def test_no_gradient_is_asked_of_masks_and_weights():
    maps, masks, inside, outside = problem()
    assert not fine_annotation(maps, masks, inside, outside).requires_grad


# The comparison itself is worth something only if it sees a wrong fast path.


def drop_diagonal(weights, height, width, real=stencil.stencils):
    result = real(weights, height, width).clone()
    result[..., 3, :, :] = 0.0
    return result


def shift_offset(weights, height, width, real=stencil.stencils):
    result = real(weights, height, width).clone()
    result[..., 1, :, :] = result[..., 1, :, :].roll(1, dims=-1)
    return result


def swap_axes(weights, height, width, real=stencil.stencils):
    return real(weights, height, width)[..., [0, 2, 1, 3], :, :]


def nudge_one_cell(weights, height, width, real=stencil.stencils):
    result = real(weights, height, width).clone()
    result[..., 0, 2, 2] *= 1.1
    return result


@pytest.mark.parametrize("wrong", [drop_diagonal, shift_offset, swap_axes, nudge_one_cell])
@pytest.mark.parametrize("mask", ["border", "soft"])
def test_comparison_detects_a_perturbed_stencil(monkeypatch, wrong, mask):
    tensors = problem(mask=mask)
    assert max(disagreement(*tensors)) < TOLERANCE
    monkeypatch.setattr(fine, "stencils", wrong)
    value, gradient = disagreement(*tensors)
    assert value > 20 * TOLERANCE
    assert gradient > 20 * TOLERANCE


def test_comparison_detects_swapped_polarity(monkeypatch):
    tensors = problem(mask="border")
    assert max(disagreement(*tensors)) < TOLERANCE
    monkeypatch.setattr(fine, "outside_of", lambda masks: masks)
    assert min(disagreement(*tensors)) > 1000 * TOLERANCE


def test_comparison_detects_a_wrong_gradient(monkeypatch):
    real = stencil.QuadraticForms.backward

    def wrong(ctx, *gradients):
        gradient, none = real(ctx, *gradients)
        gradient[..., -1] = 0.0
        return gradient, none

    monkeypatch.setattr(stencil.QuadraticForms, "backward", staticmethod(wrong))
    value, gradient = disagreement(*problem())
    assert value < TOLERANCE
    assert gradient > 1000 * TOLERANCE


def test_comparison_detects_corner_aligned_upsampling(monkeypatch):
    def corner_aligned(outputs, inputs):
        eye = torch.eye(inputs, dtype=torch.float64)[None]
        matrix = F.interpolate(eye, outputs, mode="linear", align_corners=True)[0].T
        neighbour = torch.zeros_like(matrix)
        neighbour[:, :-1] = matrix[:, 1:]
        return torch.stack([matrix * matrix, matrix * neighbour])

    monkeypatch.setattr(stencil, "_pair_matrices", corner_aligned)
    assert min(disagreement(*problem())) > 100 * TOLERANCE


# The share: where a prototype activates, not how strongly.


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("combine", ["paper", "disjoint"])
def test_share_and_its_gradient_equal_upsample_multiply_divide(mask, combine):
    value, gradient = disagreement(*problem(mask=mask), combine=combine, share=True)
    assert value < TOLERANCE
    # All inside or all outside, the share hardly depends on the maps: its gradient is a difference of
    # two that nearly cancel.
    assert gradient < (10 * TOLERANCE if mask.startswith("all") else TOLERANCE)


@pytest.mark.parametrize(
    ("cells", "pixels"), [((5, 7), (32, 23)), ((9, 8), (4, 5)), ((1, 1), (16, 16))]
)
def test_share_is_exact_at_any_size_ratio(cells, pixels):
    value, gradient = disagreement(*problem((2, 2, *cells), pixels, mask="soft"), share=True)
    assert value < TOLERANCE
    assert gradient < 10 * TOLERANCE


@pytest.mark.parametrize("mask", ["border", "soft"])
def test_share_passes_gradcheck(mask):
    maps, masks, inside, outside = (x.double() for x in problem((2, 2, 3, 4), (7, 6), mask=mask))
    assert torch.autograd.gradcheck(
        lambda s: fine_annotation(s, masks, inside, outside, share=True), (maps.requires_grad_(),)
    )


@pytest.mark.parametrize("mask", MASKS)
def test_share_of_zero_maps_is_zero_with_a_zero_gradient(mask):
    maps, masks, inside, outside = problem(mask=mask)
    maps = torch.zeros_like(maps, requires_grad=True)
    loss = fine_annotation(maps, masks, inside, outside, share=True)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(maps.grad, torch.zeros_like(maps))


def test_share_of_a_nearly_zero_map_is_faded_out_not_blown_up():
    maps, masks, inside, outside = problem(mask="border")
    for size in (1e-3, 1e-6, 1e-12, 1e-30):
        faint = (size * maps).requires_grad_()
        loss = fine_annotation(faint, masks, inside, outside, share=True)
        loss.backward()
        assert torch.isfinite(faint.grad).all()
        # Never above the plain loss divided by the floor, .01 a pixel.
        plain = fine_annotation(faint, masks, inside, outside, per_pixel=True)
        assert loss.item() <= plain.item() / 0.01 * (1 + TOLERANCE)


def test_share_of_a_strong_map_does_not_depend_on_its_strength():
    maps, masks, inside, outside = problem(mask="border")
    once = fine_annotation(100 * maps, masks, inside, outside, share=True).item()
    again = fine_annotation(1e4 * maps, masks, inside, outside, share=True).item()
    assert again == pytest.approx(once, rel=1e-3)
    # The plain norm grows with it.
    plain = [fine_annotation(f * maps, masks, inside, outside).item() for f in (100, 1e4)]
    assert plain[1] == pytest.approx(100 * plain[0], rel=1e-4)


def test_weaker_everywhere_is_hardly_a_way_to_a_smaller_share():
    """Halving a map of similarities halves the norm, and leaves the share as it was to 3 %."""
    maps, masks, inside, outside = problem(mask="border")
    whole, half = (fine_annotation(f * maps, masks, inside, outside, share=True) for f in (1, 0.5))
    assert half.item() > 0.97 * whole.item()


def test_share_is_zero_within_and_nearly_one_beyond():
    mask, within, beyond = drawn_example()
    inside, outside = torch.zeros(1, 1), torch.ones(1, 1)
    assert fine_annotation(within, mask, inside, outside, share=True).item() == 0.0
    # A norm of 3.6, and a floor of .01 for each of 256 pixels.
    expected = 3.6 / (3.6 + 0.16)
    cost = fine_annotation(beyond, mask, inside, outside, share=True).item()
    assert cost == pytest.approx(expected, rel=TOLERANCE)


def test_share_leaves_nothing_for_per_pixel_to_divide():
    tensors = problem()
    both = fine_annotation(*tensors, per_pixel=True, share=True)
    assert both.item() == fine_annotation(*tensors, share=True).item()


def test_share_of_log_l2_similarities():
    """They are positive, up to log(1e4): far above the floor."""
    maps, masks, inside, outside = problem(mask="border")
    distances = (maps + 1.0) * 3.0
    similarities = torch.log((distances + 1.0) / (distances + 1e-4))
    value, gradient = disagreement(similarities, masks, inside, outside, share=True)
    assert value < TOLERANCE
    assert gradient < 10 * TOLERANCE


def test_comparison_detects_another_floor_of_the_share(monkeypatch):
    monkeypatch.setattr(fine, "SMALL_ACTIVATION", 0.02)
    assert min(disagreement(*problem(mask="border"), share=True)) > 100 * TOLERANCE


# IAIA-BL's loss.


def naive_grouped(maps, masks, labels, classes, per_pixel=False) -> Tensor:
    """One norm for lower classes, own class (outside alone) and higher classes, image by image."""
    flat = [(by_level, j) for by_level in maps.values() for j in range(by_level.shape[1])]
    per_image = []
    for i, label in enumerate(labels.tolist()):
        squares = {"lower": 0.0, "own": 0.0, "higher": 0.0}
        for (by_level, j), owner in zip(flat, classes.tolist(), strict=True):
            pam = F.interpolate(
                by_level[i, j][None, None], masks.shape[-2:], mode="bilinear", align_corners=False
            )[0, 0]
            if owner == label:
                pam = pam * (1 - masks[i])
            group = "own" if owner == label else "lower" if owner < label else "higher"
            squares[group] = squares[group] + pam.square().sum()
        norms = [square.sqrt() for square in squares.values() if isinstance(square, Tensor)]
        per_image.append(torch.stack(norms).sum())
    mean = torch.stack(per_image).mean()
    return mean / math.sqrt(masks[0].numel()) if per_pixel else mean


def grouped_problem(dtype=torch.float32):
    g = torch.Generator().manual_seed(3)
    maps = {
        3: (torch.rand(4, 3, 5, 5, generator=g) * 2 - 1).to(dtype),
        5: (torch.rand(4, 4, 3, 2, generator=g) * 2 - 1).to(dtype),
    }
    masks = (torch.rand(4, 13, 16, generator=g) > 0.6).to(dtype)
    labels = torch.tensor([0, 1, 2, 3])
    classes = torch.tensor([0, 1, 2, 0, 1, 2, 3])
    return maps, masks, labels, classes


@pytest.mark.parametrize("per_pixel", [False, True])
def test_grouped_loss_and_gradient_equal_the_joint_norms_of_iaia_bl(per_pixel):
    maps, masks, labels, classes = grouped_problem()
    fast = {level: by_level.clone().requires_grad_() for level, by_level in maps.items()}
    slow = {level: by_level.double().requires_grad_() for level, by_level in maps.items()}
    ours = fine_grouped(fast, masks, labels, classes, per_pixel)
    theirs = naive_grouped(slow, masks.double(), labels, classes, per_pixel)
    ours.backward()
    theirs.backward()
    assert relative(ours.detach(), theirs.detach()) < TOLERANCE
    for level in maps:
        assert relative(fast[level].grad, slow[level].grad) < TOLERANCE


def test_grouped_gradient_passes_gradcheck():
    maps, masks, labels, classes = grouped_problem(torch.float64)
    assert torch.autograd.gradcheck(
        lambda a, b: fine_grouped({3: a, 5: b}, masks, labels, classes),
        tuple(x.requires_grad_() for x in maps.values()),
    )


def test_grouped_loss_of_zero_maps_is_zero_with_a_zero_gradient():
    maps, masks, labels, classes = grouped_problem()
    maps = {level: torch.zeros_like(x).requires_grad_() for level, x in maps.items()}
    loss = fine_grouped(maps, masks, labels, classes)
    loss.backward()
    assert loss.item() == 0.0
    assert all(torch.equal(x.grad, torch.zeros_like(x)) for x in maps.values())


def test_grouped_loss_lets_own_class_prototypes_activate_inside_and_no_others():
    mask, within, _ = drawn_example()
    for owner, expected in ((0, 3.6), (1, 0.0), (2, 3.6)):
        loss = fine_grouped({5: within}, mask, torch.tensor([1]), torch.tensor([owner]))
        assert loss.item() == pytest.approx(expected, abs=1e-6)


# Numbers that are easily lost.


def test_a_small_activation_inside_is_not_drowned_by_a_large_one_outside():
    maps, _, inside, outside = problem((2, 3, 14, 14), (224, 224))
    masks = torch.zeros(2, 224, 224)
    masks[:, 50:60, 50:60] = 1.0
    maps[:, :, 1:6, 1:6] *= 1e-3
    value, gradient = disagreement(
        maps, masks, torch.ones_like(inside), torch.zeros_like(outside), combine="disjoint"
    )
    assert value < 1e-4
    assert gradient < 1e-4


def test_mixed_precision_does_not_reach_the_loss():
    maps, masks, inside, outside = problem(mask="border")
    with torch.autocast("cpu", torch.float16):
        loss = fine_annotation(maps, masks, inside, outside)
    expected = naive_fine(maps, masks, inside, outside)
    torch.testing.assert_close(loss, expected, rtol=TOLERANCE, atol=0)


def test_maps_in_half_precision_are_computed_in_single_precision():
    maps, masks, inside, outside = problem(mask="border")
    maps = maps.half()
    loss = fine_annotation(maps, masks, inside, outside)
    expected = naive_fine(maps.float(), masks, inside, outside)
    torch.testing.assert_close(loss, expected, rtol=TOLERANCE, atol=0)


@pytest.mark.parametrize("soft", [False, True])
def test_levels_that_share_their_stencils_have_the_loss_of_levels_that_do_not(soft, monkeypatch):
    from protopyramid.losses import fine

    torch.manual_seed(0)
    masks = torch.rand(3, 20, 24) if soft else (torch.rand(3, 20, 24) > 0.5).to(torch.uint8)
    maps = [torch.randn(3, 2, *size) for size in ((10, 12), (5, 6), (5, 6))]
    inside, outside = torch.rand(3, 2), torch.rand(3, 2)
    expected = [fine.fine_annotation(each, masks, inside, outside, share=True) for each in maps]
    made, real = [], fine.stencils
    monkeypatch.setattr(fine, "stencils", lambda *given: made.append(given[1:]) or real(*given))
    shared = fine.MaskStencils(masks)
    for each, loss in zip(maps, expected, strict=True):
        assert torch.equal(fine.fine_annotation(each, shared, inside, outside, share=True), loss)
    assert made.count((5, 6)) == made.count((10, 12)) == (3 if soft else 2)
