"""What every request passes before the application: who may ask, from where, how much and for how long.

Example::

    shielded = Shield(application, Access("127.0.0.1", 8000), Limits())
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import secrets
import socket
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from protopyramid.reader.settings import Limits, Refusal, busy

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
OPEN_PATHS = ("/healthz", "/login", "/page/login.css", "/page/login.js", "/page/words.js")
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
# Rate limit: after this many wrong tokens within this many seconds, an address is not checked any further.
WRONG_TOKENS, WRONG_SECONDS = 5, 60.0
MOST_CLIENTS = 1_000  # addresses that are counted apart
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0"), is_loopback("reading-room")
    (True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass
class Access:
    """Who may ask: by the name of the host that they ask, and by a token where one is set.

    A page of another site can make a browser send requests here, and can even give this machine a name
    of its own (DNS rebinding): so only known names of this host are answered, and only pages of this
    very address may send anything.
    """

    host: str
    port: int
    token: str | None = None
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    _wrong: dict[str, deque[float]] = field(default_factory=dict, repr=False)

    @property
    def cookie(self) -> str:
        """Name of the cookie; ports share cookies."""
        return f"protopyramid-{self.port}"

    def check_host(self, header: str) -> None:
        """Refuse a request that was sent to a name that is not this host's."""
        try:
            parts = urlsplit(f"//{header}")
            name, port = (parts.hostname or "").rstrip("."), parts.port or 80
        except ValueError:
            name, port = "", 0
        if port != self.port or not self._known(name):
            raise Refusal(421, "this address is not served here; use the one that serve printed")

    def _known(self, name: str) -> bool:
        if name in LOOPBACK_NAMES or name == self.host.lower():
            return True
        if is_loopback(self.host):
            return False
        if name in (socket.gethostname().lower(), socket.getfqdn().lower()):
            return True
        try:  # an address cannot be rebound, a name can
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def check_origin(self, method: str, origin: str | None, host: str, site: str | None) -> None:
        """Refuse what a page of another site sends; programs send neither header."""
        foreign = origin is not None and origin not in (f"http://{host}", f"https://{host}")
        if foreign or (method not in SAFE_METHODS and site in ("cross-site", "same-site")):
            raise Refusal(403, "requests from pages of other sites are refused")

    def is_known(self, headers: dict[str, str], client: str) -> bool:
        """Whether a request of a client's address brings the token, or the cookie given for it."""
        if self.token is None:
            return True
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            return False
        given = cookies.get(self.cookie)
        if given is not None and _same(given.value, self.session):
            return True
        kind, _, token = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.admits(token, client)

    def admits(self, token: str, client: str) -> bool:
        """Whether a token is the right one; Refusal (429) after too many wrong ones of a client."""
        wrong = self._recently_wrong(client)
        if len(wrong) >= WRONG_TOKENS:
            raise Refusal(429, "too many wrong tokens; wait a minute", retry_after=60)
        if self.token is None or _same(token, self.token):
            return True
        wrong.append(time.monotonic())
        return False

    def _recently_wrong(self, client: str) -> deque[float]:
        """When a client's address sent wrong tokens; of too many addresses, all share one count."""
        earliest = time.monotonic() - WRONG_SECONDS
        for times in self._wrong.values():
            while times and times[0] < earliest:
                times.popleft()
        self._wrong = {name: times for name, times in self._wrong.items() if times}
        name = client if client in self._wrong or len(self._wrong) < MOST_CLIENTS else "others"
        return self._wrong.setdefault(name, deque())


