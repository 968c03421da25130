"""Pruning: a run without some prototypes is a finished run that knows its history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from protopyramid import api
from protopyramid.data.manifest import Manifest
from protopyramid.errors import UserError
from protopyramid.prototypes.pruning import pruned_config
from protopyramid.runs.run import Run, load_run


def prune(run: Run, removed: list[int], out: Path) -> api.Edited:
    found = api.prune(run, out=out, remove=removed)
    assert found is not None and found.run is not None
    return found


def test_pruned_run_has_the_other_prototypes_and_says_what_it_cost(
    run: Run, tmp_path: Path
) -> None:
    removed = [0, 4]
    pruned = prune(run, removed, tmp_path / "new").plan
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
    assert pruned.removed == (0, 4)
    assert new.folder.read_lines("metrics.jsonl")[-1]["removed"] == removed


def test_pruned_scores_are_the_old_ones_without_the_removed(
    run: Run, lesion: Path, tmp_path: Path
) -> None:
    prune(run, [2], tmp_path / "new")
    old = [part.score for part in run.explain(lesion).prototypes if part.index != 2]
    new = [part.score for part in load_run(tmp_path / "new").explain(lesion).prototypes]
    np.testing.assert_allclose(new, old, atol=1e-6)


def test_a_level_that_is_pruned_away_leaves_the_pyramid(run: Run, tmp_path: Path) -> None:
    finest = [record.index for record in run.prototypes if record.level == 2]
    pruned = prune(run, finest, tmp_path / "new")
    assert pruned.run.model.neck.inputs == (4, 5)


def test_a_class_keeps_at_least_one_prototype(run: Run, tmp_path: Path) -> None:
    negatives = [record.index for record in run.prototypes if record.class_name == "negative"]
    with pytest.raises(UserError, match='"negative" would have no prototype left'):
        prune(run, negatives, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_unknown_prototype_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no prototype 99"):
        prune(run, [99], tmp_path / "new")


def test_single_level_presets_are_pruned_too(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(
        "iaia-bl", model__prototypes__counts={"5": 2}, model__prototypes__negative_counts={"5": 2}
    )
    assert len(prune(run, [1], tmp_path / "new").run.prototypes) == 7
    assert pruned_config(run, [0, 2, 4, 6]).model.prototypes.per_class["negative"] == {5: 1}


def test_history_of_several_prunings_is_kept(run: Run, manifest: Manifest, tmp_path: Path) -> None:
    assert run.provenance.history == []
    first = prune(run, [0, 4], tmp_path / "first")
    second = prune(first.run, [1], tmp_path / "deeper" / "second")
    history = second.run.provenance.history
    assert [(each["from"], each["removed"]) for each in history] == [
        (run.name, [0, 4]),
        ("first", [1]),
    ]
    assert history[0]["validation"]["accuracy"] == first.plan.after.validation.accuracy
    assert history[1]["kept"] == [0, 2, *range(3, len(first.plan.kept))]
    assert second.run.provenance.manifest_from(second.run.folder.path) == manifest.path.resolve()
