"""Small runs with random weights on phantoms, as the trainer would leave them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from protopyramid.config import load_config
from protopyramid.config.small import SMALL
from protopyramid.data.images import content_hash, read_image
from protopyramid.data.manifest import Sample, read_manifest, with_validation
from protopyramid.data.phantoms import write_phantoms
from protopyramid.model import build_model
from protopyramid.run import PrototypeRecord, Run, RunFolder, load_run


def hashes(samples: tuple[Sample, ...]) -> dict[str, str]:
    return {sample.name: content_hash(read_image(sample.image)) for sample in samples}


def make_run(
    folder: Path, manifest: Path, preset: str = "fpn-iaia-bl", **overrides: Any
) -> Run:
    """A finished run of random weights whose data.json tells of the manifest's training rows."""
    torch.manual_seed(0)
    config = load_config(preset, {**SMALL, **overrides})
    model = build_model(config)
    table = with_validation(read_manifest(manifest), 0.3, seed=0)
    run = RunFolder(folder)
    run.begin(config)
    run.write_tensors("model.safetensors", model.state_dict())
    records = []
    if model.prototypes is not None:
        for index, (owner, level) in enumerate(
            zip(model.prototypes.classes.tolist(), model.prototypes.levels.tolist(), strict=True)
        ):
            name = config.data.classes[owner]
            source = next(each for each in table.split("train") if each.label == name)
            records.append(PrototypeRecord(index, name, level, source.name, 0, 0, 0.9).to_json())
    run.write_json("prototypes.json", records)
    run.write_json(
        "data.json",
        {
            "classes": config.data.classes,
            "splits": {part: hashes(table.split(part)) for part in ("train", "validation")},
            "manifest": manifest.name,
            "manifest_path": os.path.relpath(manifest, folder),
        },
    )
    return load_run(folder)


@pytest.fixture(scope="session", autouse=True)


@pytest.fixture(scope="session")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manifest of 12 patients with one patch of each class."""
    return write_phantoms(tmp_path_factory.mktemp("phantoms"), patients=12, size=64)


@pytest.fixture
def run(tmp_path: Path, phantoms: Path) -> Run:
    return make_run(tmp_path / "run", phantoms)


@pytest.fixture
def new_run(tmp_path: Path, phantoms: Path) -> Callable[..., Run]:
    """Make a run: new_run(name, preset, **overrides)."""

    def make(name: str = "run", preset: str = "fpn-iaia-bl", **overrides: Any) -> Run:
        return make_run(tmp_path / name, phantoms, preset, **overrides)

    return make
