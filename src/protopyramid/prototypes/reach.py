"""How far a prototype reaches: the part of its source image that its patch mostly depends on.

The receptive field of a pyramid's cell is nearly the whole image, but most of it has hardly any influence.
The reach is the smallest square around the cell that holds 90 % of the patch's sensitivity to the pixels.

At its source, a prototype is its own patch, so its similarity is largest there and the gradient of the
similarity is zero. What counts is the next order: moving a pixel lowers the similarity by the square of how
far the patch moves, for the cosine only across its own direction. The sensitivity of a pixel is therefore
the squared length of that movement, estimated with a few random directions (Hutchinson).
"""

from __future__ import annotations

import torch
from torch import Tensor

from protopyramid.inference.batches import device_of, model_input
from protopyramid.model.activation import Box
from protopyramid.model.network import PrototypeNetwork
from protopyramid.prototypes.cases import layer_of
from protopyramid.runs.records import PrototypeRecord
from protopyramid.runs.run import Run

SHARE = 0.9  # of the sensitivity, inside the reach
DIRECTIONS = 4  # random directions: more change the reach by a few pixels only


def prototype_reach(run: Run, record: PrototypeRecord) -> Box | None:
    """The reach of a prototype on its source image, as fractions cut at the border.

    None where the patch depends on no pixel at all, or the run has no picture of the source.
    """
    if not run.cases.has_picture(record.index):
        return None
    source = run.cases.source(record.index)
    image = model_input(source[None], run.config.data, device_of(run.model))
    cell = run.cases.look_up([record.index])[record.index].cell
    found = sensitivity(run.model, image, record.level, record.row, record.col)
    return square_holding(found.cpu(), ((cell[0] + cell[2]) / 2, (cell[1] + cell[3]) / 2), SHARE)


def sensitivity(
    model: PrototypeNetwork,
    image: Tensor,
    level: int,
    row: int,
    col: int,
    directions: int = DIRECTIONS,
) -> Tensor:
    """How far the patch at a cell of z moves, squared, with each pixel of an image.

    image (1, 3, H, W), normalised -> (H, W), up to a common factor. The same image gives the same numbers.
    """
    pixels = image.detach().clone().requires_grad_()
    with torch.enable_grad():
        patch = model.pyramid(pixels)[level][0, :, row, col]
    drawn = torch.randn(directions, len(patch), generator=torch.Generator().manual_seed(0))
    drawn = drawn.to(patch)
    if layer_of(model).similarity.kind == "cosine":  # blind to movement along the patch itself
        own = torch.nn.functional.normalize(patch.detach(), dim=0)
        drawn = drawn - (drawn @ own)[:, None] * own
    total = torch.zeros_like(pixels[0, 0])
    for direction in drawn:
        (gradient,) = torch.autograd.grad(patch @ direction, pixels, retain_graph=True)
        total += gradient[0].square().sum(0)
    return total


def square_holding(values: Tensor, centre: tuple[float, float], share: float) -> Box | None:
    """The smallest square around a point that holds a share of values (H, W), cut at the border.

    centre: x and y as fractions. Pixels count by their centres; None where all values are zero.
    """
    height, width = values.shape
    total = values.double().sum()
    if not total > 0:
        return None
    x, y = centre[0] * width, centre[1] * height
    down = (torch.arange(height) + 0.5 - y).abs()
    across = (torch.arange(width) + 0.5 - x).abs()
    distances = torch.maximum(down[:, None], across[None]).flatten()
    order = distances.argsort()
    held = values.double().flatten()[order].cumsum(0)
    place = int(torch.searchsorted(held, share * total).clamp(max=len(held) - 1))
    half = float(distances[order][place]) + 0.5  # to the outer edge of the last pixel
    return (
        max(x - half, 0.0) / width,
        max(y - half, 0.0) / height,
        min(x + half, width) / width,
        min(y + half, height) / height,
    )
