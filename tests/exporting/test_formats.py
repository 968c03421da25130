"""The check of an export against torch."""

import math

import pytest
import torch

from protopyramid.exporting.formats import EvidenceModule, largest_difference


@pytest.fixture
def module(new_run):
    run = new_run()
    return EvidenceModule(run.model.eval(), run.config.data), run.config.data.image_size


def changed(module, change):
    def call(images):
        with torch.no_grad():
            outputs = [output.clone() for output in module(images)]
        change(outputs)
        return outputs

    return call


@pytest.mark.parametrize("place", [0, 1, -1])
def test_the_largest_difference_of_any_output_is_found(module, place):
    module, size = module

    def change(outputs):
        outputs[place].flatten()[-1].add_(0.25)

    assert largest_difference(module, changed(module, lambda outputs: None), size) == 0.0
    assert largest_difference(module, changed(module, change), size) == pytest.approx(
        0.25, rel=1e-3
    )


def test_a_nan_and_a_wrong_shape_are_infinite_differences(module):
    module, size = module

    def spoil(outputs):
        outputs[0][0, 0] = math.nan

    def cut(outputs):
        outputs[0] = outputs[0][:, :-1]

    assert largest_difference(module, changed(module, spoil), size) == math.inf
    assert largest_difference(module, changed(module, cut), size) == math.inf
