"""The reader's HTTP API as an entry point: any answer below 500 is an answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def fields(name: str) -> int:
    """Send a good image, with a bad name in one field after the other."""
    content = Path("pictures/a.png").read_bytes()
    good = {"run": "run", "region": "1,1,40,40"}
    asked = [
        ("/api/explain", {**good, field: name}) for field in ("run", "region", "lesion", "image")
    ]
    asked += [("/api/explain/png", {**good, "region": name})]
    with _client([]) as client:
        answers = [client.post(path, files=_file(content), data=data) for path, data in asked]
        answers += [
            client.post(path, files={"file": (name, content)}, data={"run": "run"})
            for path in ("/api/images", "/api/explain")
        ]
        answers += [_raw(client, name, content)]
        answers += [
            client.get("/api/images/x/picture", params={"region": name}),
            client.post("/api/runs/run/edits", json={"name": name, "remove": [0]}),
            client.post("/api/runs/run/edits", json={"name": "new", "weights": {"0": {name: 1.0}}}),
        ]
    return _judge(answers, told=False)


def _file(content: bytes) -> dict[str, Any]:
    return {"file": ("a.png", content)}


def _raw(client: Any, name: str, content: bytes) -> Any:
    """A form whose name stands as it is, with line breaks and quotation marks."""
    head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = head.encode(errors="replace") + content + b"\r\n--x--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    return client.post("/api/images", content=body, headers=headers)


def serve(*arguments: str) -> int:
    """Start the reader as a user does, to the moment in which it would listen for ever."""
    import uvicorn

    from protopyramid.cli.main import main

    uvicorn.Server.run = lambda *_, **__: None  # type: ignore[method-assign]
    return main(["serve", *arguments])


def drawn(slot: str) -> int:
    """Start the reader with a folder of annotations, and take back what was drawn."""
    from protopyramid.data.manifest import read_manifest
    from protopyramid.reader.annotations import AnnotationFolder

    manifest = read_manifest("data/manifest.csv")
    folder = AnnotationFolder(Path(slot).parent, manifest.samples, manifest.path)
    folder.remove(0)
    folder.close()
    return 0


def pulled(slot: str) -> int:
    """Pull a packed model, and use it."""
    from protopyramid.cli.main import main

    return main(["models", "pull", slot, "--name", "new-one"]) or main(
        ["explain", "new-one", "pictures/a.png", "--out", "new"]
    )


def _client(samples: list[object]) -> Any:
    from starlette.testclient import TestClient

    from protopyramid.reader.app import Reader, create_application
    from protopyramid.reader.shield import Access
    from protopyramid.runs.run import load_run

    reader = Reader([load_run("run")], samples, None)  # type: ignore[arg-type]
    application = create_application(reader, Access("127.0.0.1", 8000, None))
    return TestClient(application, base_url=ADDRESS, follow_redirects=False)


def _ask(path: Path | None, samples: list[object]) -> int:
    with _client(samples) as client:
        if path is None:
            answers = [client.get("/api/cases"), client.post("/api/cases/0")]
        else:
            content = path.read_bytes()
            name = path.name
            answers = [
                client.post("/api/images", files={"file": (name, content)}),
                client.post("/api/explain", files={"file": (name, content)}, data={"run": "run"}),
            ]
    return _judge(answers)


def _judge(answers: list[Any], told: bool = True) -> int:
    """0 where all is well, 2 where something was refused, 1 where the server failed."""
    for answer in answers:
        if answer.status_code >= 500 and answer.status_code != 503:
            print(f"Traceback: {answer.status_code} {answer.text[:500]}", file=sys.stderr)
            return 1
        if answer.status_code >= 400 and told:
            print(f"protopyramid: error: {answer.json()}", file=sys.stderr)
            return 2
    return 0


WORK: dict[str, Callable[..., int]] = {
    "SERVE": serve,
    "UPLOAD": upload,
    "CASES": cases,
    "FIELDS": fields,
    "DRAWN": drawn,
    "PULL": pulled,
}
