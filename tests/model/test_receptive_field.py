"""Receptive fields from the layers, against the gradients of small random networks."""

import pytest
import torch
from torch import nn

from protopyramid.model.backbones import VGG16, Backbone
from protopyramid.model.head import linear_head
from protopyramid.model.necks import AddOn, NoNeck, Pyramid
from protopyramid.model.network import PrototypeNetwork
from protopyramid.model.prototypes import PrototypeLayer
from protopyramid.model.receptive_field import Window, receptive_field, windows


def network(neck: str, upsample: str = "nearest", padding: str = "zeros") -> PrototypeNetwork:
    """A network in which every pixel of a field has its say: no ReLU closes, every pool averages."""
    backbone = VGG16(width=0.03, padding=padding)
    for number, layer in enumerate(backbone.features):
        if isinstance(layer, nn.MaxPool2d):
            backbone.features[number] = nn.AvgPool2d(layer.kernel_size, layer.stride)
        elif isinstance(layer, nn.ReLU):
            backbone.features[number] = nn.Identity()
    if neck == "pyramid":
        made = Pyramid(backbone.channels, 3, 2, upsample, padding)
    else:
        made = AddOn(backbone.channels, 3)
        made.layers[1] = nn.Identity()
    prototypes = PrototypeLayer([0], [5], 3)
    return PrototypeNetwork(backbone, made, prototypes, linear_head(1, 1)).double().eval()


def gradient_box(model: PrototypeNetwork, level: int, row: int, col: int, height: int, width: int):
    """The box around all pixels on which a cell's values have a gradient."""
    images = torch.rand(1, 3, height, width, dtype=torch.double, requires_grad=True)
    z = model.pyramid(images)[level]
    (gradient,) = torch.autograd.grad(z[0, :, row, col].sum(), images)
    touched = gradient[0].abs().sum(0) > 0
    rows, columns = touched.any(1).nonzero().flatten(), touched.any(0).nonzero().flatten()
    return (
        columns[0].item() / width,
        rows[0].item() / height,
        (columns[-1].item() + 1) / width,
        (rows[-1].item() + 1) / height,
    )


@pytest.mark.parametrize(("upsample", "padding"), [("nearest", "zeros"), ("bilinear", "replicate")])
@pytest.mark.parametrize(
    ("level", "row", "col"),
    [(5, 0, 0), (5, 20, 10), (4, 29, 3), (3, 40, 30), (2, 0, 63), (2, 64, 5)],
)
def test_the_field_of_a_pyramid_cell_is_where_its_gradient_is(level, row, col, upsample, padding):
    model = network("pyramid", upsample, padding)
    height, width = 480, 416  # larger than any field, so that not only borders are compared
    found = receptive_field(model, level, row, col, height, width)
    assert found == pytest.approx(gradient_box(model, level, row, col, height, width), abs=1e-9)


@pytest.mark.parametrize(("row", "col"), [(0, 0), (6, 9), (12, 24)])
def test_the_field_of_an_add_on_cell_is_where_its_gradient_is(row, col):
    model = network("add-on")
    found = receptive_field(model, 5, row, col, 320, 400)
    assert found == pytest.approx(gradient_box(model, 5, row, col, 320, 400), abs=1e-9)


def test_the_published_field_of_vgg16_is_196_pixels():
    backbone = VGG16(width=0.03)
    model = PrototypeNetwork(backbone, NoNeck(), None, linear_head(backbone.channels[5], 2))
    x0, y0, x1, y1 = receptive_field(model, 5, 20, 20, 640, 640)
    assert round((x1 - x0) * 640) == round((y1 - y0) * 640) == 196


def test_the_top_down_path_makes_fine_cells_depend_on_more_than_coarse_ones():
    model = network("pyramid")
    fields = [receptive_field(model, level, 20 * 2**power, 20 * 2**power, 640, 640)
              for level, power in ((5, 0), (4, 0), (3, 1), (2, 2))]  # fmt: skip
    sides = [box[2] - box[0] for box in fields]
    assert sides == sorted(sides) and sides[0] < sides[-1]


def test_a_backbone_that_is_not_a_chain_has_no_known_field():
    class Unknown(VGG16):
        layers = Backbone.layers

    backbone = Unknown(width=0.03)
    model = PrototypeNetwork(backbone, NoNeck(), None, linear_head(backbone.channels[5], 2))
    assert receptive_field(model, 5, 0, 0, 64, 64) is None


def test_layers_that_are_not_known_are_refused_and_not_guessed():
    assert windows([nn.Conv2d(1, 1, (3, 5), padding=(1, 2)), nn.ReLU()], 1) == [Window(5, 1, 2)]
    with pytest.raises(TypeError, match="Softmax"):
        windows([nn.Softmax(dim=1)], 0)
