"""What a prototype mostly depends on, against whole Jacobians and loops over squares."""

from __future__ import annotations

import pytest
import torch

from protopyramid.inference.batches import model_input
from protopyramid.prototypes.reach import (
    prototype_reach,
    sensitivity,
    square_holding,
)
from protopyramid.runs.run import Run


@pytest.mark.parametrize(
    ("preset", "level"), [("fpn-iaia-bl", 2), ("fpn-iaia-bl", 5), ("iaia-bl", 5)]
)
def test_sensitivity_is_the_squared_jacobian_across_the_patch(make_run, preset, level) -> None:
    run = make_run(preset)
    image = model_input(run.cases.source(0)[None], run.config.data, torch.device("cpu"))

    def patch(pixels: torch.Tensor) -> torch.Tensor:
        return run.model.pyramid(pixels)[level][0, :, 1, 2]

    jacobian = torch.autograd.functional.jacobian(patch, image).flatten(2)[:, 0]  # (d, 3 H W)
    if preset == "fpn-iaia-bl":  # the cosine does not see movement along the patch
        own = torch.nn.functional.normalize(patch(image).detach(), dim=0)
        jacobian = jacobian - torch.outer(own, own @ jacobian)
    exact = jacobian.square().sum(0).view(3, *image.shape[-2:]).sum(0)
    found = sensitivity(run.model, image, level, 1, 2, directions=400)
    found, exact = found / found.sum(), exact / exact.sum()
    assert (found - exact).abs().sum() < 0.1
    few = sensitivity(run.model, image, level, 1, 2)
    sides = [
        box[2] - box[0]
        for box in (square_holding(each, (0.5, 0.5), 0.9) for each in (few, exact))
        if box is not None
    ]
    assert sides[0] == pytest.approx(sides[1], abs=0.15)


def test_the_square_is_the_smallest_that_holds_the_share() -> None:
    values = torch.rand(20, 30, generator=torch.Generator().manual_seed(0))
    x0, y0, x1, y1 = square_holding(values, (0.5, 0.4), 0.3) or (0, 0, 0, 0)
    assert ((x0 + x1) / 2, (y0 + y1) / 2) == pytest.approx((0.5, 0.4))
    half = round((x1 - x0) * 30) // 2
    assert (y1 - y0) * 20 == pytest.approx((x1 - x0) * 30)

    def held(each: int) -> float:
        return float(values[8 - each : 8 + each, 15 - each : 15 + each].sum() / values.sum())

    assert held(half - 1) < 0.3 <= held(half)


def test_a_square_at_the_border_is_cut_and_one_of_nothing_is_none() -> None:
    values = torch.zeros(10, 10)
    assert square_holding(values, (0.5, 0.5), 0.9) is None
    values[0, 0] = 1.0
    assert square_holding(values, (0.15, 0.05), 0.9) == pytest.approx((0.0, 0.0, 0.3, 0.2))


def test_the_reach_holds_the_cell_and_lies_in_the_image(run: Run) -> None:
    for record in run.prototypes:
        reach = prototype_reach(run, record)
        assert reach is not None
        x0, y0, x1, y1 = run.cases.look_up([record.index])[record.index].cell
        middle = ((x0 + x1) / 2, (y0 + y1) / 2)
        assert reach[0] < middle[0] < reach[2] and reach[1] < middle[1] < reach[3]
        assert min(reach) >= 0 and max(reach) <= 1
        assert reach == prototype_reach(run, record)  # random directions, the same each time