def _same(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell how much of them is."""
    return hmac.compare_digest(given.encode(), expected.encode())


class Shield:
    """Refuses what may not be asked, limits what is sent, and answers errors with one line of JSON.

    Nothing of a request is logged. An error of ours is told on stderr by its place in the code, without
    its message, which may quote a file.
    """

    def __init__(self, application: ASGIApp, access: Access, limits: Limits) -> None:
        self._application, self._access, self._limits = application, access, limits
        self._received = 0  # bytes of the bodies of requests in hand

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # websockets are not served; uvicorn closes the connection
        request = _Request(scope, send)
        try:
            await self._answer(request, receive)
        except Refusal as refusal:
            await request.refuse(refusal)
        except asyncio.CancelledError:  # the server is stopped and waits no longer
            await request.refuse(busy("the server is stopping"))
        except TimeoutError:
            await request.refuse(busy("the request took too long"))
        except Exception as error:
            _tell(error)
            await request.refuse(Refusal(500, "the server failed; this is a bug"))

    async def _answer(self, request: _Request, receive: Receive) -> None:
        headers, path = request.headers, request.scope["path"]
        host = headers.get("host", "")
        self._access.check_host(host)
        site = headers.get("sec-fetch-site")
        self._access.check_origin(request.method, headers.get("origin"), host, site)
        async with asyncio.timeout(self._limits.request_seconds):
            if path == "/login" or (path == "/" and "token" in request.query):
                await self._log_in(request, receive)
            elif path not in OPEN_PATHS and not self._access.is_known(headers, request.client):
                await self._ask_for_token(request)
            else:
                await self._pass_on(request, receive)

    async def _pass_on(self, request: _Request, receive: Receive) -> None:
        """Let the application answer, and count the bytes that it is sent."""
        self._check_announced(request.headers.get("content-length", "0"))
        counted, refusal = 0, None

        async def counting() -> Message:
            nonlocal counted, refusal
            message = await receive()
            size = len(message.get("body", b""))
            counted += size
            self._received += size
            if counted > self._limits.upload_bytes:
                refusal = self._too_large()
            elif self._received > self._limits.bodies_bytes:
                refusal = busy("too much is being sent at once")
            if refusal is not None:
                request.silent = True  # whatever the application makes of it
                raise refusal
            return message

        try:
            await self._application(request.scope, counting, request.send)
        finally:
            self._received -= counted
        if refusal is not None:
            request.silent = False
            raise refusal

    def _check_announced(self, length: str) -> None:
        size = int(length) if length.isdecimal() else 0
        if size > self._limits.upload_bytes:
            raise self._too_large()
        if self._received + size > self._limits.bodies_bytes:
            raise busy("too much is being sent at once")

    def _too_large(self) -> Refusal:
        largest = self._limits.upload_bytes // 10**6
        return Refusal(413, f"the file is too large; at most {largest} MB are accepted")

    async def _log_in(self, request: _Request, receive: Receive) -> None:
        """Exchange the token of a form or a link for a cookie."""
        if request.method == "POST":
            fields = parse_qs((await _short_body(receive)).decode("latin-1"))
        elif request.scope["path"] == "/":
            fields = request.query
        else:
            await self._ask_for_token(request)
            return
        if not self._access.admits(fields.get("token", [""])[0], request.client):
            raise Refusal(401, "the token is wrong; use the one that serve printed")
        cookie = f"{self._access.cookie}={self._access.session}; Path=/; HttpOnly; SameSite=Strict"
        await request.respond(303, b"", {"Location": "/", "Set-Cookie": cookie})

    async def _ask_for_token(self, request: _Request) -> None:
        if not request.scope["path"].startswith("/api") and request.method == "GET":
            from protopyramid.reader.pages import read_page

            body = read_page("login.html")
            await request.respond(401, body, {"Content-Type": "text/html; charset=utf-8"})
            return
        raise Refusal(401, "a token is needed: send it as Authorization: Bearer TOKEN")


class _Request:
    """A request and its answer, which gets the headers that every answer has."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.scope, self._send = scope, send
        self.method: str = scope["method"]
        self.client: str = (scope.get("client") or ("",))[0]
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        self.query = parse_qs(scope["query_string"].decode("latin-1"))
        self.started = False
        self.silent = False

    async def send(self, message: Message) -> None:
        """Send a part of the application's answer."""
        if self.silent:
            return
        if message["type"] == "http.response.start":
            self.started = True
            own = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *self._common(own)]
        await self._send(message)

    def _common(self, own: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
        headers = {**HEADERS, "Cache-Control": "no-store"}
        known = set(own)
        pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        return [(name, value) for name, value in pairs if name not in known]

    async def respond(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        """A whole answer."""
        pairs = [
            (name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()
        ]
        pairs.append((b"content-length", str(len(body)).encode()))
        await self.send({"type": "http.response.start", "status": status, "headers": pairs})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: Refusal) -> None:
        """The answer to a request that is refused, unless one has begun."""
        if self.started:
            return
        self.silent = False
        body = json.dumps({"error": refusal.message}).encode()
        await self.respond(
            refusal.status, body, {"Content-Type": "application/json", **refusal.headers}
        )


async def _short_body(receive: Receive, longest: int = 4096) -> bytes:
    body, more = b"", True
    while more:
        message: dict[str, Any] = dict(await receive())
        body += message.get("body", b"")
        more = bool(message.get("more_body"))
        if len(body) > longest or message["type"] == "http.disconnect":
            raise Refusal(413, "the form is too long")
    return body


def _tell(error: Exception) -> None:
    """Where an error of ours happened, on stderr."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    print(f"protopyramid: bug: {type(error).__name__}\n{frames}", file=sys.stderr, flush=True)
