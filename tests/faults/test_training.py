"""Training while its files vanish and the clock goes backwards."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from protopyramid.errors import UserError
from protopyramid.training.engine import train_run
from protopyramid.utils.faults import observed_by

from ..harness import Reference, tiny


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


def test_a_clock_that_goes_backwards_changes_nothing(
    reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = time.time()
    calls = iter(range(10**9))
    monkeypatch.setattr(time, "time", lambda: start - 3600.0 * next(calls))
    train_run(tiny(), reference.manifest, tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").read_bytes() == reference.model
