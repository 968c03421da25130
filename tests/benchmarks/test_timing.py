"""Both sides of a ratio run in turns, and the ratio is that of medians."""

import gc

import pytest

from protopyramid.benchmarks.timing import Pair, in_turns, medians_in_turns, seconds


def test_the_sides_run_in_turns_after_one_warm_up_each():
    calls: list[str] = []
    pair = in_turns(lambda: calls.append("a"), lambda: calls.append("b"), 3)
    assert calls == ["a", "b"] * 4
    assert len(pair.ours) == len(pair.reference) == 3
    assert all(time >= 0 for time in (*pair.ours, *pair.reference))


def test_one_slow_turn_changes_the_spread_but_not_the_ratio():
    calm = Pair((2.0, 2.0, 2.0), (1.0, 1.0, 1.0))
    shaken = Pair((2.0, 2.0, 50.0), (1.0, 1.0, 1.0))
    assert calm.ratio == shaken.ratio == 2.0
    assert calm.spread == (2.0, 2.0)
    assert shaken.spread == (2.0, 50.0)


def test_the_warm_up_is_not_measured(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    calls: list[str] = []
    works = [lambda: calls.append("a"), lambda: calls.append("b")]
    assert medians_in_turns(works, 4) == (1, 1)
    assert calls == ["a", "b"] * 5


def test_garbage_collection_is_on_again_after_an_error():
    with pytest.raises(ZeroDivisionError):
        seconds(lambda: 1 / 0)
    assert gc.isenabled()
