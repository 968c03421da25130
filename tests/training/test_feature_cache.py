"""Freeze means cache: cached training is uncached training, within a budget, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from protopyramid.data.manifest import read_manifest
from protopyramid.data.store import ImageStore
from protopyramid.errors import UserError
from protopyramid.model import build_model
from protopyramid.runs.folder import RunFolder
from protopyramid.training import features as maps_module
from protopyramid.training.distributed import start_fabric
from protopyramid.training.engine import train_run
from protopyramid.training.feature_cache import (
    CacheLayout,
    FeatureCache,
    cache_key,
    check_budget,
    hold,
    is_complete,
    mark_complete,
    row_batches,
)
from protopyramid.training.features import CachePlace, FeatureSource
from protopyramid.training.trainer import Trainer

from ..harness import PARTS, Reference, tiny
from .test_trainer import nearest_patches_agree

LAYOUT = CacheLayout(rows=5, shapes={2: (3, 4, 4), 5: (6, 2, 2)}, mask_size=12, half=False)
LEARNS = {5: PARTS, 3: ["backbone.4", "backbone.5", *PARTS]}


def contents(layout: CacheLayout, seed: int = 0) -> tuple[Any, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    maps = {
        block: torch.randn(layout.rows, *shape, generator=generator)
        for block, shape in layout.shapes.items()
    }
    size = (layout.rows, layout.mask_size, layout.mask_size)
    masks = torch.randint(0, 2, size, generator=generator, dtype=torch.uint8)
    return maps, masks, torch.arange(layout.rows) % 2 == 0


def test_a_cache_gives_back_what_was_written(tmp_path: Path) -> None:
    maps, masks, annotated = contents(LAYOUT)
    cache = FeatureCache(tmp_path, LAYOUT, "w+")
    for rows in row_batches(LAYOUT.rows, 2):
        picked = {block: m[rows] for block, m in maps.items()}
        cache.write(rows, picked, masks[rows], annotated[rows])
    cache.flush()
    order = np.array([4, 0, 0, 3])
    found, found_masks, found_flags = FeatureCache(tmp_path, LAYOUT, "r").read(order)
    for block, m in maps.items():
        assert torch.equal(found[block], m[order])
        assert found[block].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found_masks, masks[order])
    assert torch.equal(found_flags, annotated[order])


@pytest.mark.parametrize("half", [False, True])
def test_a_layout_knows_its_size_on_disk(tmp_path: Path, half: bool) -> None:
    layout = CacheLayout(LAYOUT.rows, LAYOUT.shapes, LAYOUT.mask_size, half)
    FeatureCache(tmp_path, layout, "w+")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == layout.bytes


def test_a_budget_that_is_too_small_is_refused(tmp_path: Path) -> None:
    check_budget(tmp_path, [LAYOUT], LAYOUT.bytes / 1e9)
    with pytest.raises(UserError, match=r"train\.cache\.disk_budget"):
        check_budget(tmp_path, [LAYOUT, LAYOUT], 1.5 * LAYOUT.bytes / 1e9)


def test_a_disk_that_is_too_full_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=LAYOUT.bytes)
    monkeypatch.setattr(
        "protopyramid.training.feature_cache.shutil.disk_usage", lambda folder: usage
    )
    with pytest.raises(UserError, match="are free; free some space"):
        check_budget(tmp_path, [LAYOUT], 1.0)
    check_budget(tmp_path, [LAYOUT], 1.0, replaced=LAYOUT.bytes)


def test_a_cache_without_its_mark_or_of_another_key_is_not_complete(tmp_path: Path) -> None:
    assert not is_complete(tmp_path, "a")
    mark_complete(tmp_path, "a")
    assert is_complete(tmp_path, "a")
    assert not is_complete(tmp_path, "b")
    (tmp_path / "done.json").write_text('{"key": "a')
    assert not is_complete(tmp_path, "a")


def test_the_key_depends_on_weights_and_facts() -> None:
    state = {"a": torch.ones(2), "b": torch.zeros(2)}
    keys = {
        cache_key(state, 1),
        cache_key(state, 2),
        cache_key({**state, "a": torch.tensor([1.0, 1.0 + 1e-7])}, 1),
        cache_key({"a": state["b"], "b": state["a"]}, 1),
    }
    assert len(keys) == 4
    assert cache_key(dict(reversed(state.items())), 1) == cache_key(state, 1)


# -- training with it ----------------------------------------------------------------------------
def one_stage(cut: int, **options: Any) -> Any:
    step = {"step": "train", "learns": LEARNS[cut], "epochs": 2, "views": 2}
    schedule = [step, {"step": "project"}, {"step": "fit-head"}]
    return tiny(train__schedule=schedule, **options)


@pytest.mark.parametrize("cut", [5, 3])
def test_cached_training_is_uncached_training_on_the_same_views(
    phantoms: Path, tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    original = FeatureCache.write
    monkeypatch.setattr(
        FeatureCache, "write", lambda self, *rest: written.append(1) or original(self, *rest)
    )
    cached = train_run(one_stage(cut), phantoms, tmp_path / "cached")
    assert len(written) == 24 * 3 / 8 + 8 / 8
    written.clear()
    plain = train_run(one_stage(cut, train__cache__enabled=False), phantoms, tmp_path / "plain")
    assert not written
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
    half = train_run(one_stage(5, train__cache__half=True), phantoms, tmp_path / "half")
    whole = train_run(one_stage(5), phantoms, tmp_path / "whole")
    ours, theirs = (load_file(run / "model.safetensors") for run in (half, whole))
    name = "neck.lateral.5.weight" if "neck.lateral.5.weight" in ours else "head.weight"
    assert not torch.equal(ours[name], theirs[name])
    torch.testing.assert_close(ours[name], theirs[name], rtol=0.05, atol=0.02)
    nearest_patches_agree(half, phantoms)


@pytest.mark.parametrize("where", [0, 3])
def test_a_schedule_whose_cache_is_over_budget_is_refused_before_any_work(
    phantoms: Path, tmp_path: Path, where: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in the schedule the cached step stands."""
    cached = {"step": "train", "learns": PARTS, "epochs": 1, "views": 4}
    schedule: list[dict[str, Any]] = [{"step": "train", "learns": PARTS, "epochs": 1}] * where
    schedule += [cached, {"step": "project"}, {"step": "fit-head"}]
    config = tiny(train__schedule=schedule, train__cache__disk_budget=1e-5)
    monkeypatch.setattr(Trainer, "_start", lambda self: pytest.fail("work was done"))
    with pytest.raises(UserError, match=r"train\.cache\.disk_budget.*the budget is 1e-05 GB"):
        train_run(config, phantoms, tmp_path / "run")
    assert not (tmp_path / "run/format").exists()
    monkeypatch.undo()
    plain = tiny(
        train__schedule=schedule, train__cache__disk_budget=1e-5, train__cache__enabled=False
    )
    Trainer(
        plain,
        read_manifest(phantoms),
        RunFolder(tmp_path / "run"),
        start_fabric(1, "32-true", "cpu"),
    )._check_budgets()


