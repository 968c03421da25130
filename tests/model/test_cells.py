"""Cells of a map that touch the annotation, against a loop over their pixels."""

import math

import pytest
import torch

from protopyramid.model.cells import touching_cells


def test_one_pixel_of_annotation_is_enough_to_touch():
    mask = torch.zeros(1, 16, 16)
    mask[0, 7, 8] = 1.0
    cells = touching_cells(mask, 4, 4)
    assert cells.shape == (1, 4, 4)
    assert cells.nonzero()[:, 1:].tolist() == [[1, 2]]


@pytest.mark.parametrize(("height", "width"), [(4, 4), (3, 5), (12, 10), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_cells_touch_where_any_of_their_pixels_is_inside(height, width, dtype):
    masks = (torch.rand(3, 12, 10) > 0.9).to(dtype)
    cells = touching_cells(masks, height, width)
    assert cells.dtype == torch.bool
    for i in range(3):
        for y in range(height):
            for x in range(width):
                rows = slice(math.floor(y * 12 / height), math.ceil((y + 1) * 12 / height))
                columns = slice(math.floor(x * 10 / width), math.ceil((x + 1) * 10 / width))
                assert cells[i, y, x].item() == bool(masks[i, rows, columns].any())
