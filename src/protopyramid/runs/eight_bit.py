"""Weights with 8 bits: a scale per output channel, restored to float when a model is loaded.

Only the matrices of backbone and neck are stored this way; they are nearly all of a model. Prototypes, head,
biases and norms stay as they are, so that a prototype is still the very vector that was projected and a
contribution is still score times weight, exactly.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from protopyramid.errors import UserError

PARTS = ("backbone.", "neck.")
SCALE = ".scale"  # of the name of a tensor: the scales of its output channels
LARGEST = 127


def to_eight_bits(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a model with int8 weights (n, ...), each beside its scales (n,).

    w is stored as round(w / scale) with scale = max |w| / 127 over each output channel.
    """
    packed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if not _shrinks(name, tensor):
            packed[name] = tensor
            continue
        scales = tensor.float().flatten(1).abs().amax(1) / LARGEST
        steps = tensor.float() / _along(scales.clamp(min=torch.finfo(torch.float32).tiny), tensor)
        packed[name] = steps.round().clamp(-LARGEST, LARGEST).to(torch.int8)
        packed[name + SCALE] = scales
    return packed


def to_floats(tensors: Mapping[str, Tensor], place: str = "") -> dict[str, Tensor]:
    """The tensors of a model with all weights as float32; those of full precision are left as they are."""
    restored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(SCALE) and name.removesuffix(SCALE) in tensors:
            continue
        if tensor.dtype == torch.int8:
            scales = tensors.get(name + SCALE)
            if scales is None or scales.shape != tensor.shape[:1]:
                raise UserError(f"{place}: {name} has no scales; the file is damaged")
            tensor = tensor.float() * _along(scales.float(), tensor)
        restored[name] = tensor
    return restored


def _shrinks(name: str, tensor: Tensor) -> bool:
    return name.startswith(PARTS) and tensor.dim() >= 2 and tensor.is_floating_point()


def _along(scales: Tensor, tensor: Tensor) -> Tensor:
    """Scales (n,) in the shape that multiplies a tensor (n, ...)."""
    return scales.reshape(-1, *([1] * (tensor.dim() - 1)))
