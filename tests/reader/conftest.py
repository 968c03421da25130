"""The reader's application with an untrained run, and a client that asks as a program does."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="the extra `reader` is not installed")

from starlette.testclient import TestClient

from protopyramid.data.manifest import Manifest
from protopyramid.reader.app import Reader, create_application
from protopyramid.reader.settings import Limits
from protopyramid.reader.shield import Access
from protopyramid.runs.run import Run

ADDRESS = "http://127.0.0.1:8000"
MakeClient = Callable[..., TestClient]


@pytest.fixture
def make_client(run: Run, manifest: Manifest) -> Iterator[MakeClient]:
    """A client of an application with other limits, runs or token."""
    clients: list[TestClient] = []

    def make(
        runs: list[Run] | None = None,
        limits: Limits | None = None,
        token: str | None = None,
        host: str = "127.0.0.1",
    ) -> TestClient:
        reader = Reader([run] if runs is None else runs, manifest.split("test"), limits)
        application = create_application(reader, Access(host, 8000, token))
        client = TestClient(application, base_url=ADDRESS, follow_redirects=False)
        client.__enter__()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def client(make_client: MakeClient) -> TestClient:
    return make_client()


def png(values: Any) -> bytes:
    """An array as PNG."""
    out = io.BytesIO()
    Image.fromarray(np.asarray(values)).save(out, "PNG")
    return out.getvalue()


def pixels(content: bytes) -> Any:
    """The array of a PNG."""
    return np.asarray(Image.open(io.BytesIO(content)))
