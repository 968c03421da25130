"""The head: logits = W scores, and its initial weights."""

import torch

from protopyramid.config.schema import HeadConfig
from protopyramid.model.build import initial_head_weights
from protopyramid.model.head import initial_weights, linear_head

CLASSES = torch.tensor([0, 2, 2, 1])


def test_initial_weights_are_own_and_other_times_the_scale():
    weights = initial_weights(CLASSES, 3, own=1.0, other=-0.25, scale=4.0)
    for row in range(3):
        for column, owner in enumerate([0, 2, 2, 1]):
            assert weights[row, column].item() == (4.0 if owner == row else -1.0)


def test_default_initial_weights_are_one_and_minus_one_half():
    assert initial_weights(torch.tensor([1]), 2).tolist() == [[-0.5], [1.0]]
    assert initial_head_weights(torch.tensor([1]), 2, HeadConfig()).tolist() == [[-0.5], [1.0]]


def test_the_configuration_gives_own_other_and_scale():
    settings = HeadConfig(own=3.0, other=-2.0, scale=0.5)
    assert initial_head_weights(torch.tensor([1]), 2, settings).tolist() == [[-1.0], [1.5]]


def test_the_head_has_no_bias_and_starts_with_the_given_weights():
    weights = initial_weights(CLASSES, 3)
    head = linear_head(4, 3, weights)
    assert head.bias is None
    assert torch.equal(head.weight, weights)
    scores = torch.randn(2, 4)
    expected = [
        [sum(head.weight[c, j].item() * scores[i, j].item() for j in range(4)) for c in range(3)]
        for i in range(2)
    ]
    torch.testing.assert_close(head(scores), torch.tensor(expected))
    assert torch.equal(head(torch.zeros(1, 4)), torch.zeros(1, 3))


def test_without_weights_the_head_starts_random():
    head = linear_head(4, 3)
    assert head.bias is None
    assert head.weight.unique().numel() == 12