def test_a_cache_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    huge = CacheLayout(rows=1 << 40, shapes={2: (64, 64, 64)}, mask_size=8, half=False)
    with pytest.raises(UserError, match="cannot be made"):
        FeatureCache(tmp_path, huge, "w+")


def source_of(
    phantoms: Path, folder: Path, shared: bool = False, **options: Any
) -> tuple[FeatureSource, Any]:
    config = tiny(**options)
    place = CachePlace(folder, shared)
    torch.manual_seed(0)
    samples = read_manifest(phantoms).split("train")[:5]
    model = build_model(config).eval()
    return FeatureSource("train", model, ImageStore(samples, config.data), config, place), model


@pytest.mark.parametrize(("cut", "shared"), [(5, False), (3, False), (1, False), (3, True)])
def test_every_view_of_every_image_comes_from_the_cache_as_from_the_images(
    phantoms: Path, tmp_path: Path, cut: int, shared: bool
) -> None:
    source, model = source_of(phantoms, tmp_path, shared)
    images, repeats = np.array([0, 4, 2, 2]), np.array([0, 0, 0, 1])

    def fetched() -> list[maps_module.FeatureBatch]:
        views = [source.fixed(images, repeats, epoch, 3) for epoch in range(3)]
        return [source.plain(images), *views]

    direct = fetched()
    fabric = start_fabric(1, "32-true", "cpu")
    source.open_cache(cut, 3, fabric, lambda: None)
    for mine, wanted in zip(fetched(), direct, strict=True):
        assert torch.equal(mine.masks, wanted.masks)
        assert torch.equal(mine.annotated, wanted.annotated)
        with torch.no_grad():
            z, expected = (model.pyramid_from_maps(f.maps) for f in (mine, wanted))
        for level, value in expected.items():
            torch.testing.assert_close(z[level], value, rtol=1e-5, atol=1e-6)
    views = [tuple(f.masks.flatten().tolist()) for f in direct]
    assert len(set(views)) > 1  # the views differ


