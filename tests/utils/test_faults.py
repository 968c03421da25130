"""The points at which things may go wrong: all are documented, and all are really reached."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from protopyramid.training.engine import train_run
from protopyramid.utils.faults import POINTS, observed_by, reached

from ..harness import tiny


def test_nothing_happens_without_an_observer() -> None:
    seen: list[str] = []
    with observed_by(seen.append):
        reached("batch")
    reached("batch")
    assert seen == ["batch"]


def test_an_observer_may_raise_and_is_gone_afterwards() -> None:
    def fail(point: str) -> None:
        raise OSError(point)

    with pytest.raises(OSError, match="project"), observed_by(fail):
        reached("project")
    reached("project")


def test_a_training_reaches_every_point_as_often_as_its_plan_says(
    phantoms: Path, tmp_path: Path
) -> None:
    seen: list[str] = []
    with observed_by(seen.append):
        train_run(tiny(), phantoms, tmp_path / "run")
    counts = Counter(seen)
    assert set(counts) == set(POINTS)
    assert counts["start"] == 1
    assert counts["batch"] == 3 * 24 / 8
    assert counts["project"] == counts["fit-head"] == 2
    assert counts["project-batch"] == 2 * 24 / 8
    # One after each epoch, two around each projection, one after each fit.
    assert counts["validate"] == 3 + 2 * 2 + 2
    # At the start, after each epoch, each train phase and every other phase.
    assert counts["checkpoint"] == 1 + 3 + 2 + 4
