"""Runs with random weights on phantoms, as training would leave them, for tests of what comes after."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RunMaker = Callable[..., Any]

# The tests' tensors are tiny: more threads only wait for each other. Set before torch is imported, and
# passed on to the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def make_run(folder: Path, manifest: Path, preset: str, **overrides: Any) -> Any:
    """A finished run whose data.json tells of the manifest's training rows."""
    import torch

    from protopyramid.config import load_config
    from protopyramid.config.small import SMALL
    from protopyramid.data.images import content_hash, prepare_sample, read_image
    from protopyramid.data.manifest import read_manifest, with_validation
    from protopyramid.model import build_model
    from protopyramid.run import PrototypeRecord, RunFolder, load_run
    from protopyramid.training.finish import picture_bytes

    torch.manual_seed(overrides.pop("seed", 0))
    config = load_config(preset, {**SMALL, "data.image_size": 64, **overrides})
    model = build_model(config)
    table = with_validation(read_manifest(manifest), 0.3, seed=0)
    run = RunFolder(folder)
    run.begin(config)
    run.write_tensors("model.safetensors", model.state_dict())
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
            run.write_bytes(f"prototypes/{index:03d}.png", picture)
    run.write_json("prototypes.json", records)
    seen = {
        part: {each.name: content_hash(read_image(each.image)) for each in table.split(part)}
        for part in ("train", "validation")
    }
    content = {"classes": config.data.classes, "splits": seen, "manifest": manifest.name}
    content["manifest_path"] = os.path.relpath(manifest, folder)
    run.write_json("data.json", content)
    return load_run(folder)


@pytest.fixture(scope="session")
def phantom_manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of 15 patients with one patch of each class, and masks and boxes. Read only."""
    from protopyramid.data.phantoms import write_phantoms

    return write_phantoms(tmp_path_factory.mktemp("phantoms"), patients=15, size=64)


@pytest.fixture
def new_run(tmp_path: Path, phantom_manifest: Path) -> RunMaker:
    """Make a run with random weights: new_run(name, preset, manifest=..., seed=..., **overrides)."""

    def make(
        name: str = "run",
        preset: str = "fpn-iaia-bl",
        manifest: Path = phantom_manifest,
        **overrides: Any,
    ) -> Any:
        return make_run(tmp_path / name, manifest, preset, **overrides)

    return make
