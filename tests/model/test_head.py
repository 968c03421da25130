"""The head: logits = W scores, and its first weights."""

import torch

from protopyramid.config.schema import HeadConfig
from protopyramid.model.head import build_head, first_weights

CLASSES = torch.tensor([0, 2, 2, 1])


def test_first_weights_are_own_and_other_times_the_scale():
    weights = first_weights(CLASSES, 3, HeadConfig(own=1.0, other=-0.25, scale=4.0))
    for row in range(3):
        for column, owner in enumerate([0, 2, 2, 1]):
            assert weights[row, column].item() == (4.0 if owner == row else -1.0)


def test_default_first_weights_are_one_and_minus_one_half():
    assert first_weights(torch.tensor([1]), 2, HeadConfig()).tolist() == [[-0.5], [1.0]]


def test_the_head_has_no_bias_and_starts_with_the_first_weights():
    head = build_head(CLASSES, 4, 3, HeadConfig())
    assert head.bias is None
    assert torch.equal(head.weight, first_weights(CLASSES, 3, HeadConfig()))
    scores = torch.randn(2, 4)
    expected = [
        [sum(head.weight[c, j].item() * scores[i, j].item() for j in range(4)) for c in range(3)]
        for i in range(2)
    ]
    torch.testing.assert_close(head(scores), torch.tensor(expected))
    assert torch.equal(head(torch.zeros(1, 4)), torch.zeros(1, 3))


def test_without_prototypes_the_first_weights_are_random():
    head = build_head(None, 4, 3, HeadConfig())
    assert head.bias is None
    assert head.weight.unique().numel() == 12
