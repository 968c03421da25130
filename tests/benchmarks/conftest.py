"""Settings that make every benchmark a matter of a second: structure is tested, never time."""

from __future__ import annotations

import pytest

from protopyramid.benchmarks.growth import Growth
from protopyramid.benchmarks.settings import Settings
from protopyramid.config import load_overlay


@pytest.fixture
def tiny() -> Settings:
    return Settings(
        batch=2,
        step_batch=4,
        cached_batch=4,
        fine_batch=3,
        projected=12,
        head_images=40,
        repetitions=2,
        slow_repetitions=1,
        close_repetitions=1,
        quick_repetitions=1,
        children=1,
        latency=False,
        overrides={**load_overlay("small"), "data.image_size": 32},
    )


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
