"""Growth curves: the right number of prototypes and classes at every point, and honest orders."""

import json
import math

import pytest
import torch

from protopyramid.benchmarks.growth import (
    Curve,
    Growth,
    all_curves,
    classes_of_ten,
    draw,
    spread_prototypes,
)
from protopyramid.benchmarks.report import write_curves
from protopyramid.benchmarks.settings import TrainingStep, fetched_images, fresh_model, train_steps
from protopyramid.config import load_config
from protopyramid.config.schema import prototype_counts


@pytest.mark.parametrize("m", [10, 40, 160, 2000])
def test_prototypes_are_spread_over_all_classes_and_levels(m):
    names = load_config("fpn-iaia-bl").data.classes
    counts = prototype_counts(load_config("fpn-iaia-bl", spread_prototypes(names, m)))
    assert sum(n for by_level in counts.values() for n in by_level.values()) == m
    per_level = [sum(by_level[level] for by_level in counts.values()) for level in (2, 3, 4, 5)]
    per_class = [sum(by_level.values()) for by_level in counts.values()]
    assert min(per_level) > 0 and max(per_level) - min(per_level) <= 2
    assert max(per_class) - min(per_class) <= 1


def test_the_largest_point_of_classes_is_that_of_cub():
    config = load_config("fpn-iaia-bl", classes_of_ten(Growth().classes[-1]))
    counts = prototype_counts(config)
    assert len(counts) == 200
    assert all(sum(by_level.values()) == 10 for by_level in counts.values())


def test_a_model_of_the_size_of_cub_learns(tiny):
    """200 classes x 10 prototypes: a batch of all losses is finite and gets easier."""
    config = tiny.config(**classes_of_ten(200))
    model = fresh_model(config)
    assert model.head.weight.shape == (200, 2000)
    step = TrainingStep(config, model, list(train_steps(config))[-1])
    batch, labels = fetched_images(config, 4), torch.tensor([0, 50, 100, 199])
    losses = [step(batch, labels) for _ in range(6)]
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0]


def test_the_fitted_order_is_the_slope_over_all_points():
    curve = Curve("w", "v", (1, 2, 4, 8), tuple(3.0 * x**1.5 for x in (1, 2, 4, 8)), 2.0, "")
    assert curve.fitted == pytest.approx(1.5)
    # The last step is flat, the growth before it is not: it counts too.
    bent = Curve("w", "v", (1, 10, 100, 101), (1.0, 1e2, 1e4, 1e4), 1.0, "")
    assert bent.measured == 0.0 and bent.fitted > 1.9 and not bent.met


@pytest.mark.parametrize(("order", "met"), [(1.0, True), (1.1, True), (1.5, False)])
def test_the_measured_order_is_that_of_the_last_two_points(order, met):
    values = (1, 10, 100)
    curve = Curve("w", "v", values, (1.0, 1.0, 10.0**order), 1.0, "")
    assert curve.measured == pytest.approx(order)
    assert curve.met is met


def test_every_work_has_its_curves_with_a_plot_for_each_variable(tiny_growth, tmp_path):
    curves = list(all_curves(tiny_growth))
    found = {(curve.work, curve.variable) for curve in curves}
    for work in ("forward", "training step"):
        assert {(work, v) for v in ("prototypes", "classes", "image side")} <= found
    for work in ("projection search", "head fit"):
        assert {(work, v) for v in ("prototypes", "classes", "images")} <= found
    assert ("projection search", "image side") in found
    assert all(len(c.values) == len(c.seconds) >= 2 and min(c.seconds) > 0 for c in curves)
    pictures = draw(curves, tmp_path)
    assert {p.name for p in pictures} == {
        f"growth-{name}.png" for name in ("prototypes", "classes", "image-side", "images")
    }
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in pictures)
    content = json.loads(write_curves(curves, 1.0, None, tmp_path / "growth.json").read_text())
    assert len(content["curves"]) == len(curves)
