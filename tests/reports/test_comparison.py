"""The comparison figure and the teaser."""

from __future__ import annotations

from pathlib import Path

import pytest

from protopyramid.data.manifest import Manifest
from protopyramid.errors import UserError
from protopyramid.reports.comparison import leading, pick, write_comparison, write_teaser
from protopyramid.runs.run import Run


def test_comparison_and_teaser_are_drawn(
    run: Run, black_box: Run, manifest: Manifest, tmp_path: Path
) -> None:
    samples = manifest.split("test")
    for path in (
        write_comparison([run, black_box], samples, tmp_path / "comparison.png"),
        write_teaser([black_box, run], samples, tmp_path / "teaser.png"),
    ):
        assert path.read_bytes().startswith(b"\x89PNG")


def test_images_are_picked_from_every_class_in_turn(manifest: Manifest) -> None:
    classes = ["circumscribed", "indistinct", "spiculated", "negative"]
    chosen = pick(manifest.samples, classes, 6)
    assert [sample.label for sample in chosen] == [
        *["circumscribed"] * 2,
        *["indistinct"] * 2,
        "spiculated",
        "negative",
    ]
    assert pick(manifest.samples[:1], classes, 6) == [manifest.samples[0]]
    assert pick([], classes, 6) == []


def test_leading_prototype_is_of_the_predicted_class(run: Run, lesion: Path) -> None:
    explanation = run.explain(lesion)
    assert leading(explanation).class_name == explanation.predicted


def test_a_teaser_needs_a_run_with_prototypes(
    black_box: Run, manifest: Manifest, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="needs a run with prototypes"):
        write_teaser([black_box], manifest.split("test"), tmp_path / "teaser.png")
