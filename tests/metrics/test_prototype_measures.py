"""Measures of part prototypes against plain loops and values known by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from protopyramid.metrics.prototype_measures import (
    UNKNOWN,
    consistency,
    consistency_interval,
    darkened,
    explanation_size,
    noisy,
    overlap,
    part_maps,
    parts_at_peaks,
    peak_drop,
    purity,
)

RNG = np.random.default_rng(3)


def test_the_part_is_the_one_under_the_peak() -> None:
    fine, lesion = torch.zeros(2, 4, 4, dtype=torch.bool), torch.zeros(2, 4, 4, dtype=torch.bool)
    fine[0, 1, 1], lesion[0, :3, :3] = True, True
    parts = part_maps(fine, lesion)
    assert parts[0].tolist() == [[1, 1, 1, 0], [1, 2, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]
    assert (parts[1] == UNKNOWN).all()
    maps = torch.zeros(3, 4, 4)
    maps[0, 1, 1] = maps[1, 2, 0] = maps[2, 3, 3] = 1
    assert parts_at_peaks(maps, parts[:1].expand(3, 4, 4)).tolist() == [2, 1, 0]


def naive_consistency(parts, weights) -> float:
    consistent = []
    for prototype in range(parts.shape[1]):
        seen: list[int] = []
        for image in range(parts.shape[0]):
            if parts[image, prototype] != UNKNOWN:
                seen += [int(parts[image, prototype])] * int(weights[image])
        if seen:
            consistent.append(max(seen.count(part) for part in range(3)) / len(seen) >= 0.8)
    return sum(consistent) / len(consistent)


def test_consistency_is_that_of_plain_loops() -> None:
    parts = RNG.choice([UNKNOWN, 0, 2, 2, 2, 2, 2], size=(12, 9))
    weights = RNG.integers(0, 3, size=(20, 12)).astype(float)
    expected = [naive_consistency(parts, row) for row in weights]
    assert [consistency(parts, row) for row in weights] == pytest.approx(expected)
    assert 0 < np.mean(expected) < 1
    low, high = consistency_interval(parts, weights)
    assert (low, high) == pytest.approx(tuple(np.quantile(expected, [0.025, 0.975])))
    assert consistency(np.full((3, 2), UNKNOWN), np.ones(3)) is None


def test_purity_takes_the_ten_highest_scores() -> None:
    parts, scores = RNG.choice([UNKNOWN, 0, 1, 2], size=(30, 4)), RNG.random((30, 4))
    expected = []
    for prototype in range(4):
        rows = [n for n in range(30) if parts[n, prototype] != UNKNOWN]
        best = sorted(rows, key=lambda n: -scores[n, prototype])[:10]
        found = [int(parts[n, prototype]) for n in best]
        expected.append(max(found.count(part) for part in (0, 1, 2)) / len(found))
    assert purity(parts, scores) == pytest.approx(sum(expected) / 4)
    assert purity(np.full((3, 1), UNKNOWN), np.zeros((3, 1))) is None


def test_overlap_counts_pixels() -> None:
    first = torch.from_numpy(RNG.random((3, 5, 6)) > 0.5)
    second = torch.from_numpy(RNG.random((3, 5, 6)) > 0.5)
    expected = []
    for a, b in zip(first, second, strict=True):
        pairs = list(zip(a.flatten().tolist(), b.flatten().tolist(), strict=True))
        expected.append(sum(x and y for x, y in pairs) / sum(x or y for x, y in pairs))
    assert overlap(first, second).tolist() == pytest.approx(expected)
    assert overlap(first, first).tolist() == [1, 1, 1]


def test_the_size_of_an_explanation_is_the_fewest_prototypes_that_cover_it() -> None:
    contributions = RNG.normal(size=(6, 8))
    for row, found in zip(contributions, explanation_size(contributions), strict=True):
        sizes, covered, count = sorted(map(abs, row), reverse=True), 0.0, 0
        while covered < 0.9 * sum(sizes):
            covered += sizes[count]
            count += 1
        assert found == count
    assert explanation_size(np.array([[9.0, 1.0, 0.0], [0.0, 0.0, 0.0]])).tolist() == [1, 0]


def test_noise_is_small_and_the_same_again() -> None:
    images, deviation = torch.full((2, 1, 40, 40), 0.5), torch.tensor([0.1])
    changed = noisy(images, deviation, 0)
    assert torch.equal(changed, noisy(images, deviation, 0))
    assert (changed - images).abs().max() <= 0.025 + 1e-6
    assert (changed - images).std().item() == pytest.approx(0.016, abs=0.002)


def test_the_drop_of_a_peak_is_relative_to_its_height() -> None:
    before, after = (
        torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]),
        torch.tensor([[[0.4, 0.0], [0.0, 0.0]]]),
    )
    assert peak_drop(before, after).tolist() == pytest.approx([0.6 / 0.75])
    assert peak_drop(before, before).tolist() == [0]
    assert np.isnan(peak_drop(torch.ones(1, 2, 2), after)).all()
    assert darkened(torch.tensor([0.5])).tolist() == pytest.approx([0.35])
