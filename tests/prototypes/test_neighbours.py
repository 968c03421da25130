"""Nearest images, galleries and pruning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from protopyramid.data.images import prepare_sample
from protopyramid.data.manifest import Manifest, Sample
from protopyramid.errors import UserError
from protopyramid.inference.batches import model_input
from protopyramid.model.activation import region_of
from protopyramid.prototypes.cases import prototype_map
from protopyramid.prototypes.neighbours import Neighbour, misplaced, nearest_images
from protopyramid.prototypes.pruning import prune, pruned_config
from protopyramid.reports.gallery import write_gallery, write_nearest
from protopyramid.runs.run import Run, load_run


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


def test_gallery_and_nearest_are_written(run: Run, manifest: Manifest, tmp_path: Path) -> None:
    assert write_gallery(run, tmp_path).read_bytes().startswith(b"\x89PNG")
    nearest = {"train": nearest_images(run, manifest.split("train"), 2)}
    written = write_nearest(run, nearest, tmp_path)
    content = json.loads(written[0].read_text())
    assert [entry["index"] for entry in content] == list(range(len(run.prototypes)))
    assert set(content[0]["nearest"]["train"][0]) >= {
        "image",
        "label",
        "split",
        "similarity",
        "box",
    }
    assert {path.name for path in written[1:]} == {
        f"prototypes_nearest_{name}.png" for name in run.config.data.classes
    }


def test_pruned_run_has_the_other_prototypes_and_says_what_it_cost(
    run: Run, manifest: Manifest, tmp_path: Path
) -> None:
    removed = [0, 4]
    pruned = prune(
        run, removed, tmp_path / "new", manifest.split("train"), manifest.split("validation")
    )
    new = load_run(tmp_path / "new")
    kept = [record for record in run.prototypes if record.index not in removed]
    assert [(r.class_name, r.level, r.image, r.box) for r in new.prototypes] == [
        (r.class_name, r.level, r.image, r.box) for r in kept
    ]
    assert [r.index for r in new.prototypes] == list(range(len(kept)))
    rows = [record.index for record in kept]
    torch.testing.assert_close(new.model.prototypes.vectors, run.model.prototypes.vectors[rows])
    for number, record in enumerate(kept):
        source, copy = (
            f / f"prototypes/{n:03d}.png"
            for f, n in ((run.folder, record.index), (new.folder, number))
        )
        assert source.read_bytes() == copy.read_bytes()
    assert pruned.removed == (0, 4) and pruned.before is not None and pruned.after is not None
    assert new.folder.read_lines("metrics.jsonl")[-1]["removed"] == removed


def test_pruned_scores_are_the_old_ones_without_the_removed(
    run: Run, manifest: Manifest, lesion: Path, tmp_path: Path
) -> None:
    prune(run, [2], tmp_path / "new", manifest.split("train"), ())
    old = [part.score for part in run.explain(lesion).prototypes if part.index != 2]
    new = [part.score for part in load_run(tmp_path / "new").explain(lesion).prototypes]
    np.testing.assert_allclose(new, old, atol=1e-6)


def test_a_level_that_is_pruned_away_leaves_the_pyramid(
    run: Run, manifest: Manifest, tmp_path: Path
) -> None:
    finest = [record.index for record in run.prototypes if record.level == 2]
    pruned = prune(run, finest, tmp_path / "new", manifest.split("train"), ())
    assert pruned.run.model.neck.inputs == (4, 5)
    assert pruned.before is None


def test_a_class_keeps_at_least_one_prototype(run: Run, manifest: Manifest, tmp_path: Path) -> None:
    negatives = [record.index for record in run.prototypes if record.class_name == "negative"]
    with pytest.raises(UserError, match='"negative" would have no prototype left'):
        prune(run, negatives, tmp_path / "new", manifest.split("train"), ())
    assert not (tmp_path / "new").exists()


def test_an_unknown_prototype_is_refused(run: Run, manifest: Manifest, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no prototype 99"):
        prune(run, [99], tmp_path / "new", manifest.split("train"), ())


def test_a_black_box_has_no_prototypes_to_show(black_box: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="black box"):
        write_gallery(black_box, tmp_path)


def test_single_level_presets_are_pruned_too(
    make_run: Callable[..., Run], manifest: Manifest, tmp_path: Path
) -> None:
    run = make_run(
        "iaia-bl", model__prototypes__counts={"5": 2}, model__prototypes__negative_counts={"5": 2}
    )
    assert len(prune(run, [1], tmp_path / "new", manifest.split("train"), ()).run.prototypes) == 7
    assert pruned_config(run, [0, 2, 4, 6]).model.prototypes.per_class["negative"] == {5: 1}
