"""Grad-CAM and Grad-CAM++: against hand-computed maps, against each other, and without traces."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from protopyramid.explanations.saliency import METHODS, grad_cam, grad_cam_plus_plus, plus_plus_map
from protopyramid.runs.run import Run

SYSTEMS = ["fpn-iaia-bl", "iaia-bl", "protopnet", "vgg16"]
LAST_POOL = {"model.backbone.last_pool": True}
HIDDEN = {"model.pooling.kind": "flatten", "model.head.hidden": [16, 16], "model.head.dropout": 0.5}


@pytest.fixture(scope="module", params=[*SYSTEMS, "pooled", "hidden"])
def any_run(request: pytest.FixtureRequest, make_run: Callable[..., Run]) -> Run:
    """A run of each system, of one that keeps VGG-16's last pool, and of VGG-16 with its classifier."""
    if request.param == "pooled":
        return make_run("protopnet", **LAST_POOL)
    if request.param == "hidden":
        return make_run("vgg16", **LAST_POOL, **HIDDEN)
    return make_run(request.param)


def some_images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def by_hooks(model: nn.Module, images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Values and gradient of the backbone's last layer, taken by hooks during a whole pass."""
    kept: list[Tensor] = []
    layer = list(model.backbone.features)[-1]
    handle = layer.register_forward_hook(lambda *a: (a[2].retain_grad(), kept.append(a[2]))[0])
    model(images.requires_grad_(True)).logits.gather(1, targets[:, None]).sum().backward()
    handle.remove()
    return kept[0].detach(), kept[0].grad


@pytest.mark.parametrize("method", METHODS.values())
def test_maps_have_the_size_of_the_image_and_are_not_negative(any_run: Run, method) -> None:
    maps = method(any_run.model, some_images(), torch.tensor([0, 2]))
    assert maps.shape == (2, 64, 64)
    assert maps.min() >= 0 and torch.isfinite(maps).all() and not maps.requires_grad


def test_grad_cam_is_the_hooked_gradient_s_mean_times_the_values(any_run: Run) -> None:
    targets = torch.tensor([1, 0])
    values, gradient = by_hooks(any_run.model, some_images(), targets)
    expected = (gradient.mean((2, 3), keepdim=True) * values).sum(1).relu()
    found = grad_cam(any_run.model, some_images(), targets)
    expected = nn.functional.interpolate(expected[:, None], size=(64, 64), mode="bilinear")[:, 0]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-4)


def test_plus_plus_of_a_hand_computed_layer() -> None:
    # One channel, A = [1 3], g = [1 2]: alpha = 1/(2 + g sum A) = 1/6, 1/10; normalised 5/8, 3/8;
    # weight = 5/8 * 1 + 3/8 * 2 = 11/8; map = 11/8 * A.
    values = torch.tensor([1.0, 3.0]).view(1, 1, 1, 2)
    gradient = torch.tensor([1.0, 2.0]).view(1, 1, 1, 2)
    torch.testing.assert_close(plus_plus_map(values, gradient), torch.tensor([[[11 / 8, 33 / 8]]]))


def test_plus_plus_leaves_out_places_that_speak_against_the_class() -> None:
    values = torch.tensor([1.0, 3.0]).view(1, 1, 1, 2)
    gradient = torch.tensor([-1.0, 2.0]).view(1, 1, 1, 2)
    torch.testing.assert_close(plus_plus_map(values, gradient), torch.tensor([[[2.0, 6.0]]]))


def test_plus_plus_is_grad_cam_where_gradients_are_constant_and_positive(black_box: Run) -> None:
    model = black_box.model
    with torch.no_grad():
        saved = model.head.weight.clone()
        model.head.weight.abs_()  # global average pooling: g = w / HW, the same everywhere
    try:
        targets = torch.tensor([0, 3])
        first = grad_cam(model, some_images(), targets)
        second = grad_cam_plus_plus(model, some_images(), targets)
    finally:
        with torch.no_grad():
            model.head.weight.copy_(saved)
    torch.testing.assert_close(first, second, atol=1e-6, rtol=1e-4)


def test_zero_gradient_and_zero_values_give_an_empty_map() -> None:
    nothing = torch.zeros(1, 2, 3, 3)
    assert plus_plus_map(nothing, torch.ones(1, 2, 3, 3)).abs().max() == 0
    assert plus_plus_map(torch.ones(1, 2, 3, 3), nothing).abs().max() == 0


@pytest.mark.parametrize("method", METHODS.values())
def test_nothing_is_left_behind(run: Run, method) -> None:
    model = run.model

    def traces() -> tuple[int, int, int]:
        gc.collect()
        hooks = sum(
            len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
            for m in model.modules()
        )
        gradients = sum(parameter.grad is not None for parameter in model.parameters())
        tensors = sum(isinstance(each, Tensor) for each in gc.get_objects())
        return hooks, gradients, tensors

    method(model, some_images(), torch.tensor([0, 1]))
    model.zero_grad(set_to_none=True)
    before = traces()
    for _ in range(3):
        method(model, some_images(), torch.tensor([0, 1]))
    assert traces() == before
    assert before[0] == 0 and before[1] == 0


def test_the_model_keeps_its_place_in_module_trees(run: Run) -> None:
    names = [name for name, _ in run.model.named_modules()]
    grad_cam(run.model, some_images(1), torch.tensor([0]))
    assert [name for name, _ in run.model.named_modules()] == names
