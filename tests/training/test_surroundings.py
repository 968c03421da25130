"""Windows of images in the surroundings of others: where they lie, and what is exchanged."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from protopyramid.config import load_config
from protopyramid.losses import build_objective
from protopyramid.metrics.faithfulness import fillings, replace_regions
from protopyramid.model.build import build_model
from protopyramid.training import surroundings
from protopyramid.training.surroundings import (
    FILLINGS,
    SURROUNDED,
    Exchange,
    in_other_surroundings,
    replaced,
    strongest_windows,
    well_inside,
    windows_around,
)

SMALL = {
    "model.backbone.width": 0.125,
    "model.neck.dim": 8,
    "data.image_size": 64,
    "model.neck.top_down": 0.0,
}


PLACES = torch.tensor([[0.5], [0.1], [0.97]]), torch.tensor([[0.5], [0.8], [0.03]])


@given(share=st.floats(0.001, 1.0), size=st.integers(4, 60), seed=st.integers(0, 2**32 - 1))
def test_a_window_is_exactly_its_share_of_the_image(share, size, seed):
    windows = windows_around(*PLACES, size, share, seed)
    assert windows.sum((1, 2)).tolist() == [max(1, round(share * size * size))] * 3


def test_windows_have_another_shape_with_every_seed_and_the_same_with_the_same():
    found = [windows_around(*PLACES, 48, 0.25, seed) for seed in range(6)]
    assert torch.equal(found[0], windows_around(*PLACES, 48, 0.25, 0))
    for number, windows in enumerate(found):
        assert not any(torch.equal(windows, other) for other in found[:number])


def test_a_window_lies_around_its_place():
    for seed in range(20):
        for window, row, column in zip(
            windows_around(*PLACES, 48, 0.2, seed), *PLACES, strict=True
        ):
            y, x = torch.meshgrid(torch.arange(48), torch.arange(48), indexing="ij")
            away = ((y + 0.5 - row * 48) ** 2 + (x + 0.5 - column * 48) ** 2).sqrt()
            assert away[window].mean() < 0.75 * away[~window].mean()


def test_a_window_around_several_places_is_what_is_nearest_to_any_of_them(monkeypatch):
    """Even ones: no pixel outside is nearer to its nearest place than a pixel inside, by a loop."""
    monkeypatch.setattr(surroundings, "UNEVEN", 0.0)
    rows, columns = torch.tensor([[0.2, 0.25, 0.8]]), torch.tensor([[0.3, 0.7, 0.5]])
    monkeypatch.setattr(surroundings, "NORMS", (2.0,))
    size = 24
    window = windows_around(rows, columns, size, 0.2, 3)[0]
    nearest = torch.tensor(
        [
            [
                min(
                    math.hypot((y + 0.5) / size - row, (x + 0.5) / size - column)
                    for row, column in zip(rows[0].tolist(), columns[0].tolist(), strict=True)
                )
                for x in range(size)
            ]
            for y in range(size)
        ]
    )
    assert nearest[window].max() <= nearest[~window].min() + 1e-6
    for row, column in zip(rows[0], columns[0], strict=True):
        assert window[int(row * size), int(column * size)]


def test_even_windows_are_the_pixels_nearest_by_one_of_three_norms(monkeypatch):
    """Discs are those of a loop; diamonds and squares are turned, but each is its own mirror image."""
    monkeypatch.setattr(surroundings, "UNEVEN", 0.0)
    size, share = 31, 0.2  # 192 pixels
    middle = torch.tensor([[0.5]])
    distance = {
        (y, x): ((y - 15) ** 2 + (x - 15) ** 2) ** 0.5 for y in range(size) for x in range(size)
    }
    radius = sorted(distance.values())[round(share * size * size) - 1]
    discs = 0
    for seed in range(30):
        window = windows_around(middle, middle, size, share, seed)[0]
        held = {(int(y), int(x)) for y, x in window.nonzero()}
        discs += all(distance[pixel] <= radius for pixel in held)
        mirrored = {(size - 1 - y, size - 1 - x) for y, x in held}
        assert len(held - mirrored) <= 4  # pixels at the same distance as the last
    assert 3 < discs < 20


@given(seed=st.integers(0, 1000), share=st.floats(0.05, 0.95))
def test_cells_well_inside_are_held_whole_with_most_of_their_neighbours(seed, share):
    window = windows_around(torch.tensor([[0.3]]), torch.tensor([[0.6]]), 40, share, seed)
    inner = well_inside(window, 5, 10)[0]
    held = [
        [window[0, 8 * y : 8 * y + 8, 4 * x : 4 * x + 4].float().mean().item() for x in range(10)]
        for y in range(5)
    ]
    for y in range(5):
        for x in range(10):
            near = [
                held[v][u]
                for v in range(max(0, y - 1), min(5, y + 2))
                for u in range(max(0, x - 1), min(10, x + 2))
            ]
            mean = sum(near) / len(near)
            if abs(mean - SURROUNDED) > 1e-6:
                assert bool(inner[y, x]) == (held[y][x] == 1 and mean > SURROUNDED)


@pytest.mark.parametrize("filling", range(FILLINGS))
def test_windows_are_surrounded_as_the_measure_of_faithfulness_replaces_what_is_outside(filling):
    """As `metrics.faithfulness` changes each image by itself, with the next one as the other image."""
    images = torch.rand(3, 3, 32, 32)
    windows = windows_around(*PLACES, 32, 0.25, 5)
    changed = replaced(images, windows, filling)
    for i in range(3):
        filled = fillings(images[i], images[(i - 1) % 3])[filling]
        expected = replace_regions(images[i], filled, ~windows[i : i + 1])[0]
        torch.testing.assert_close(changed[i], expected)


def test_cached_maps_of_frozen_blocks_give_what_the_images_give():
    model = small_model()
    images, labels = torch.rand(2, 3, 64, 64), torch.tensor([0, 2])
    with torch.no_grad():
        evidence = model.forward_once(images)
        cached = model.backbone.advance({0: images}, [0, 2, 3])
        for filling in range(FILLINGS):
            given = (model, {0: images}, evidence, labels, 0.25, Exchange(filling, 7))
            found = in_other_surroundings(given[0], cached, *given[2:])
            expected = in_other_surroundings(*given)
            for level, maps in expected.maps.items():
                torch.testing.assert_close(found.maps[level], maps)


def small_model():
    torch.manual_seed(0)
    return build_model(load_config("protopyramid", SMALL)).eval()


@pytest.mark.parametrize("seed", [0, 1])
def test_windows_lie_around_the_pooled_cells_of_the_strongest_own_prototype(monkeypatch, seed):
    """As a loop finds it, on level 4 with even seeds and on level 5 with odd ones."""
    monkeypatch.setattr(surroundings, "UNEVEN", 0.0)
    model = small_model()
    with torch.no_grad():
        evidence = model.forward_once(torch.rand(4, 3, 64, 64))
    labels = torch.tensor([0, 1, 2, 3])
    layer, level, places = model.prototypes, 4 + seed, []
    for i, label in enumerate(labels.tolist()):
        best, found = -math.inf, []
        for number, one in enumerate(evidence.maps[level][i]):
            if layer.classes[layer.slices[level].start + number] != label:
                continue
            highest = one.flatten().topk(layer.pooled_patches(level, one[None, None]))
            rise = float(highest.values.mean() - one.mean())
            if rise > best:
                best, found = rise, [divmod(int(each), 4) for each in highest.indices]
        places.append(found)
    rows, columns = ((torch.tensor(places) + 0.5) / 4).unbind(-1)
    windows = strongest_windows(evidence, labels, model, 64, 0.25, seed).whole
    assert torch.equal(windows, windows_around(rows, columns, 64, 0.25, seed))


def test_exchanged_surroundings_are_those_of_images_put_together():
    """A forward pass of pictures that the measure of faithfulness pastes, whatever surrounds the windows."""
    model = small_model()
    images = torch.rand(2, 3, 64, 64)
    labels = torch.tensor([0, 2])
    with torch.no_grad():
        evidence = model.forward_once(images)
        for filling in range(FILLINGS):
            exchange = Exchange(filling, seed=filling)
            found = in_other_surroundings(model, {0: images}, evidence, labels, 0.25, exchange)
            outside = ~strongest_windows(evidence, labels, model, 64, 0.25, exchange.seed).whole
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
    torch.manual_seed(0)
    model = build_model(load_config("protopyramid", {**SMALL, "data.image_size": 128})).eval()
    images = torch.rand(2, 3, 128, 128)
    with torch.no_grad():
        evidence = model.forward_once(images)
        found = in_other_surroundings(model, {0: images}, evidence, torch.tensor([0, 1]), 0.4)
    changes = {
        level: (found.maps[level] - maps).abs().amax(1)[found.inner[level]]
        for level, maps in evidence.maps.items()
    }
    assert changes[2].numel() and changes[2].median() < 1e-5
    assert changes[5].median() > 1e-4


def test_the_objective_asks_for_surroundings_where_the_context_loss_has_a_weight():
    config = load_config("protopyramid", {**SMALL, "loss.context": 1.0})
    model, objective = build_model(config), build_objective(config)
    evidence = model.forward_once(torch.rand(2, 3, 64, 64))
    labels, masks = torch.tensor([0, 1]), torch.zeros(2, 64, 64)
    annotated = torch.zeros(2, dtype=torch.bool)
    with pytest.raises(ValueError, match="context loss needs"):
        objective(evidence, labels, masks, annotated, model.prototypes)
