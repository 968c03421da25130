"""Settings that make every benchmark a matter of a second: structure is tested, never time."""

from __future__ import annotations

from protopyramid.benchmarks.settings import Settings
from protopyramid.config import load_overlay

TINY = Settings(
    batch=2,
    step_batch=4,
    cached_batch=4,
    fine_batch=3,
    projected=12,
    head_images=40,
    repetitions=1,
    slow_repetitions=1,
    close_repetitions=1,
    quick_repetitions=1,
    children=1,
    clients=4,
    film=(700, 600),
    predicted=5,
    latency=False,
    overrides={**load_overlay("small"), "data.image_size": 32},
)
