"""Freeze means cache: cached training is uncached training, within a budget, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.runs.folder import RunFolder
from protopyramid.training.distributed import start_fabric
from protopyramid.training.engine import train_run
from protopyramid.training.trainer import Trainer
from protopyramid.utils.faults import observed_by

from ..harness import PARTS, Reference, tiny
from .test_trainer import nearest_patches_agree

LEARNS = {5: PARTS, 3: ["backbone.4", "backbone.5", *PARTS]}


@pytest.fixture
def built() -> Iterator[list[str]]:
    """Grows by one whenever a part of a cache has been built."""
    flushes: list[str] = []
    with observed_by(lambda point: flushes.append(point) if point == "cache-flush" else None):
        yield flushes


def one_phase(cut: int, preset: str = "fpn-iaia-bl", **options: Any) -> Any:
    phase = {"step": "train", "learns": LEARNS[cut], "epochs": 2, "views": 2}
    schedule = [phase, {"step": "project"}, {"step": "fit-head"}]
    return tiny(preset, train__schedule=schedule, **options)


@pytest.mark.parametrize("cut", [5, 3])
@pytest.mark.parametrize("preset", ["fpn-iaia-bl", "protopnet"])
def test_cached_training_is_uncached_training_on_the_same_copies(
    phantoms: Path, tmp_path: Path, cut: int, preset: str
) -> None:
    """ProtoPNet's backbone has a pool after its last block: maps cached there are pooled."""
    reached: list[str] = []
    with observed_by(reached.append):
        cached = train_run(one_phase(cut, preset), phantoms, tmp_path / "cached")
        assert reached.count("cache-write") == 24 * 3 / 8 + 8 / 8
        reached.clear()
        uncached = one_phase(cut, preset, train__cache__enabled=False)
        plain = train_run(uncached, phantoms, tmp_path / "plain")
        assert "cache-write" not in reached
    ours, theirs = (load_file(run / "model.safetensors") for run in (cached, plain))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-5)
    first, second = (
        [line["losses"] for line in RunFolder(run).read_lines("metrics.jsonl") if "losses" in line]
        for run in (cached, plain)
    )
    assert len(first) == 2
    for mine, other in zip(first, second, strict=True):
        assert mine == pytest.approx(other, rel=1e-5)
    for run in (cached, plain):
        assert not (run / "cache").exists()


def test_half_precision_trains_nearly_the_same_and_projects_exactly(
    phantoms: Path, tmp_path: Path
) -> None:
    half = train_run(one_phase(5, train__cache__half=True), phantoms, tmp_path / "half")
    whole = train_run(one_phase(5), phantoms, tmp_path / "whole")
    ours, theirs = (load_file(run / "model.safetensors") for run in (half, whole))
    name = "neck.lateral.5.weight" if "neck.lateral.5.weight" in ours else "head.weight"
    assert not torch.equal(ours[name], theirs[name])
    torch.testing.assert_close(ours[name], theirs[name], rtol=0.05, atol=0.02)
    nearest_patches_agree(half, phantoms)


@pytest.mark.parametrize("where", [0, 3])
def test_a_schedule_whose_cache_is_over_budget_is_refused_before_any_work(
    phantoms: Path, tmp_path: Path, where: int
) -> None:
    """Wherever in the schedule the cached phase stands."""
    cached = {"step": "train", "learns": PARTS, "epochs": 1, "views": 4}
    schedule: list[dict[str, Any]] = [{"step": "train", "learns": PARTS, "epochs": 1}] * where
    schedule += [cached, {"step": "project"}, {"step": "fit-head"}]
    config = tiny(train__schedule=schedule, train__cache__disk_budget=1e-5)
    reached: list[str] = []
    with (
        observed_by(reached.append),
        pytest.raises(UserError, match=r"train\.cache\.disk_budget.*the budget is 1e-05 GB"),
    ):
        train_run(config, phantoms, tmp_path / "run")
    assert not reached
    assert not (tmp_path / "run/format").exists()
    plain = tiny(
        train__schedule=schedule, train__cache__disk_budget=1e-5, train__cache__enabled=False
    )
    Trainer(
        plain,
        read_manifest(phantoms),
        RunFolder(tmp_path / "run"),
        start_fabric(1, "32-true", "cpu"),
    ).caches.check_budgets()


def test_systems_with_the_same_frozen_blocks_share_a_cache(
    phantoms: Path, tmp_path: Path, built: list[str]
) -> None:
    """The black box reads one level and the pyramid four; what one has built, the other reads."""
    phase = {"step": "train", "learns": ["backbone.4", "backbone.5", "neck", "prototypes", "head"]}
    end = [{"step": "project"}, {"step": "fit-head"}]
    shared = tmp_path / "shared"
    ours = tiny(train__schedule=[{**phase, "views": 2}, *end])
    black_box = tiny(
        "vgg16", train__schedule=[{**phase, "learns": ["backbone.4", "head"], "views": 2}]
    )
    own = train_run(ours, phantoms, tmp_path / "own")
    assert len(built) == 3  # training images and their copies, validation images
    train_run(black_box, phantoms, tmp_path / "first", cache=shared)
    assert len(built) == 6
    second = train_run(ours, phantoms, tmp_path / "second", cache=shared)
    assert len(built) == 6
    assert len(list(shared.iterdir())) == 2
    assert (own / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


def test_a_cache_is_not_shared_between_a_backbone_with_and_one_without_its_last_pool(
    phantoms: Path, tmp_path: Path
) -> None:
    """The pool has no weights, so the frozen weights are the same."""
    sources = {
        pooled: Trainer(
            one_phase(5, "protopnet", model__backbone__last_pool=pooled),
            read_manifest(phantoms),
            RunFolder(tmp_path / str(pooled)),
            start_fabric(1, "32-true", "cpu"),
        ).passes.train.source
        for pooled in (True, False)
    }
    assert sources[True].key(5, 2) != sources[False].key(5, 2)
    assert sources[True].layouts(5, 0)[0].shapes[5][1:] == (1, 1)
    assert sources[False].layouts(5, 0)[0].shapes[5][1:] == (2, 2)
    assert sources[True].key(3, 2) == sources[False].key(3, 2)


def test_the_reference_has_deleted_its_cache(reference: Reference) -> None:
    assert not (reference.folder / "cache").exists()
