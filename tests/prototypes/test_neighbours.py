"""The images nearest to each prototype."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from protopyramid.data.images import prepare_sample
from protopyramid.data.manifest import Manifest, Sample
from protopyramid.inference.batches import model_input
from protopyramid.model.activation import region_of
from protopyramid.prototypes.cases import prototype_map
from protopyramid.prototypes.neighbours import Neighbour, misplaced, nearest_images
from protopyramid.runs.run import Run


def test_nearest_images_are_those_of_a_search_through_all(run: Run, manifest: Manifest) -> None:
    samples = manifest.split("train")
    images = torch.stack([prepare_sample(s, run.config.data).image for s in samples])
    with torch.no_grad():
        maps = run.model(model_input(images, run.config.data, torch.device("cpu"))).maps
    for index, found in enumerate(nearest_images(run, samples, 4)):
        all_maps = prototype_map(run.model, maps, index)
        peaks = all_maps.flatten(1).amax(1)
        np.testing.assert_allclose(
            [each.similarity for each in found], peaks.sort(descending=True).values[:4], atol=1e-5
        )
        for each in found:
            place = samples.index(each.sample)
            assert float(all_maps[place, each.row, each.col]) == pytest.approx(
                each.similarity, abs=1e-5
            )


def test_a_prototype_is_nearest_to_its_own_source(run: Run, manifest: Manifest) -> None:
    for record, found in zip(
        run.prototypes, nearest_images(run, manifest.split("train"), 1), strict=True
    ):
        assert found[0].similarity == pytest.approx(1, abs=1e-4)
        assert found[0].sample.name == record.image


def test_fewer_images_than_asked_for_are_all_given(run: Run, manifest: Manifest) -> None:
    assert {len(found) for found in nearest_images(run, manifest.split("train")[:2], 6)} == {2}


def neighbour(label: str) -> Neighbour:
    sample = Sample(2, "x", Path("x"), label, "train")
    return Neighbour(sample, 0, 0, 1.0, region_of(torch.ones(2, 2)))


def test_prototypes_near_other_classes_are_misplaced(run: Run) -> None:
    nearest = [
        [neighbour(record.class_name)] * (2 if number == 1 else 3) + [neighbour("other")] * 3
        for number, record in enumerate(run.prototypes)
    ]
    assert misplaced(run, nearest, 3) == [1]
