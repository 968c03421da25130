"""A small run that nobody trained: random weights, real phantoms, prototypes taken from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from protopyramid.config import load_config, load_overlay
from protopyramid.data.manifest import Manifest, read_manifest
from protopyramid.data.phantoms import write_phantoms
from protopyramid.data.store import ImageStore
from protopyramid.inference.batches import evidence_batches
from protopyramid.model.build import build_model
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.run import Run, load_run
from protopyramid.training.finish import finish_run, write_data_facts

from .library import library_defaults

COUNTS = {
    "model.prototypes.counts": {"2": 1, "4": 1, "5": 2},
    "model.prototypes.negative_counts": {"5": 1},
}


@pytest.fixture(scope="session")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """24 phantoms of 64 px; every split has every class."""
    folder = tmp_path_factory.mktemp("phantoms")
    return read_manifest(
        write_phantoms(folder, seed=3, patients=6, size=64, splits=(0.5, 0.2, 0.3))
    )


@pytest.fixture(scope="session")
def lesion(manifest: Manifest) -> Path:
    """An image file of the test split."""
    return next(s.image for s in manifest.split("test") if s.label == "spiculated")


def write_run(path: Path, manifest: Manifest, preset: str, settings: dict[str, object]) -> Run:
    """A run folder as training leaves it: each prototype is a patch of a training image."""
    small = {**library_defaults(preset), **load_overlay("small"), "data.image_size": 64}
    config = load_config(preset, {**small, **settings})
    torch.manual_seed(0)
    model = build_model(config).eval()
    folder = RunFolder(path)
    folder.begin(config)
    samples = manifest.split("train")
    store = ImageStore(samples, config.data)
    records = []
    if model.prototypes is not None:
        classes = config.data.classes
        for index, (owner, level) in enumerate(
            zip(model.prototypes.classes.tolist(), model.prototypes.levels.tolist(), strict=True)
        ):
            number = next(i for i, s in enumerate(samples) if s.label == classes[owner])
            seen = next(evidence_batches(model, store, [number]))
            z = model.pyramid(
                (
                    seen.loaded.images.expand(-1, 3, -1, -1)
                    - torch.tensor(config.data.mean)[:, None, None]
                )
                / torch.tensor(config.data.std)[:, None, None]
            )[level]
            row, col = z.shape[-2] // 2, index % z.shape[-1]
            model.prototypes.vectors.data[index] = z[0, :, row, col].detach()
            records.append(
                {
                    "index": index,
                    "class": classes[owner],
                    "level": level,
                    "image": samples[number].name,
                    "row": row,
                    "col": col,
                    "similarity": 0.9,
                }
            )
    finish_run(folder, config, model, store, records)
    write_data_facts(folder, manifest, config, {})
    return load_run(path)


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory, manifest: Manifest) -> Callable[..., Run]:
    def make(preset: str = "fpn-iaia-bl", **settings: object) -> Run:
        changes = {key.replace("__", "."): value for key, value in settings.items()}
        if preset == "fpn-iaia-bl":
            changes = {**COUNTS, **changes}
        return write_run(tmp_path_factory.mktemp("runs") / preset, manifest, preset, changes)

    return make


@pytest.fixture(scope="session")
def run(make_run: Callable[..., Run]) -> Run:
    return make_run()


@pytest.fixture(scope="session")
def black_box(make_run: Callable[..., Run]) -> Run:
    return make_run("vgg16")
