"""Galleries of prototypes and their nearest images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protopyramid.data.manifest import Manifest
from protopyramid.errors import UserError
from protopyramid.prototypes.neighbours import nearest_images
from protopyramid.reports.gallery import write_gallery, write_nearest
from protopyramid.runs.run import Run


def test_gallery_and_nearest_are_written(run: Run, manifest: Manifest, tmp_path: Path) -> None:
    assert write_gallery(run, tmp_path).read_bytes().startswith(b"\x89PNG")
    nearest = {"train": nearest_images(run, manifest.split("train"), 2)}
    written = write_nearest(run, nearest, tmp_path)
    content = json.loads(written[0].read_text())
    assert [entry["index"] for entry in content] == list(range(len(run.prototypes)))
    assert set(content[0]["nearest"]["train"][0]) >= {
        "image",
        "label",
        "split",
        "similarity",
        "box",
    }
    assert {path.name for path in written[1:]} == {
        f"prototypes_nearest_{name}.png" for name in run.config.data.classes
    }


def test_a_black_box_has_no_prototypes_to_show(black_box: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="black box"):
        write_gallery(black_box, tmp_path)
