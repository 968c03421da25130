"""A feature cache gives back what was written, within a budget, and knows whether it is complete."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from protopyramid.errors import UserError
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

LAYOUT = CacheLayout(rows=5, shapes={2: (3, 4, 4), 5: (6, 2, 2)}, mask_size=12, half=False)


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


def test_a_cache_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    huge = CacheLayout(rows=1 << 40, shapes={2: (64, 64, 64)}, mask_size=8, half=False)
    with pytest.raises(UserError, match="cannot create the feature cache"):
        FeatureCache(tmp_path, huge, "w+")


def test_a_shared_cache_is_built_by_one_process_while_others_wait(tmp_path: Path) -> None:
    ticks = []

    class Waiting(Exception):
        pass

    def tick() -> None:
        ticks.append(1)
        raise Waiting

    with hold(tmp_path / "cache", tick):
        assert not ticks
        with pytest.raises(Waiting), hold(tmp_path / "cache", tick):
            pytest.fail("two processes hold one cache")
    with hold(tmp_path / "cache", tick):
        assert len(ticks) == 1


def test_a_place_that_cannot_hold_a_cache_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="file/cache: cannot be written"),
        hold(tmp_path / "file/cache", lambda: None),
    ):
        pytest.fail("a file held a cache")
