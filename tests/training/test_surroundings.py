"""Windows of images in the surroundings of others: where they lie, and what is exchanged."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protopyramid.config import load_config
from protopyramid.losses import build_objective
from protopyramid.model.build import build_model
from protopyramid.training.surroundings import (
    in_other_surroundings,
    mix,
    strongest_windows,
    windows_around,
)

SMALL = {
    "model.backbone.width": 0.125,
    "model.neck.dim": 8,
    "data.image_size": 64,
    "model.neck.top_down": 0.0,
}


@given(
    size=st.tuples(st.integers(1, 15), st.integers(1, 15)),
    place=st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)),
    share=st.floats(0.01, 1.0),
)
def test_a_window_has_its_share_holds_its_cell_and_stays_inside(size, place, share):
    height, width = size
    row, column = int(place[0] * height), int(place[1] * width)
    windows = windows_around(torch.tensor([row]), torch.tensor([column]), height, width, share)
    whole, inner = windows.whole[0], windows.inner[0]
    sides = [max(1, round(share**0.5 * n)) for n in size]
    assert whole[row, column]
    assert whole.sum().item() == sides[0] * sides[1]
    rows, columns = whole.any(1).nonzero().flatten(), whole.any(0).nonzero().flatten()
    assert len(rows) == rows[-1] - rows[0] + 1 == sides[0]
    assert len(columns) == columns[-1] - columns[0] + 1 == sides[1]
    assert not (inner & ~whole).any()


def test_inner_cells_are_a_cell_away_from_what_is_exchanged():
    windows = windows_around(torch.tensor([5, 0]), torch.tensor([5, 5]), 10, 10, 0.25)
    for whole, inner in zip(windows.whole, windows.inner, strict=True):
        for y in range(10):
            for x in range(10):
                near = [
                    whole[v, u]
                    for v in range(max(0, y - 1), min(10, y + 2))
                    for u in range(max(0, x - 1), min(10, x + 2))
                ]
                assert bool(inner[y, x]) == all(near)


def test_the_next_image_of_the_batch_surrounds_the_window_at_every_resolution():
    images = torch.rand(3, 2, 8, 8)
    windows = torch.zeros(3, 4, 4, dtype=torch.bool)
    windows[:, 1:3, 0:2] = True
    mixed = mix(images, windows)
    for i in range(3):
        for y in range(8):
            for x in range(8):
                source = i if windows[i, y // 2, x // 2] else (i - 1) % 3
                assert torch.equal(mixed[i, :, y, x], images[source, :, y, x])


def small_model():
    torch.manual_seed(0)
    return build_model(load_config("protopyramid", SMALL)).eval()


def test_windows_lie_around_the_highest_cell_of_the_images_own_class():
    model = small_model()
    evidence = model.forward_once(torch.rand(4, 3, 64, 64))
    labels = torch.tensor([0, 1, 2, 3])
    windows = strongest_windows(evidence, labels, model, 0.05)  # one cell of 4 x 4
    layer = model.prototypes
    for i, label in enumerate(labels.tolist()):
        own = [
            evidence.maps[5][i, number - layer.slices[5].start]
            for number in range(*layer.slices[5].indices(len(layer.classes)))
            if layer.classes[number] == label
        ]
        peak = torch.stack(own).amax(0)
        assert peak[windows.whole[i]].max() == peak.max()


def test_exchanged_surroundings_are_those_of_images_put_together():
    """The same as cutting the pixels: a forward pass of pictures that this test pastes."""
    model = small_model()
    images = torch.rand(2, 3, 64, 64)
    labels = torch.tensor([0, 2])
    with torch.no_grad():
        evidence = model.forward_once(images)
        found = in_other_surroundings(model, {0: images}, evidence, labels, 0.25)
        windows = strongest_windows(evidence, labels, model, 0.25).whole
        pasted = images.flip(0).clone()
        for i in range(2):
            for y in range(64):
                for x in range(64):
                    if windows[i, y // 16, x // 16]:
                        pasted[i, :, y, x] = images[i, :, y, x]
        expected = model.forward_once(pasted)
    for level, maps in expected.maps.items():
        torch.testing.assert_close(found.maps[level], maps)


def test_a_fine_level_that_sees_little_answers_alike_and_a_coarse_one_does_not():
    model = small_model()
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        evidence = model.forward_once(images)
        found = in_other_surroundings(model, {0: images}, evidence, torch.tensor([0, 1]), 0.25)
    changes = {
        level: (found.maps[level] - maps).abs().amax(1)[found.inner[level]]
        for level, maps in evidence.maps.items()
    }
    assert changes[2].numel() and changes[2].max() < 1e-5
    assert changes[5].max() > 1e-4


def test_the_objective_asks_for_surroundings_where_the_context_loss_has_a_weight():
    config = load_config("protopyramid", {**SMALL, "loss.context": 1.0})
    model, objective = build_model(config), build_objective(config)
    evidence = model.forward_once(torch.rand(2, 3, 64, 64))
    labels, masks = torch.tensor([0, 1]), torch.zeros(2, 64, 64)
    annotated = torch.zeros(2, dtype=torch.bool)
    with pytest.raises(ValueError, match="context loss needs"):
        objective(evidence, labels, masks, annotated, model.prototypes)
