"""The reader's application with an untrained run, and a client that asks as a program does."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi", reason="the extra `reader` is not installed")

from starlette.testclient import TestClient

from protopyramid.data.manifest import Manifest, Sample
from protopyramid.reader.app import Reader, create_application
from protopyramid.reader.settings import Limits
from protopyramid.reader.shield import Access
from protopyramid.runs.run import Run

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run", "--disable-extensions"),
]
WAIT = 60_000  # milliseconds: the machine may be busy
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
        readings: Path | None = None,
        annotations: Path | None = None,
        cases: Sequence[Sample] | None = None,
    ) -> TestClient:
        samples = manifest.split("test") if cases is None else cases
        reader = Reader([run] if runs is None else runs, samples, limits)
        if readings is not None:
            reader.serve_study(readings, 0)
        if annotations is not None:
            reader.serve_annotations(annotations, manifest.path)
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


# -- a real browser ------------------------------------------------------------------------------
@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """One Chromium for all tests of the page."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def serving_process(*arguments: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A reader that is started with these arguments, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "protopyramid", "serve", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=30)


@contextmanager
def serving(*arguments: Any) -> Iterator[str]:
    """The address of a reader that is started with these arguments."""
    with serving_process(*arguments) as (_, address):
        yield address


@pytest.fixture(scope="module")
def address(run: Run, black_box: Run, manifest: Manifest) -> Iterator[str]:
    with serving(run.folder.path, black_box.folder.path, "--data", manifest.path) as address:
        yield address


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page, on which no script may fail and nothing be loaded from elsewhere."""
    with watched_page(browser, address) as page:
        yield page


@contextmanager
def watched_page(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    """A page on which no script may fail and nothing be loaded from elsewhere."""
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 800}, **options})
    page.set_default_timeout(WAIT)
    problems: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda message: problems.append(message.text) if "Policy" in message.text else None,
    )
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    page.wait_for_selector("body[data-ready=true]")
    yield page
    page.close()
    assert problems == []
    assert [url for url in asked if not url.startswith((address, "blob:"))] == []
