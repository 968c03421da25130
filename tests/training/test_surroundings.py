"""Windows of images in the surroundings of others: where they lie, and what is exchanged."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protopyramid.config import load_config
from protopyramid.losses import build_objective
from protopyramid.metrics.faithfulness import fillings, replace_regions
from protopyramid.model.build import build_model
from protopyramid.training.surroundings import (
    FILLINGS,
    in_other_surroundings,
    replaced,
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


@pytest.mark.parametrize("filling", range(FILLINGS))
def test_windows_are_surrounded_as_the_measure_of_faithfulness_replaces_what_is_outside(filling):
    """As `metrics.faithfulness` changes each image by itself, with the next one as the other image."""
    images = torch.rand(3, 3, 32, 32)
    windows = torch.zeros(3, 4, 4, dtype=torch.bool)
    windows[:, 1:3, 0:2] = True
    windows[1] = windows[1].T.flip(1)
    changed = replaced(images, windows, filling)
    for i in range(3):
        region = windows[i].repeat_interleave(8, 0).repeat_interleave(8, 1)
        filled = fillings(images[i], images[(i - 1) % 3])[filling]
        torch.testing.assert_close(changed[i], replace_regions(images[i], filled, ~region[None])[0])


def test_cached_maps_of_frozen_blocks_give_what_the_images_give():
    model = small_model()
    images, labels = torch.rand(2, 3, 64, 64), torch.tensor([0, 2])
    with torch.no_grad():
        evidence = model.forward_once(images)
        cached = model.backbone.advance({0: images}, [0, 2, 3])
        for filling in range(FILLINGS):
            given = (model, {0: images}, evidence, labels, 0.25, filling)
            found = in_other_surroundings(given[0], cached, *given[2:])
            expected = in_other_surroundings(*given)
            for level, maps in expected.maps.items():
                torch.testing.assert_close(found.maps[level], maps)


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
    """A forward pass of pictures that the measure of faithfulness pastes, whatever surrounds the windows."""
    model = small_model()
    images = torch.rand(2, 3, 64, 64)
    labels = torch.tensor([0, 2])
    with torch.no_grad():
        evidence = model.forward_once(images)
        windows = strongest_windows(evidence, labels, model, 0.25).whole
        outside = ~windows.repeat_interleave(16, 1).repeat_interleave(16, 2)
        for filling in range(FILLINGS):
            found = in_other_surroundings(model, {0: images}, evidence, labels, 0.25, filling)
            pasted = [
                replace_regions(
                    images[i], fillings(images[i], images[1 - i])[filling], outside[i : i + 1]
                )
                for i in range(2)
            ]
            expected = model.forward_once(torch.cat(pasted))
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
