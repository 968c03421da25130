"""TensorBoard logs, where the package is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from protopyramid.runs.run import load_run
from protopyramid.training.engine import train_run

from ..harness import Reference, tiny


def test_scalars_are_written_for_tensorboard(reference: Reference) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(reference.folder / "tensorboard"))
    events.Reload()
    scalars = set(events.Tags()["scalars"])
    assert {"losses/cross_entropy", "validation/auroc", "nearest_similarity/mean"} <= scalars
    assert len(events.Tags()["images"]) == len(load_run(reference.folder).prototypes)


def test_without_the_package_one_line_says_so_and_training_is_the_same(
    reference: Reference,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    out = train_run(tiny(), reference.manifest, tmp_path / "run")
    lines = [line for line in capsys.readouterr().err.splitlines() if "TensorBoard" in line]
    assert len(lines) == 1
    assert "pip install 'protopyramid[tensorboard]'" in lines[0]
    assert not (out / "tensorboard").exists()
    assert (out / "model.safetensors").read_bytes() == reference.model
