"""Annotations over HTTP: what is sent is on disk, and what cannot be one is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from protopyramid.data.manifest import Manifest, read_manifest

from .conftest import MakeClient, pixels, png
from .test_app import error_of


@pytest.fixture
def drawing(make_client: MakeClient, tmp_path: Path) -> TestClient:
    return make_client(annotations=tmp_path / "drawn")


def square(side: int = 64, **kind: Any) -> bytes:
    values = np.zeros((side, side), np.uint8)
    values[10:30, 20:40] = 255
    return png(values)


def test_a_mask_and_a_box_are_found_on_disk(
    drawing: TestClient, manifest: Manifest, tmp_path: Path
) -> None:
    assert drawing.get("/api/runs").json()["annotations"] is True
    listed = drawing.get("/api/annotations").json()["cases"]
    case = manifest.split("test")[2]
    assert listed[2]["name"] == case.name and listed[2]["annotation"] == ""
    answer = drawing.put(
        "/api/annotations/2", files={"mask": ("m.png", square())}, data={"box": "5,6,50,60"}
    )
    assert answer.json()["annotation"] == "mask and box"
    row = next(
        each
        for each in read_manifest(tmp_path / "drawn/manifest.csv").samples
        if each.extra["annotation"]
    )
    assert row.image.resolve() == case.image.resolve() and row.box == (5, 6, 50, 60)
    assert row.mask is not None
    expected = pixels(square())
    assert np.array_equal(np.asarray(Image.open(row.mask)), expected)
    assert np.array_equal(pixels(drawing.get("/api/annotations/2/mask.png").content), expected)
    assert drawing.delete("/api/annotations/2").json()["annotation"] == ""
    assert not row.mask.exists()


def test_colour_and_antialiased_masks_are_cut_at_half(drawing: TestClient) -> None:
    values = np.zeros((64, 64, 3), np.uint8)
    values[5:20, 5:20] = 255
    values[20, 5:20], values[21, 5:20] = 140, 110
    drawing.put("/api/annotations/0", files={"mask": ("m.png", png(values))})
    found = pixels(drawing.get("/api/annotations/0/mask.png").content)
    assert np.array_equal(found > 0, values[..., 0] > 127)
    assert set(np.unique(found).tolist()) == {0, 255}


@pytest.mark.parametrize(
    ("number", "files", "data", "status"),
    [
        (0, {"mask": ("m.png", b"broken")}, {}, 400),
        (0, {"mask": ("m.png", square(63))}, {}, 400),
        (0, {"mask": ("m.png", png(np.zeros((64, 64), np.uint8)))}, {}, 400),
        (0, {}, {"box": "1,2,3"}, 400),
        (0, {}, {"box": "900,900,950,950"}, 400),
        (0, {}, {"box": "1,1,9,9", "label": "round"}, 400),
        (0, {}, {}, 400),
        (99, {}, {"box": "1,1,9,9"}, 404),
        ("x", {}, {"box": "1,1,9,9"}, 422),
    ],
)
def test_what_cannot_be_an_annotation_is_refused(
    drawing: TestClient, tmp_path: Path, number: Any, files: Any, data: Any, status: int
) -> None:
    error_of(drawing.put(f"/api/annotations/{number}", files=files, data=data), status)
    assert not (tmp_path / "drawn/manifest.csv").exists()
    assert not (tmp_path / "drawn/masks").exists()


def test_a_bomb_is_refused_before_it_is_decoded(
    make_client: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from protopyramid.reader.settings import Limits

    client = make_client(annotations=tmp_path / "drawn", limits=Limits(pixels=5_000))
    monkeypatch.setattr("protopyramid.reader.annotations_routes.decode", None)
    error_of(client.put("/api/annotations/0", files={"mask": ("m.png", square(100))}), 413)


def test_pages_of_other_sites_cannot_draw(drawing: TestClient) -> None:
    for method in ("PUT", "DELETE"):
        answer = drawing.request(
            method, "/api/annotations/0", headers={"Origin": "http://evil.example"}
        )
        assert answer.status_code == 403
