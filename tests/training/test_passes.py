"""Passes over images: which, in which order, and with the numbers of the model alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from protopyramid.data.images import normalise, prepare_sample
from protopyramid.data.manifest import read_manifest
from protopyramid.runs.folder import RunFolder
from protopyramid.training.distributed import start_fabric
from protopyramid.training.trainer import Trainer

from ..harness import tiny


def trainer(phantoms: Path, out: Path, **options: Any) -> Trainer:
    fabric = start_fabric(1, "32-true", "cpu")
    return Trainer(tiny(**options), read_manifest(phantoms), RunFolder(out), fabric)


@pytest.mark.parametrize("most", [None, 1, 5, 23, 24, 256])
def test_a_sample_is_spread_evenly_and_no_larger_than_asked_for(
    phantoms: Path, tmp_path: Path, most: int | None
) -> None:
    passes = trainer(phantoms, tmp_path / "run").passes
    seen, pool = passes.pool(most).tolist(), passes.pool()
    assert len(pool) == 24
    if most is None or most >= 24:
        assert seen == pool.tolist()
        return
    assert 1 <= len(seen) <= most
    places = [pool.tolist().index(image) for image in seen]
    assert places[0] == 0
    assert len(set(np.diff(places).tolist())) <= 1


@pytest.mark.parametrize("size", [3, 8, 50])
def test_scores_are_those_of_the_model_in_the_order_of_the_images(
    phantoms: Path, tmp_path: Path, size: int
) -> None:
    passes = trainer(phantoms, tmp_path / "run", train__eval_batch_size=size).passes
    images = np.array([5, 0, 23, 7, 8, 1, 2])
    scores = passes.scores(passes.train, images, "scoring")
    samples = read_manifest(phantoms).split("train")
    for row, index in enumerate(images):
        image = prepare_sample(samples[index], passes.config.data).image
        with torch.no_grad():
            expected = passes.model.eval()(normalise(image[None], passes.config.data)).scores[0]
        torch.testing.assert_close(scores[row], expected, rtol=1e-4, atol=1e-5)


def test_training_batches_hold_every_image_of_the_pool_with_its_label_and_annotation(
    phantoms: Path, tmp_path: Path
) -> None:
    passes = trainer(phantoms, tmp_path / "run", train__eval_batch_size=7).passes
    samples = read_manifest(phantoms).split("train")
    classes = passes.config.data.classes
    seen = []
    for batch in passes.training_batches("looking"):
        assert not any(z.requires_grad for z in batch.z.values())
        for row, index in enumerate(batch.images.tolist()):
            seen.append(index)
            assert classes[int(batch.labels[row])] == samples[index].label
            wanted = samples[index].mask is not None or samples[index].box is not None
            assert bool(batch.annotated[row]) == wanted
    assert seen == passes.pool().tolist()
