"""Faithfulness against plain loops, a network of random weights, and a phantom whose evidence is known."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from protopyramid.data.phantoms import make_phantom
from protopyramid.metrics.faithfulness import (
    blurred,
    deletion_and_insertion,
    energy_pointing_game,
    fillings,
    gaussian,
    kept,
    largest_share,
    local_mean,
    median_of_fillings,
    regions_elsewhere,
    removed,
    replace_regions,
    rise,
    rise_left,
    soft_edge,
    top_cells,
)

SIZE = 24


# -- naive twins ---------------------------------------------------------------------------------
def clamped(values, row: int, col: int) -> float:
    height, width = values.shape
    return float(values[min(max(row, 0), height - 1), min(max(col, 0), width - 1)])


def naive_soft(region) -> np.ndarray:
    found = np.zeros(region.shape)
    for row in range(region.shape[0]):
        for col in range(region.shape[1]):
            near = [clamped(region, row + i, col + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
            found[row, col] = sum(near) / 9
    return found


def naive_rise_left(before, after, k: int) -> float:
    cells = [(r, c) for r in range(before.shape[0]) for c in range(before.shape[1])]
    top = sorted(cells, key=lambda cell: -float(before[cell]))[:k]
    mean = sum(float(before[cell]) for cell in cells) / len(cells)
    first = sum(float(before[cell]) for cell in top) / k - mean
    return (sum(float(after[cell]) for cell in top) / k - mean) / first


def naive_removed(map_of, image, filled, region, k: int) -> float:
    weight = naive_soft(region.numpy())
    found = []
    for filling in filled:
        changed = image.clone()
        for channel in range(image.shape[0]):
            for row in range(image.shape[1]):
                for col in range(image.shape[2]):
                    w, at = weight[row, col], (channel, row, col)
                    changed[at] = (1 - w) * image[at] + w * filling[at]
        found.append(naive_rise_left(map_of(image[None])[0], map_of(changed[None])[0], k))
    return statistics.median(found)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Conv2d(6, 1, 3, padding=1)
    ).eval()


def map_of_network(seed: int = 0):
    model = network(seed)

    def map_of(images: Tensor) -> Tensor:
        with torch.inference_mode():
            return model(images)[:, 0]

    return map_of


@pytest.fixture
def image() -> Tensor:
    return torch.rand(1, SIZE, SIZE, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def regions() -> Tensor:
    found = torch.zeros(3, SIZE, SIZE, dtype=torch.bool)
    found[0, 4:12, 6:15] = True
    found[1, :7, 15:] = True  # at the border
    found[2] = torch.rand(SIZE, SIZE, generator=torch.Generator().manual_seed(2)) > 0.6
    return found


# -- the definitions -----------------------------------------------------------------------------
@pytest.mark.parametrize("k", [1, 4, 35])
def test_rise_left_is_that_of_plain_loops(k: int) -> None:
    before, after = torch.rand(2, 5, 7), torch.rand(2, 5, 7)
    assert top_cells(before, k).flatten(1).sum(1).tolist() == [k, k]
    if k == 35:  # all cells: the map has no rise
        assert rise_left(before, after, k).isnan().all()
        return
    expected = [naive_rise_left(a, b, k) for a, b in zip(before, after, strict=True)]
    assert rise_left(before, after, k).tolist() == pytest.approx(expected, rel=1e-5)
    assert rise_left(before, before, k).tolist() == pytest.approx([1, 1])


def test_a_flat_map_has_no_rise_to_keep() -> None:
    flat = torch.full((1, 4, 4), 0.3)
    assert rise_left(flat, torch.rand(1, 4, 4), 2).isnan().all()
    assert rise(flat, top_cells(flat, 2), flat.mean((1, 2))).item() == pytest.approx(0, abs=1e-7)


def test_edges_fade_over_three_pixels_and_complements_add_up(regions: Tensor) -> None:
    for region, soft in zip(regions, soft_edge(regions), strict=True):
        assert soft.numpy() == pytest.approx(naive_soft(region.numpy()), abs=1e-6)
    assert torch.allclose(soft_edge(regions) + soft_edge(~regions), torch.ones(()), atol=1e-6)
    half = torch.zeros(1, 8, 8, dtype=torch.bool)
    half[:, :, 4:] = True
    assert soft_edge(half)[0, 0].tolist() == pytest.approx([0, 0, 0, 1 / 3, 2 / 3, 1, 1, 1])


def test_kept_and_removed_are_those_of_plain_loops(image: Tensor, regions: Tensor) -> None:
    map_of, filled = map_of_network(), fillings(image, torch.rand(1, SIZE, SIZE))
    assert len(filled) == 3
    expected = [naive_removed(map_of, image, filled, region, 3) for region in regions]
    assert removed(map_of, image, filled, regions, 3).tolist() == pytest.approx(expected, abs=1e-4)
    expected = [naive_removed(map_of, image, filled, ~region, 3) for region in regions]
    assert kept(map_of, image, filled, regions, 3).tolist() == pytest.approx(expected, abs=1e-4)


def test_all_of_the_image_keeps_everything_and_nothing_removes_nothing(image: Tensor) -> None:
    whole, map_of = torch.ones(1, SIZE, SIZE, dtype=torch.bool), map_of_network()
    filled = fillings(image, None)
    assert len(filled) == 2
    assert kept(map_of, image, filled, whole, 3).item() == pytest.approx(1)
    assert removed(map_of, image, filled, ~whole, 3).item() == pytest.approx(1)


def test_the_median_of_three_counts() -> None:
    shares = torch.tensor([[0.9, 0.1], [0.2, 0.3], [0.5, 0.2]])
    assert median_of_fillings(shares).tolist() == pytest.approx([0.5, 0.2])
    assert median_of_fillings(shares[:2]).tolist() == pytest.approx([0.55, 0.2])


# -- fillings ------------------------------------------------------------------------------------
def test_blur_is_a_gaussian_of_a_twentieth_of_the_side(image: Tensor) -> None:
    deviation = SIZE / 20
    reach = math.ceil(3 * deviation)
    steps = range(-reach, reach + 1)
    weights = {
        (i, j): math.exp(-(i * i + j * j) / (2 * deviation**2)) for i in steps for j in steps
    }
    values, found = image[0].numpy(), blurred(image)[0]
    for row, col in ((0, 0), (5, 9), (SIZE - 1, 3)):
        total = sum(w * clamped(values, row + i, col + j) for (i, j), w in weights.items())
        assert found[row, col].item() == pytest.approx(total / sum(weights.values()), rel=1e-4)
    assert torch.allclose(gaussian(torch.full((2, 9, 9), 0.4), 2.0), torch.tensor(0.4))


def test_local_mean_is_over_half_of_the_side(image: Tensor) -> None:
    values, found = image[0].numpy(), local_mean(image)[0]
    for row, col in ((0, 0), (12, 12), (3, SIZE - 1)):
        near = [clamped(values, row + i, col + j) for i in range(-6, 7) for j in range(-6, 7)]
        assert found[row, col].item() == pytest.approx(sum(near) / 169, rel=1e-4)


def test_a_replaced_region_leaves_the_rest_as_it_was(image: Tensor, regions: Tensor) -> None:
    changed = replace_regions(image, torch.zeros_like(image), regions[:1])[0, 0]
    assert (changed[5:11, 7:14] == 0).all()
    assert torch.equal(changed[14:], image[0, 14:])


# -- curves and annotations ----------------------------------------------------------------------
@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 1])
def test_the_largest_share_has_exactly_its_pixels(share: float) -> None:
    values = torch.randint(0, 4, (2, 9, 11)).float()  # many ties
    chosen = largest_share(values, share)
    count = max(1 if share else 0, round(share * 99))
    assert chosen.flatten(1).sum(1).tolist() == [count, count]
    for one, mask in zip(values, chosen, strict=True):
        if 0 < count < 99:
            assert one[mask].min() >= one[~mask].max()


def test_curves_are_those_of_plain_loops(image: Tensor) -> None:
    map_of, filled = map_of_network(), fillings(image, torch.rand(1, SIZE, SIZE))
    ranking = torch.rand(SIZE, SIZE)
    found = deletion_and_insertion(map_of, image, filled, ranking, 3, steps=4)
    order = sorted(range(SIZE * SIZE), key=lambda at: -float(ranking.flatten()[at]))
    expected = []
    for step in range(4):
        region = torch.zeros(SIZE * SIZE, dtype=torch.bool)
        region[order[: round(step / 3 * SIZE * SIZE)]] = True
        expected.append(naive_removed(map_of, image, filled, region.view(SIZE, SIZE), 3))
    assert found.deletion.tolist() == pytest.approx(expected, abs=1e-4)
    area = sum((a + b) / 2 / 3 for a, b in itertools.pairwise(expected))
    assert found.deletion_area == pytest.approx(area, abs=1e-4)
    # Keeping nothing is replacing everything, and the reverse.
    assert found.insertion[0] == pytest.approx(found.deletion[-1], abs=1e-5)
    assert found.insertion[-1] == pytest.approx(1)


def test_energy_inside_the_annotation_is_that_of_plain_loops() -> None:
    maps, masks = torch.randn(3, 6, 6), torch.rand(3, 6, 6) > 0.5
    masks[2] = False
    found = energy_pointing_game(maps, masks)
    for index in range(2):
        cells = [(r, c) for r in range(6) for c in range(6)]
        energy = {at: max(float(maps[index][at]), 0.0) for at in cells}
        inside = sum(energy[at] for at in cells if masks[index][at])
        assert found[index] == pytest.approx(inside / sum(energy.values()), rel=1e-6)
    assert np.isnan(found[2])
    assert np.isnan(energy_pointing_game(-torch.rand(1, 3, 3), masks[:1, :3, :3])).all()


def test_regions_elsewhere_keep_their_area(regions: Tensor) -> None:
    moved = regions_elsewhere(list(regions.numpy()), np.random.default_rng(0))
    assert moved.flatten(1).sum(1).tolist() == regions.flatten(1).sum(1).tolist()
    assert not torch.equal(moved, regions)


# -- sanity --------------------------------------------------------------------------------------
def test_a_region_that_a_random_network_does_not_choose_is_at_chance() -> None:
    """Regions of another network's map keep and remove no more than the same regions elsewhere."""
    rng, kept_by, elsewhere = np.random.default_rng(0), [], []
    for seed in range(40):
        image = torch.rand(1, SIZE, SIZE, generator=torch.Generator().manual_seed(seed))
        map_of = map_of_network(seed)  # seeds the other image too
        filled = fillings(image, torch.rand(1, SIZE, SIZE))
        other = map_of_network(1000 + seed)(image[None])[0]
        shown = largest_share(nn.functional.interpolate(other[None, None], SIZE)[0, 0], 0.2)
        moved = regions_elsewhere([shown.numpy()], rng)
        kept_by.append(removed(map_of, image, filled, shown[None], 3).item())
        elsewhere.append(removed(map_of, image, filled, moved, 3).item())
    difference = np.array(kept_by) - np.array(elsewhere)
    error = difference.std() / math.sqrt(len(difference))
    assert abs(difference.mean()) < 3 * error
    assert np.mean(elsewhere) == pytest.approx(0.8, abs=0.2)  # a fifth replaced at random


