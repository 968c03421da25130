"""Downloads over HTTP: with progress, a limit, a checksum, and a second attempt where a connection breaks.

    path = download("https://example.org/margins.zip", target, digest="9f86…", limit=10**9)

The file is whole or not there. Nothing but http and https is opened, also after a redirect, and a redirect
never leads from https to http.
"""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO
from urllib.error import HTTPError
from urllib.parse import urlsplit

from protopyramid.errors import UserError
from protopyramid.utils.files import replacing
from protopyramid.utils.progress import Bars, Update, no_bar

TIMEOUT = 30.0  # seconds without an answer before a connection is given up
CHUNK = 1 << 20
ATTEMPTS = 3  # connections, of which all but the first continue where the last one broke
MOST_REDIRECTS = 5
SCHEMES = ("http", "https")
PARTIAL_CONTENT = 206


class DownloadError(UserError):
    """A file that could not be downloaded."""


class WrongDigest(DownloadError):
    """A file that was downloaded and is not the one that was meant."""


class _Broken(Exception):
    """A connection that ended too early: worth another attempt."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows few redirects, to http and https only and never from https to http."""

    max_redirections = MOST_REDIRECTS

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The request that follows a redirect."""
        to, origin = urlsplit(newurl).scheme.lower(), urlsplit(req.full_url).scheme.lower()
        if to not in SCHEMES or (origin == "https" and to == "http"):
            raise DownloadError(f"{req.full_url}: redirects to {newurl}, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def is_url(text: str) -> bool:
    """Whether a text is an address of the web, as opposed to a name or a file.

    >>> is_url("https://example.org/margins.zip"), is_url("margins.zip"), is_url("file:///etc/hosts")
    (True, False, False)
    """
    return urlsplit(text).scheme.lower() in SCHEMES


def download(
    url: str,
    target: Path,
    *,
    digest: str = "",
    limit: int | None = None,
    bars: Bars = no_bar,
    what: str = "",
) -> Path:
    """Download a file to `target`, atomically.

    Args:
        url: An http or https address.
        target: The file to write.
        digest: The SHA-256 that the file must have, in hexadecimal digits; "" to accept any.
        limit: Most bytes that are accepted.
        bars: Shows the progress in megabytes.
        what: What the progress calls the file, by default its name.
    """
    if not is_url(url):
        raise DownloadError(f"{url}: not an http or https address")
    with bars(f"downloading {what or target.name}") as update, replacing(target) as out:
        found = _Download(url, limit, out, update).fetch()
        if digest and found != digest.lower():
            raise WrongDigest(
                f"{url}: the download is damaged or another file (SHA-256 {found}, expected {digest})"
            )
    return target


class _Download:
    """One file on its way: what has come so far, and which version of it."""

    def __init__(self, url: str, limit: int | None, out: BinaryIO, update: Update) -> None:
        self.url, self.limit, self.out, self.update = url, limit, out, update
        self._restart()

    def fetch(self) -> str:
        """Write the file and give its SHA-256; a broken connection is continued or begun again."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._receive()
                return self.digest.hexdigest()
            except _Broken as error:
                broken = error
                if attempt < ATTEMPTS and not self.version:
                    self._restart()  # what follows could be of another version of the file
        raise DownloadError(f"{self.url}: could not be downloaded ({broken})") from broken

    def _restart(self) -> None:
        self.done, self.total = 0, 0
        self.version = ""  # the server's mark of this version of the file
        self.digest = hashlib.sha256()
        self.out.seek(0)
        self.out.truncate()

    def _receive(self) -> None:
        with self._opened() as response:
            while chunk := self._read(response):
                self.done += len(chunk)
                if self.limit is not None and self.done > self.limit:
                    raise self._too_large()
                self.out.write(chunk)
                self.digest.update(chunk)
                self.update(self.done // CHUNK, max(self.total, self.done) // CHUNK)
        if self.done < self.total:
            raise _Broken(f"the connection ended after {self.done} of {self.total} bytes")

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        headers = {"User-Agent": "protopyramid", "Accept-Encoding": "identity"}
        if self.done:
            headers |= {"Range": f"bytes={self.done}-", "If-Range": self.version}
        request = urllib.request.Request(self.url, headers=headers)
        try:
            response = _opener().open(request, timeout=TIMEOUT)
        except HTTPError as error:
            error.close()
            raise self._failed(f"HTTP {error.code} {error.reason}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._failed(first_line(error)) from error
        with response:
            self._accept(response)
            yield response

    def _accept(self, response: Any) -> None:
        """Take an answer that begins where the last one ended, or one that begins at the beginning."""
        headers = response.headers
        if response.status == PARTIAL_CONTENT:
            if not str(headers.get("Content-Range") or "").startswith(f"bytes {self.done}-"):
                raise self._failed("the server continued at another place; try again")
            return
        self._restart()
        self.total = _length(headers.get("Content-Length"))
        etag = str(headers.get("ETag") or "")
        weak = etag.startswith("W/")  # does not promise the same bytes
        self.version = "" if weak else etag or str(headers.get("Last-Modified") or "")
        if self.limit is not None and self.total > self.limit:
            raise self._too_large()

    def _read(self, response: Any) -> bytes:
        try:
            content: bytes = response.read(CHUNK)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _Broken(first_line(error)) from error
        return content

    def _failed(self, why: str) -> DownloadError:
        return DownloadError(f"{self.url}: could not be downloaded ({why})")

    def _too_large(self) -> DownloadError:
        assert self.limit is not None
        return DownloadError(
            f"{self.url}: is larger than {self.limit / 1e6:.0f} MB, the most accepted"
        )


def _opener() -> urllib.request.OpenerDirector:
    """What opens http and https addresses and no others, such as file: and ftp:."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener


def _length(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else 0


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type."""
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
