"""Saliency for comparison: Grad-CAM and Grad-CAM++ of any preset, at the backbone's last map.

Both look at c5, the output of the backbone's last block. The network is cut there: the backbone runs
once without gradients, and only what follows it is differentiated. Hooks, where captum needs them, are
set on a throwaway module, never on the model.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from protopyramid.model.activation import activation_maps
from protopyramid.model.backbones import IMAGE
from protopyramid.model.necks import COARSEST
from protopyramid.model.network import PrototypeNetwork

Saliency = Callable[[PrototypeNetwork, Tensor, Tensor], Tensor]


class AfterBackbone(nn.Module):
    """The network from c5 on, with the finer maps held fixed: c5 (B, channels, H, W) -> logits (B, C)."""

    def __init__(self, model: PrototypeNetwork, maps: dict[int, Tensor]) -> None:
        super().__init__()
        self.top = nn.Identity()
        self._finer = {level: values for level, values in maps.items() if level != COARSEST}
        self._model = [model]  # in a list: the model is used here, not owned

    def forward(self, c5: Tensor) -> Tensor:
        maps = {**self._finer, COARSEST: self.top(c5)}
        model = self._model[0]
        return model.evidence_from_pyramid(model.pyramid_from_maps(maps)).logits


def grad_cam(model: PrototypeNetwork, images: Tensor, targets: Tensor) -> Tensor:
    """Grad-CAM (Selvaraju 2017) by captum: relu(sum_k mean(dy/dA_k) A_k), upsampled to the image.

    images (B, 3, S, S) normalised, targets (B,) class numbers -> (B, S, S), not negative.
    """
    from captum.attr import LayerGradCam

    c5, tail = _cut(model, images)
    maps = LayerGradCam(tail, tail.top).attribute(c5, targets, relu_attributions=True)
    return activation_maps(maps.detach(), *images.shape[-2:])[:, 0]


def grad_cam_plus_plus(model: PrototypeNetwork, images: Tensor, targets: Tensor) -> Tensor:
    """Grad-CAM++ (Chattopadhay 2018), upsampled to the image.

    images (B, 3, S, S) normalised, targets (B,) class numbers -> (B, S, S), not negative.
    """
    c5, tail = _cut(model, images)
    c5.requires_grad_(True)
    with torch.enable_grad():
        chosen = tail(c5).gather(1, targets.to(c5.device)[:, None]).sum()
        (gradient,) = torch.autograd.grad(chosen, c5)
    maps = plus_plus_map(c5.detach(), gradient)[:, None]
    return activation_maps(maps, *images.shape[-2:])[:, 0]


def plus_plus_map(values: Tensor, gradient: Tensor) -> Tensor:
    """Grad-CAM++ of a layer: values A and gradient g of the score, (B, K, H, W) each -> (B, H, W).

    alpha = g^2 / (2 g^2 + g^3 sum A) (equation 19 of its paper), scaled to sum to 1 over the places with
    g > 0, as in its authors' code; weight_k = sum alpha relu(g); map = relu(sum_k weight_k A_k). Where
    g is one positive number throughout each channel, this is Grad-CAM.
    """
    total = values.sum((-2, -1), keepdim=True)
    divisor = 2 + gradient * total  # numerator and denominator divided by g^2
    alpha = torch.where(divisor.abs() > 1e-12, 1 / divisor, 0.0)
    alpha = torch.where(gradient > 0, alpha, 0.0)
    whole = alpha.sum((-2, -1), keepdim=True)
    alpha = torch.where(whole > 0, alpha / whole, 0.0)
    weights = (alpha * gradient.relu()).sum((-2, -1), keepdim=True)
    return F.relu((weights * values).sum(1))


METHODS: dict[str, Saliency] = {"Grad-CAM": grad_cam, "Grad-CAM++": grad_cam_plus_plus}


def _cut(model: PrototypeNetwork, images: Tensor) -> tuple[Tensor, AfterBackbone]:
    """c5 as a leaf of its own, and the network after it."""
    model.eval()
    with torch.no_grad():
        maps = model.backbone.advance({IMAGE: images}, model.neck.inputs)
    tail = AfterBackbone(model, maps).eval()
    return maps[COARSEST].detach().clone(), tail
