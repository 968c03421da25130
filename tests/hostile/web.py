"""The reader's HTTP API as an entry point: any answer below 500 is an answer."""

from __future__ import annotations

import sys
from pathlib import Path

ADDRESS = "http://127.0.0.1:8000"


def upload(slot: str) -> int:
    """Send a file to the reader, as a browser does, and ask for its explanation."""
    path = Path(slot)
    if (
        not path.is_file() or path.stat().st_size > 2**28
    ):  # a browser sends the bytes of files alone
        return 0
    return _ask(path, [])


def cases(slot: str) -> int:
    """Start the reader with a manifest and open its first case."""
    from protopyramid.data.manifest import read_manifest

    return _ask(None, list(read_manifest(slot).samples))


def _ask(path: Path | None, samples: list[object]) -> int:
    from starlette.testclient import TestClient

    from protopyramid.reader.app import Reader, create_application
    from protopyramid.reader.shield import Access
    from protopyramid.runs.run import load_run

    reader = Reader([load_run("run")], samples, None)  # type: ignore[arg-type]
    application = create_application(reader, Access("127.0.0.1", 8000, None))
    with TestClient(application, base_url=ADDRESS, follow_redirects=False) as client:
        if path is None:
            answers = [client.get("/api/cases"), client.post("/api/cases/0")]
        else:
            content = path.read_bytes()
            name = path.name
            answers = [
                client.post("/api/images", files={"file": (name, content)}),
                client.post("/api/explain", files={"file": (name, content)}, data={"run": "run"}),
            ]
    for answer in answers:
        if answer.status_code >= 500 and answer.status_code != 503:
            print(f"Traceback: {answer.status_code} {answer.text[:500]}", file=sys.stderr)
            return 1
        if answer.status_code >= 400:
            print(f"protopyramid: error: {answer.json()}", file=sys.stderr)
            return 2
    return 0
