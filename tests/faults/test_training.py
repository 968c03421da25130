"""Training while its files vanish and the clock goes backwards."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from PIL import Image

from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError
from protopyramid.training.engine import train_run
from protopyramid.utils.faults import observed_by

from ..harness import Command, Reference, fault, tiny


@pytest.mark.parametrize("change", ["vanishes", "is another"])
@pytest.mark.parametrize("point", ["cache-write", "project", "validate"])
def test_an_image_that_vanishes_or_changes_stops_the_run_by_name_or_not_at_all(
    reference: Reference, tmp_path: Path, change: str, point: str
) -> None:
    shutil.copytree(reference.manifest.parent, tmp_path / "data")
    manifest = tmp_path / "data" / reference.manifest.name
    image = sorted((tmp_path / "data/images").glob("*.png"))[0]
    kept = image.read_bytes()

    def spoil(reached: str) -> None:
        if reached == point and image.exists():
            if change == "vanishes":
                image.unlink()
            else:
                image.write_bytes(b"another")

    out = tmp_path / "run"
    try:
        with observed_by(spoil):
            train_run(tiny(), manifest, out)
    except UserError as error:
        assert image.name in str(error)
        image.write_bytes(kept)
        train_run(tiny(), manifest, out, resume=True)
    assert (out / "model.safetensors").read_bytes() == reference.model


@pytest.mark.parametrize("kind", ["images", "masks"])
def test_a_file_that_changes_between_epochs_is_named_and_the_run_continues_when_it_is_back(
    reference: Reference, tmp_path: Path, kind: str
) -> None:
    """Without room in memory, every epoch reads every file."""
    shutil.copytree(reference.manifest.parent, tmp_path / "data")
    manifest = tmp_path / "data" / reference.manifest.name
    train = next(each for each in read_manifest(manifest).split("train") if each.mask is not None)
    file = train.image if kind == "images" else train.mask
    assert file is not None
    kept, status = file.read_bytes(), file.stat()
    schedule = [{"step": "train", "learns": ["backbone", "head"], "epochs": 2}]
    config = tiny("vgg16", data__memory_budget=0.0, train__schedule=schedule)
    out = tmp_path / "run"

    def spoil(point: str) -> None:
        if point == "validate" and file.read_bytes() == kept:  # at the end of the first epoch
            image = Image.open(file)
            image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(file)

    with observed_by(spoil), pytest.raises(UserError, match=f"{file.name}: has changed while"):
        train_run(config, manifest, out)
    with pytest.raises(UserError, match=f"{file.name}: has changed since .* was started"):
        train_run(config, manifest, out, resume=True)
    file.write_bytes(kept)  # the same content, at another time
    assert file.stat().st_mtime_ns != status.st_mtime_ns
    train_run(config, manifest, out, resume=True)
    train_run(config, manifest, tmp_path / "whole")
    models = [(each / "model.safetensors").read_bytes() for each in (out, tmp_path / "whole")]
    assert models[0] == models[1]


def test_checkpoints_of_a_killed_run_are_those_of_an_uninterrupted_one(
    command: Command, reference: Reference, tmp_path: Path
) -> None:
    """Not those of a run that a signal stopped in the middle of an epoch: it saves that very batch."""
    out = tmp_path / "run"
    for point in ("batch", "project", "fit-head", "best"):
        command(*reference.arguments(out), "--resume", faults=[fault(point, 2)])
    assert command(*reference.arguments(out), "--resume").code == 0
    found, expected = (
        {path.name: path.read_bytes() for path in (folder / "checkpoint").iterdir()}
        for folder in (out, reference.folder)
    )
    assert sorted(found) == sorted(expected)
    assert [name for name in found if found[name] != expected[name]] == []


def test_a_clock_that_goes_backwards_changes_nothing(
    reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = time.time()
    calls = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: start - 3600.0 * next(calls))
    train_run(tiny(), reference.manifest, tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").read_bytes() == reference.model
