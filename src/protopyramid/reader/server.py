"""Starting the reader: its runs, its address and its token."""

from __future__ import annotations

import secrets
import socket
import sys
import threading
import warnings
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from protopyramid.data.manifest import Sample, read_images
from protopyramid.errors import UserError
from protopyramid.reader.app import Reader, create_application
from protopyramid.reader.settings import Limits
from protopyramid.reader.shield import Access, is_loopback
from protopyramid.runs import layout
from protopyramid.runs.run import Run, load_run

BACKLOG = 128
SHUTDOWN_SECONDS = 5


def serve(
    runs: Sequence[Path],
    data: Path | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    open_page: bool = False,
    readings: Path | None = None,
    annotations: Path | None = None,
    seed: int = 0,
    limits: Limits | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve runs until the process is stopped; the first thing said is the address.

    readings, annotations: folders for the answers of a reader study and for annotations; `seed` is that of
    the order in which readers meet the cases of `data`.
    """
    token = token or (None if is_loopback(host) else secrets.token_urlsafe(24))
    loaded = [load_run(path) for path in runs]
    reader = Reader(loaded, _cases(data or _examples(loaded)), limits)
    if readings is not None:
        reader.serve_study(readings, seed)
    if annotations is not None:
        reader.serve_annotations(annotations, data)
    reader.manifest = data
    listening = listen(host, port)
    number = listening.getsockname()[1]
    access = Access(host, number, token)
    address = f"http://{f'[{host}]' if ':' in host else host}:{number}/"
    say(address)
    if token is not None:
        say(f"open {address}?token={token}")
    sys.stdout.flush()
    # Warnings of decoders are about files that are nobody's business in a log.
    warnings.simplefilter("ignore")
    config = uvicorn.Config(
        create_application(reader, access),
        log_level="error",
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    if open_page:
        link = f"{address}?token={token}" if token else address
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()
    uvicorn.Server(config).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; UserError where it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        raise UserError(
            f"{host}:{port}: cannot listen there ({error.strerror}); give another --host or --port"
        ) from None
    return listening


def _examples(runs: Sequence[Run]) -> Path | None:
    """The manifest of the example images that a packed model came with."""
    found = [run.folder / layout.CASES_MANIFEST for run in runs]
    return next((path for path in found if path.is_file()), None)


def _cases(data: Path | None) -> tuple[Sample, ...]:
    return () if data is None else read_images(data, places=True).samples
