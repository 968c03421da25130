"""The L1 penalty against a loop over classes and prototypes."""

import torch

from protopyramid.losses import l1

CLASSES = torch.tensor([0, 0, 1, 2])


def naive(weight):
    total = weight.new_zeros(())
    for row in range(weight.shape[0]):
        for column, owner in enumerate(CLASSES.tolist()):
            if owner != row:
                total = total + weight[row, column].abs()
    return total


def test_loss_and_gradient_equal_a_loop():
    drawn = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    fast, slow = drawn.clone().requires_grad_(), drawn.clone().requires_grad_()
    ours, theirs = l1(fast, CLASSES), naive(slow)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(fast.grad, slow.grad)


def test_own_class_weights_are_free():
    weight = torch.zeros(3, 4)
    weight[CLASSES, torch.arange(4)] = 5.0
    assert l1(weight, CLASSES).item() == 0.0


def test_gradient_passes_gradcheck():
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: l1(w, CLASSES), (weight,))
