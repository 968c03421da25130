"""Every test of the model draws the same random numbers, whichever tests ran before it."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
