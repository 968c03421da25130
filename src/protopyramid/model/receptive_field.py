"""Receptive fields: which pixels a cell of the maps z can depend on, computed from the layers.

Along each axis, an interval of cells is followed back through convolutions and pools, and through the
pyramid's top-down path, whose coarser levels bring in pixels that are far from the cell. This is the
theoretical field: no pixel outside it has any influence, those near its border have very little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from protopyramid.model.activation import Box
from protopyramid.model.necks import COARSEST, AddOn, NoNeck, Pyramid
from protopyramid.model.network import PrototypeNetwork

Interval = tuple[int, int]  # the first and the last cell
AXES = (0, 1)  # rows, columns
# Layers that treat every cell alike: they do not widen the field. (Batch norm in evaluation mode.)
POINTWISE = (nn.ReLU, nn.Sigmoid, nn.Identity, nn.BatchNorm2d, nn.Dropout, nn.Dropout2d)


@dataclass(frozen=True)
class Window:
    """A convolution or pool along one axis."""

    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    def outputs(self, inputs: int) -> int:
        """The number of cells that come out of `inputs` cells."""
        return (
            inputs + 2 * self.padding - self.dilation * (self.kernel - 1) - 1
        ) // self.stride + 1

    def inputs(self, cells: Interval, size: int) -> Interval:
        """The input cells, of `size`, that an interval of output cells depends on."""
        first = cells[0] * self.stride - self.padding
        last = cells[1] * self.stride - self.padding + self.dilation * (self.kernel - 1)
        return max(first, 0), min(last, size - 1)


def receptive_field(
    model: PrototypeNetwork, level: int, row: int, col: int, height: int, width: int
) -> Box | None:
    """The part of an image (height, width) that the cell (row, col) of z can depend on.

    Fractions x0, y0, x1, y1 of the image: the smallest box around all such pixels, cut at the border.
    None where the layers of the backbone are not known (timm).
    """
    fields = []
    for axis, cell, size in zip(AXES, (row, col), (height, width), strict=True):
        found = _pixels(model, level, cell, size, axis)
        if found is None:
            return None
        fields.append((found[0] / size, (found[1] + 1) / size))
    (y0, y1), (x0, x1) = fields
    return x0, y0, x1, y1


def windows(layers: Iterable[nn.Module], axis: int) -> list[Window]:
    """The layers of a chain that widen the field, along one axis."""
    found = []
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d):
            dilation = getattr(layer, "dilation", 1)
            sides = (layer.kernel_size, layer.stride, layer.padding, dilation)
            found.append(Window(*(_along(side, axis) for side in sides)))
        elif not isinstance(layer, POINTWISE):
            raise TypeError(f"the receptive field of {type(layer).__name__} is not known")
    return found


def follow_back(chain: Sequence[Window], cells: Interval, size: int) -> Interval:
    """The cells at the start of a chain, of `size`, that an interval at its end depends on."""
    sizes = [size]
    for window in chain:
        sizes.append(window.outputs(sizes[-1]))
    for window, inputs in zip(reversed(chain), reversed(sizes[:-1]), strict=True):
        cells = window.inputs(cells, inputs)
    return cells


def upsampled_from(cells: Interval, coarse: int, fine: int, bilinear: bool) -> Interval:
    """The cells of a map of size `coarse` that an interval is made of when it is resized to `fine`.

    >>> upsampled_from((2, 3), 4, 8, bilinear=False), upsampled_from((2, 3), 4, 8, bilinear=True)
    ((1, 1), (0, 2))
    """
    if coarse == fine:
        return cells
    if not bilinear:
        return cells[0] * coarse // fine, cells[1] * coarse // fine
    first, last = ((cell + 0.5) * coarse / fine - 0.5 for cell in cells)
    return max(math.floor(first), 0), min(math.ceil(last), coarse - 1)


def _pixels(
    model: PrototypeNetwork, level: int, cell: int, size: int, axis: int
) -> Interval | None:
    """The pixels along one axis of an image of `size` that a cell of z depends on."""
    chains = {}
    for each in model.neck.inputs:
        layers = model.backbone.layers(each)
        if layers is None:
            return None
        chains[each] = windows(layers, axis)
    sizes = {each: _size_after(chain, size) for each, chain in chains.items()}
    reached = _backbone_cells(model.neck, sizes, level, (cell, cell), axis)
    fields = [follow_back(chains[each], cells, size) for each, cells in reached.items()]
    return min(first for first, _ in fields), max(last for _, last in fields)


def _backbone_cells(
    neck: Any, sizes: dict[int, int], level: int, cells: Interval, axis: int
) -> dict[int, Interval]:
    """The cells of each backbone map that an interval of z depends on; sizes {level: cells}."""
    if isinstance(neck, AddOn):
        return {level: follow_back(windows(neck.layers, axis), cells, sizes[level])}
    if isinstance(neck, NoNeck):
        return {level: cells}
    if not isinstance(neck, Pyramid):
        raise TypeError(f"the receptive field of {type(neck).__name__} is not known")
    found: dict[int, Interval] = {}
    while True:
        chain = windows([neck.lateral[str(level)]], axis)
        if level == COARSEST:
            return {**found, level: follow_back(chain, cells, sizes[level])}
        cells = follow_back(windows([neck.smooth[str(level)]], axis), cells, sizes[level])
        found[level] = follow_back(chain, cells, sizes[level])
        if neck.top_down == 0:
            return found
        bilinear = neck.upsample != "nearest"
        cells = upsampled_from(cells, sizes[level + 1], sizes[level], bilinear)
        level += 1


def _size_after(chain: Sequence[Window], size: int) -> int:
    for window in chain:
        size = window.outputs(size)
    return size


def _along(side: Any, axis: int) -> int:
    """A layer's setting along one axis; one number stands for both."""
    return int(side[axis] if isinstance(side, tuple) else side)
