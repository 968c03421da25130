"""Pooling against sorting, map by map."""

import pytest
import torch

from protopyramid.model import pooling
from protopyramid.model.pooling import Pooling, pool, pool_size, top_mean

MAPS = torch.rand(2, 3, 5, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1


def naive(maps, kind, k):
    scores = torch.empty(maps.shape[:2], dtype=maps.dtype)
    for i in range(maps.shape[0]):
        for j in range(maps.shape[1]):
            cells = sorted(maps[i, j].flatten().tolist(), reverse=True)
            top, mean = sum(cells[:k]) / k, sum(cells) / len(cells)
            scores[i, j] = {"focal": top - mean, "topk": top, "max": cells[0], "average": mean}[
                kind
            ]
    return scores


@pytest.mark.parametrize("kind", ["focal", "topk", "max", "average"])
@pytest.mark.parametrize("k", [1, 2, 9, 20])
def test_scores_equal_sorting_and_averaging(kind, k):
    torch.testing.assert_close(pool(MAPS, kind, k), naive(MAPS, kind, k))


@pytest.mark.parametrize("k", [1, 3, 20])
def test_the_smallest_values_can_be_averaged_too(k):
    torch.testing.assert_close(top_mean(MAPS, k, largest=False), -naive(-MAPS, "topk", k))


def test_focal_score_of_a_flat_map_is_zero_and_of_all_cells_too():
    assert pool(torch.full((1, 1, 4, 4), 0.7), "focal", 9).item() == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(pool(MAPS, "focal", 20), torch.zeros(2, 3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["focal", "topk", "max", "average"])
def test_gradients_pass_gradcheck(kind):
    maps = MAPS.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda s: pool(s, kind, 3), (maps,))


def test_comparison_detects_a_perturbed_pooling(monkeypatch):
    """Focal without its mean, or with one cell too many, is seen."""
    monkeypatch.setattr(pooling, "focal", lambda maps, k: top_mean(maps, k))
    assert (pool(MAPS, "focal", 3) - naive(MAPS, "focal", 3)).abs().max() > 1e-2
    monkeypatch.setattr(pooling, "focal", lambda maps, k: top_mean(maps, k + 1) - maps.mean((2, 3)))
    assert (pool(MAPS, "focal", 3) - naive(MAPS, "focal", 3)).abs().max() > 1e-2


def test_an_unknown_pooling_is_refused():
    with pytest.raises(ValueError, match=r"focal.*median"):
        pool(MAPS, "median", 3)


@pytest.mark.parametrize(
    ("k", "level", "cells", "expected"),
    [
        (9, 5, 196, 9),
        (9, 2, 3136, 9),
        (9, 5, 4, 4),  # a map with fewer cells than k
        (0.05, 5, 196, 10),  # 9.8
        (0.001, 5, 196, 1),  # never none
        ({2: 20, 5: 0.5}, 2, 3136, 20),
        ({2: 20, 5: 0.5}, 5, 196, 98),
        ({2: 20}, 5, 196, 9),  # levels not named take the default
    ],
)
def test_k_is_a_number_a_fraction_or_a_table_by_level(k, level, cells, expected):
    assert pool_size(k, level, cells) == expected


def test_maximum_pools_one_patch_whatever_k():
    assert [Pooling(kind, 7).patches(5, 30) for kind in ("focal", "topk", "max")] == [7, 7, 1]
    with pytest.raises(ValueError, match='got "median"'):
        Pooling("median")
