"""Downloads: what breaks is continued or begun again, and nothing but http(s) is opened."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from protopyramid.utils.downloads import DownloadError, WrongDigest, download

CONTENT = bytes(range(256)) * 4000


class Site(BaseHTTPRequestHandler):
    """Serves `content`; breaks off each of the first `breaks` answers after `sent` bytes."""

    content, breaks, sent, etag, ranges = CONTENT, 0, 1000, '"one"', True
    location = ""
    seen: tuple[str, ...] = ()

    def do_GET(self) -> None:
        kind = type(self)
        kind.seen = (*kind.seen, self.headers.get("Range") or self.path)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", kind.location)
            self.end_headers()
            return
        start, status = 0, 200
        wanted = self.headers.get("Range")
        if wanted and kind.ranges and self.headers.get("If-Range") == kind.etag:
            start, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
        self.send_response(status)
        rest = kind.content[start:]
        self.send_header("Content-Length", str(len(rest)))
        if kind.etag:
            self.send_header("ETag", kind.etag)
        if status == 206:
            total = len(kind.content)
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.end_headers()
        if kind.breaks:
            kind.breaks -= 1
            rest = rest[: kind.sent]
        self.wfile.write(rest)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[tuple[type[Site], str]]:
    handler = type("OneSite", (Site,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(timeout=10)


def test_a_broken_connection_is_continued_where_it_broke(site, tmp_path: Path) -> None:
    handler, url = site
    handler.breaks = 2
    path = download(f"{url}/a", tmp_path / "a", digest=hashlib.sha256(CONTENT).hexdigest())
    assert path.read_bytes() == CONTENT
    assert handler.seen == ("/a", "bytes=1000-", "bytes=2000-")


@pytest.mark.parametrize("change", [{"etag": ""}, {"etag": 'W/"weak"'}, {"ranges": False}])
def test_where_a_server_cannot_continue_the_download_begins_again(
    site, tmp_path: Path, change: dict[str, object]
) -> None:
    handler, url = site
    handler.breaks = 1
    for name, value in change.items():
        setattr(handler, name, value)
    assert download(f"{url}/a", tmp_path / "a").read_bytes() == CONTENT


def test_a_connection_that_breaks_every_time_is_given_up_and_leaves_nothing(
    site, tmp_path: Path
) -> None:
    handler, url = site
    handler.breaks = 99
    with pytest.raises(DownloadError, match="3000 of 1024000 bytes"):
        download(f"{url}/a", tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    assert len(handler.seen) == 3


def test_a_wrong_digest_is_refused_and_leaves_nothing(site, tmp_path: Path) -> None:
    with pytest.raises(WrongDigest, match="expected 000"):
        download(f"{site[1]}/a", tmp_path / "a", digest="0" * 64)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("etag", ['"one"', ""])
def test_what_is_larger_than_the_limit_is_refused(site, tmp_path: Path, etag: str) -> None:
    with pytest.raises(DownloadError, match="larger than"):
        download(f"{site[1]}/a", tmp_path / "a", limit=10_000)
    assert list(tmp_path.iterdir()) == []


def test_a_redirect_is_followed(site, tmp_path: Path) -> None:
    handler, url = site
    handler.location = f"{url}/a"
    assert download(f"{url}/moved", tmp_path / "a").read_bytes() == CONTENT


@pytest.mark.parametrize("place", ["file:///etc/hostname", "ftp://127.0.0.1/a", "data:,hello"])
def test_a_redirect_to_something_else_than_http_is_refused(
    site, tmp_path: Path, place: str
) -> None:
    handler, url = site
    handler.location = place
    with pytest.raises(DownloadError, match=r"not followed|could not be downloaded"):
        download(f"{url}/moved", tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_redirects_in_a_circle_end(site, tmp_path: Path) -> None:
    handler, url = site
    handler.location = f"{url}/moved"
    with pytest.raises(DownloadError):
        download(f"{url}/moved", tmp_path / "a")
    assert len(handler.seen) < 12


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://x/y", "/etc/hostname", "http:"])
def test_only_http_addresses_are_opened(tmp_path: Path, url: str) -> None:
    with pytest.raises(DownloadError):
        download(url, tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