def test_views_are_cached_in_the_precision_of_training_and_plain_images_exactly(
    phantoms: Path, tmp_path: Path
) -> None:
    images = np.arange(5)
    found = {}
    for precision in ("32-true", "bf16-mixed"):
        source, _ = source_of(phantoms, tmp_path / precision, train__precision=precision)
        source.open_cache(3, 1, start_fabric(1, precision, "cpu"), lambda: None)
        found[precision] = [source.plain(images), source.fixed(images, images * 0, 0, 1)]
    (plain, view), (plain_bf16, view_bf16) = found.values()
    assert torch.equal(plain_bf16.maps[3], plain.maps[3])
    assert torch.equal(view_bf16.maps[3], view_bf16.maps[3].bfloat16().float())
    assert not torch.equal(view_bf16.maps[3], view.maps[3])
    torch.testing.assert_close(view_bf16.maps[3], view.maps[3], rtol=0.05, atol=0.02)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one whenever a cache is built."""
    builds: list[int] = []
    original = FeatureSource._build
    monkeypatch.setattr(
        FeatureSource, "_build", lambda self, *rest: builds.append(1) or original(self, *rest)
    )
    return builds


def test_a_complete_cache_is_used_again_and_another_is_built_anew(
    phantoms: Path, tmp_path: Path, built: list[int]
) -> None:
    fabric = start_fabric(1, "32-true", "cpu")

    def open_again(views: int = 1, change: float = 0.0, **options: Any) -> int:
        source, model = source_of(phantoms, tmp_path, **options)
        with torch.no_grad():
            next(model.backbone.parameters()).add_(change)
        source.open_cache(5, views, fabric, lambda: None)
        return len(built)

    assert open_again() == 1
    assert open_again() == 1
    assert open_again(views=2) == 2
    assert open_again(views=2, change=1e-3) == 3
    assert open_again(views=2, change=1e-3, augmentation__rotation=3.0) == 4
    options = {"augmentation__rotation": 3.0, "train__seed": 5}
    assert open_again(views=2, change=1e-3, **options) == 5
    assert open_again(views=2, change=1e-3, train__precision="bf16-mixed", **options) == 6


def test_a_cache_made_with_another_padding_is_not_taken(phantoms: Path, tmp_path: Path) -> None:
    """Frozen weights of one kind of padding have the same bytes as those of the other."""
    facts = [
        source_of(phantoms, tmp_path, model__backbone__padding=padding)[0]
        for padding in ("zeros", "replicate")
    ]
    first, second = (
        cache_key(source._frozen_state(3), 3, 1, source.layouts(3, 1), *source._facts())
        for source in facts
    )
    assert first != second


def test_systems_with_the_same_frozen_blocks_share_a_cache(
    phantoms: Path, tmp_path: Path, built: list[int]
) -> None:
    """The black box reads one level and the pyramid four; what one has built, the other reads."""
    step = {"step": "train", "learns": ["backbone.4", "backbone.5", "neck", "prototypes", "head"]}
    end = [{"step": "project"}, {"step": "fit-head"}]
    shared = tmp_path / "shared"
    ours = tiny(train__schedule=[{**step, "views": 2}, *end])
    black_box = tiny(
        "vgg16", train__schedule=[{**step, "learns": ["backbone.4", "head"], "views": 2}]
    )
    own = train_run(ours, phantoms, tmp_path / "own")
    assert len(built) == 2  # the images of training and of validation
    train_run(black_box, phantoms, tmp_path / "first", cache=shared)
    assert len(built) == 4
    second = train_run(ours, phantoms, tmp_path / "second", cache=shared)
    assert len(built) == 4
    assert len(list(shared.iterdir())) == 2
    assert (own / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()


def test_a_shared_cache_is_built_by_one_process_while_others_wait(tmp_path: Path) -> None:
    ticks = []

    def tick() -> None:
        ticks.append(1)
        raise InterruptedError

    with hold(tmp_path / "cache", tick):
        assert not ticks
        with pytest.raises(InterruptedError), hold(tmp_path / "cache", tick):
            pytest.fail("two processes hold one cache")
    with hold(tmp_path / "cache", tick):
        assert len(ticks) == 1


def test_a_place_that_cannot_hold_a_cache_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="cannot be written"),
        hold(tmp_path / "file/cache", lambda: None),
    ):
        pytest.fail("a file held a cache")


def test_the_reference_has_deleted_its_cache(reference: Reference) -> None:
    assert not (reference.folder / "cache").exists()
