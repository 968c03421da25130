"""Whatever is sent, by the schema or against it, is answered without a failure of ours."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from PIL import Image
from starlette.testclient import TestClient

from protopyramid.data.manifest import Manifest

from .conftest import ADDRESS, MakeClient, png

EXAMPLES = 6  # per operation


@pytest.fixture
def everything(make_client: MakeClient, tmp_path: Path) -> TestClient:
    """A client of a server with a study and annotations."""
    return make_client(readings=tmp_path / "study", annotations=tmp_path / "drawn")


def test_requests_made_from_the_schema_never_fail_the_server(everything: TestClient) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    schema = schemathesis.openapi.from_dict(everything.get("/api/openapi.json").json())
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        tried += 1

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def no_failure(case: Any) -> None:
            answer = sent(everything, case)
            assert answer.status_code < 500 or answer.status_code == 503, (case, answer.text)
            if answer.status_code >= 400:
                assert set(answer.json()) == {"error"}, answer.text

        no_failure()
    assert tried >= 15


def sent(client: TestClient, case: Any) -> Any:
    """The answer to a generated request."""
    import requests

    asked = requests.Request(**case.as_transport_kwargs(base_url=ADDRESS)).prepare()
    headers = {name: value for name, value in asked.headers.items() if name != "Content-Length"}
    return client.request(
        str(asked.method), str(asked.url), headers=headers, content=asked.body or b""
    )


def damaged(rng: np.random.Generator, whole: bytes) -> bytes:
    """A file with bytes changed, cut out, repeated or cut off."""
    content = bytearray(whole)
    for _ in range(int(rng.integers(1, 6))):
        at = int(rng.integers(0, len(content)))
        kind = rng.integers(0, 4)
        if kind == 0:
            content[at] = int(rng.integers(0, 256))
        elif kind == 1:
            del content[at : at + int(rng.integers(1, 40))]
        elif kind == 2:
            content[at:at] = rng.bytes(int(rng.integers(1, 40)))
        else:
            content = content[: max(at, 1)]
    return bytes(content) or b"\0"


def originals() -> dict[str, bytes]:
    """Small good files of every kind."""
    rng = np.random.default_rng(1)
    grey = rng.integers(0, 256, (40, 30), np.uint8)
    deep = rng.integers(0, 65536, (40, 30)).astype(np.uint16)
    files = {"grey.png": png(grey), "deep.png": png(deep), "colour.png": png(np.dstack([grey] * 3))}
    for name, kind in (("a.jpg", "JPEG"), ("a.tif", "TIFF")):
        out = io.BytesIO()
        Image.fromarray(grey).save(out, kind)
        files[name] = out.getvalue()
    files["a.pgm"] = b"P5 30 40 255\n" + grey.tobytes()
    return files


def test_damaged_files_never_fail_the_server(everything: TestClient) -> None:
    rng = np.random.default_rng(20)
    files = list(originals().items())
    for name, whole in files:
        assert everything.post("/api/images", files={"file": (name, whole)}).status_code == 200
    for number in range(90):
        name, whole = files[number % len(files)]
        content = damaged(rng, whole)
        path = ("/api/images", "/api/explain")[number % 2]
        answer = everything.post(path, files={"file": (name, content)})
        assert answer.status_code in (200, 400, 413), (number, name, answer.text)
        drawn = everything.put("/api/annotations/0", files={"mask": (name, content)})
        assert drawn.status_code in (200, 400, 413), (number, name, drawn.text)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"reader": 1}',
        b'{"reader": null}',
        b'{"reader": "a\\u0000b"}',
        b'{"reader": "\\ud800"}',
        b'{"reader": "' + b"x" * 5000 + b'"}',
        json.dumps({"reader": "Ada", "place": 1e400}).encode(),
        b"\xff\xfe",
        b"[" * 2000,
    ],
)
@pytest.mark.parametrize("path", ["readers", "open", "answers"])
def test_hostile_json_is_refused(everything: TestClient, path: str, body: bytes) -> None:
    answer = everything.post(
        f"/api/readings/{path}", content=body, headers={"Content-Type": "application/json"}
    )
    assert 400 <= answer.status_code < 500, answer.text
    assert set(answer.json()) == {"error"}


def test_an_upload_leaves_no_file_and_no_line_with_its_name(
    everything: TestClient,
    manifest: Manifest,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every file that is opened for writing while uploads are served is counted, and there are none."""
    written: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and watching and isinstance(arguments[1], str) and arguments[1] != "r":
            if set("wax+") & set(arguments[1]):
                written.append(str(arguments[0]))
        elif event in ("os.mkdir", "os.rename", "shutil.copyfile") and watching:
            written.append(event)

    watching = False
    sys.addaudithook(watch)
    before = sorted(tmp_path.rglob("*"))
    good = png(np.random.default_rng(0).integers(0, 256, (90, 90), np.uint8))
    watching = True
    for name, content in (("DOE^JANE.png", good), ("DOE^JANE.dcm", b"broken"), ("DOE^JANE", good)):
        opened = everything.post("/api/images", files={"file": (name, content)})
        everything.post("/api/explain", files={"file": (name, content)})
        everything.post("/api/explain", files={"file": (name, content)}, data={"region": "1,1,9,9"})
        if opened.status_code == 200:
            everything.get(f"/api/images/{opened.json()['id']}/tiles/0/0/0")
    watching = False
    assert written == []
    assert sorted(tmp_path.rglob("*")) == before
    out, err = capfd.readouterr()
    assert "DOE" not in out + err and "JANE" not in out + err