def test_the_energy_of_random_networks_is_inside_an_annotation_at_chance() -> None:
    masks = torch.zeros(200, SIZE, SIZE, dtype=torch.bool)
    masks[:, 3:12, 8:20] = True
    torch.manual_seed(0)
    images = torch.rand(200, 1, SIZE, SIZE)
    maps = torch.stack([map_of_network(seed)(image[None])[0] for seed, image in enumerate(images)])
    activation = nn.functional.interpolate(maps.sigmoid()[:, None], SIZE, mode="bilinear")[:, 0]
    chance = masks[0].double().mean().item()
    assert energy_pointing_game(activation, masks).mean() == pytest.approx(chance, abs=0.02)


def band_detector(images: Tensor) -> Tensor:
    """A hand-made similarity map: fine detail, which on these phantoms only the margin has."""
    fine = images[:, 0] - gaussian(images[:, 0], 2.0)
    return nn.functional.avg_pool2d(fine.abs()[:, None], 7, 7)[:, 0]


def test_removing_the_band_of_a_phantom_removes_the_rise_of_a_detector_of_it() -> None:
    size = 112
    with_mass = make_phantom("spiculated", seed=1, patient=0, patch=0, size=size)
    grey = torch.from_numpy(with_mass.image.astype(np.float32) / 65535)
    band = torch.from_numpy(with_mass.mask)
    # Smooth tissue everywhere but in the band: the band alone holds the evidence.
    image = torch.where(band, grey, gaussian(grey[None], 6.0)[0])[None]
    other = torch.from_numpy(
        make_phantom("negative", seed=1, patient=1, patch=0, size=size).image / np.float32(65535)
    )
    filled = fillings(image, gaussian(other[None], 6.0))
    generous = (
        nn.functional.max_pool2d(band[None].float(), 7, 1, 3) > 0
    )  # the detector looks around
    assert removed(band_detector, image, filled, generous, 12).item() < 0.1
    assert kept(band_detector, image, filled, generous, 12).item() > 0.9
    rng = np.random.default_rng(0)
    elsewhere = regions_elsewhere([generous[0].numpy()] * 8, rng)
    assert removed(band_detector, image, filled, elsewhere, 12).mean().item() > 0.3
    # Ranked by the detector's own map, little of the image inserts nearly all of the rise.
    ranking = nn.functional.interpolate(band_detector(image[None])[None], (size, size))[0, 0]
    curves = deletion_and_insertion(band_detector, image, filled, ranking, 12)
    assert curves.deletion_area < 0.3 < 0.7 < curves.insertion_area
