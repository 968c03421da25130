"""Benchmarks at tiny settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protopyramid.benchmarks.growth import Growth
from protopyramid.benchmarks.settings import Settings

from .tiny import TINY


@pytest.fixture
def tiny() -> Settings:
    return replace(TINY, repetitions=2)


@pytest.fixture
def tiny_growth(tiny: Settings) -> Growth:
    return Growth(
        prototypes=(10, 20),
        classes=(4, 5),
        sides=(32, 48),
        images=(16, 32, 64),
        searched=32,
        repetitions=1,
        settings=tiny,
    )
