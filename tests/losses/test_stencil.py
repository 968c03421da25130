"""The interpolation matrices and stencils against torch's own bilinear upsampling."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.losses.stencil import (
    interpolation_matrix,
    quadratic_forms,
    safe_sqrt,
    stencils,
)


@settings(max_examples=60, deadline=None)
@given(outputs=st.integers(1, 60), inputs=st.integers(1, 30))
def test_interpolation_matrix_is_bilinear_interpolation(outputs, inputs):
    signals = torch.eye(inputs, dtype=torch.float64)
    expected = F.interpolate(signals[None], outputs, mode="linear", align_corners=False)[0].T
    torch.testing.assert_close(interpolation_matrix(outputs, inputs), expected)


@settings(max_examples=60, deadline=None)
@given(outputs=st.integers(1, 60), inputs=st.integers(1, 30))
def test_an_output_has_at_most_two_inputs_and_they_are_adjacent(outputs, inputs):
    for row in interpolation_matrix(outputs, inputs):
        used = row.nonzero().flatten().tolist()
        assert 1 <= len(used) <= 2
        assert max(used) - min(used) <= 1
        assert row.sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("cells", "pixels"), [((3, 4), (9, 11)), ((5, 5), (3, 8)), ((1, 3), (4, 4))]
)
def test_stencil_holds_every_coefficient_of_the_quadratic_form(cells, pixels):
    """A = U^T diag(w) U, with U formed column by column by upsampling unit maps."""
    h, w = cells
    g = torch.Generator().manual_seed(0)
    weights = torch.rand(pixels, generator=g, dtype=torch.float64)
    unit_maps = torch.eye(h * w, dtype=torch.float64).view(h * w, 1, h, w)
    u = F.interpolate(unit_maps, pixels, mode="bilinear", align_corners=False).flatten(1).T
    a = u.T @ torch.diag(weights.flatten()) @ u
    same, east, south, diagonal = stencils(weights, h, w)
    for y in range(h):
        for x in range(w):
            for y2 in range(h):
                for x2 in range(w):
                    dy, dx = y2 - y, x2 - x
                    expected = a[y * w + x, y2 * w + x2].item()
                    if max(abs(dy), abs(dx)) > 1:
                        assert expected == pytest.approx(0, abs=1e-15)
                    elif (dy, dx) == (0, 0):
                        assert same[y, x].item() == pytest.approx(expected)
                    elif (dy, dx) == (0, 1):
                        assert east[y, x].item() == pytest.approx(expected)
                    elif (dy, dx) == (1, 0):
                        assert south[y, x].item() == pytest.approx(expected)
                    elif dy == 1:  # both diagonals share one coefficient
                        left = min(x, x2)
                        assert diagonal[y, left].item() == pytest.approx(expected)


def test_quadratic_forms_serve_several_stencils_at_once():
    g = torch.Generator().manual_seed(1)
    maps = torch.randn(2, 3, 4, 5, generator=g, dtype=torch.float64)
    weights = torch.rand(2, 2, 9, 13, generator=g, dtype=torch.float64)
    forms = quadratic_forms(maps, stencils(weights, 4, 5))
    pams = F.interpolate(maps, (9, 13), mode="bilinear", align_corners=False)
    for i in range(2):
        for j in range(3):
            for s in range(2):
                expected = (weights[i, s] * pams[i, j] ** 2).sum().item()
                assert forms[i, j, s].item() == pytest.approx(expected)


def test_quadratic_forms_pass_gradcheck():
    g = torch.Generator().manual_seed(2)
    maps = torch.randn(2, 2, 3, 4, generator=g, dtype=torch.float64, requires_grad=True)
    stencil = stencils(torch.rand(2, 2, 7, 7, generator=g, dtype=torch.float64), 3, 4)
    assert torch.autograd.gradcheck(lambda s: quadratic_forms(s, stencil), (maps,))


def test_forms_are_not_below_zero():
    maps = torch.randn(4, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    assert (quadratic_forms(maps, stencils(torch.zeros(4, 1, 20, 20), 6, 6)) == 0).all()
    tiny = torch.full((4, 1, 20, 20), 1e-30)
    assert (quadratic_forms(maps, stencils(tiny, 6, 6)) >= 0).all()


def test_square_root_at_zero_has_a_zero_gradient():
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    root = safe_sqrt(x)
    root.sum().backward()
    assert root.tolist() == [0.0, 2.0]
    assert x.grad.tolist() == [0.0, 0.25]
