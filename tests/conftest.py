"""Runs with random weights on phantoms, as training would leave them, for tests of what comes after."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RunMaker = Callable[..., Any]

# Folders and files that train, export, kill, start processes or draw: minutes in all. `make test-fast`
# leaves them out (`-m "not slow"`).
SLOW = (
    "benchmarks",
    "cli/test_bench.py",
    "cli/test_compare.py",
    "cli/test_compile.py",
    "cli/test_demo.py",
    "cli/test_dicom.py",
    "cli/test_evaluate.py",
    "cli/test_export.py",
    "cli/test_prototypes.py",
    "cli/test_regions.py",
    "cli/test_serve.py",
    "cli/test_study.py",
    "data/importers/test_writer.py",
    "data/negatives",
    "data/test_phantoms.py",
    "evaluation",
    "faults",
    "explanations",
    "exporting",
    "golden",
    "hostile",
    "inference/test_batches.py",
    "model/test_portability.py",
    "prototypes",
    "reader",
    "reports",
    "sharing",
    "studies/test_crossval.py",
    "studies/test_job.py",
    "studies/test_pool.py",
    "test_api.py",
    "test_notebooks.py",
    "test_package.py",
    "test_snippets_run.py",
    "training/phases",
    "training/test_caching.py",
    "training/test_centring.py",
    "training/test_distributed.py",
    "training/test_feature_cache.py",
    "training/test_films.py",
    "training/test_finish.py",
    "training/test_kill.py",
    "training/test_resume.py",
    "training/test_start.py",
    "training/test_trainer.py",
)

# The tests' tensors are tiny: more threads only wait for each other. Set before torch is imported, and
# passed on to the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from .harness import (  # noqa: E402, F401
    command,
    one_thread,
    phantoms,
    reference,
    server,
    tiny_toml,
)
from .untrained import black_box, lesion, make_run, manifest, run  # noqa: E402, F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow; a name in SLOW that is gone is an error, not a test that becomes fast."""
    here = Path(__file__).parent
    slow = [here / name for name in SLOW]
    gone = [str(path) for path in slow if not path.exists()]
    if gone:
        raise pytest.UsageError(f"SLOW in {__file__} names what does not exist: {gone}")
    for item in items:
        if any(item.path.is_relative_to(path) for path in slow):
            item.add_marker(pytest.mark.slow)


def random_run(path: Path, table_path: Path, preset: str, **overrides: Any) -> Any:
    """A finished run whose data.json tells of the manifest's training rows."""
    import torch

    from protopyramid.config import load_config, load_overlay
    from protopyramid.data.images import content_hash, prepare_sample, read_image
    from protopyramid.data.manifest import read_manifest, with_validation
    from protopyramid.model import build_model
    from protopyramid.runs.folder import RunFolder
    from protopyramid.runs.records import PrototypeRecord
    from protopyramid.runs.run import load_run
    from protopyramid.training.finish import picture_bytes

    from .library import library_defaults

    torch.manual_seed(overrides.pop("seed", 0))
    small = {**library_defaults(preset), **load_overlay("small"), "data.image_size": 64}
    config = load_config(preset, {**small, **overrides})
    model = build_model(config)
    table = with_validation(read_manifest(table_path), 0.3, seed=0)
    folder = RunFolder(path)
    folder.begin(config)
    folder.write_tensors("model.safetensors", model.state_dict())
    records = []
    if model.prototypes is not None:
        pairs = zip(
            model.prototypes.classes.tolist(), model.prototypes.levels.tolist(), strict=True
        )
        for index, (owner, level) in enumerate(pairs):
            name = config.data.classes[owner]
            source = next(each for each in table.split("train") if each.label == name)
            records.append(PrototypeRecord(index, name, level, source.name, 0, 0, 0.9).to_json())
            picture = picture_bytes(prepare_sample(source, config.data).image)
            folder.write_bytes(f"prototypes/{index:03d}.png", picture)
    folder.write_json("prototypes.json", records)
    seen = {
        part: {each.name: content_hash(read_image(each.image)) for each in table.split(part)}
        for part in ("train", "validation")
    }
    content = {"classes": config.data.classes, "splits": seen, "manifest": table_path.name}
    content["manifest_path"] = os.path.relpath(table_path, path)
    folder.write_json("data.json", content)
    return load_run(path)


@pytest.fixture(scope="session")
def phantom_manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of 15 patients with one patch of each class, and masks and boxes. Read only."""
    from protopyramid.data.phantoms import write_phantoms

    return write_phantoms(tmp_path_factory.mktemp("phantoms"), patients=15, size=64)


@pytest.fixture
def new_run(tmp_path: Path, phantom_manifest: Path) -> RunMaker:
    """Make a run with random weights: new_run(name, preset, table_path=..., seed=..., **overrides)."""

    def make(
        name: str = "run",
        preset: str = "fpn-iaia-bl",
        table_path: Path = phantom_manifest,
        **overrides: Any,
    ) -> Any:
        return random_run(tmp_path / name, table_path, preset, **overrides)

    return make
