"""Rows on what users wait for: an explanation over HTTP, a film on the page, predictions of files."""

from __future__ import annotations

import http.client
import io
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from protopyramid.benchmarks.memory import can_measure_resident, highest_resident
from protopyramid.benchmarks.row import Row, at_least, at_most
from protopyramid.benchmarks.settings import Settings, fresh_model, prototypes_of, random_images
from protopyramid.benchmarks.timing import in_turns
from protopyramid.config.schema import DicomConfig
from protopyramid.data.io.decoding import decode
from protopyramid.data.io.memory import MemoryFile
from protopyramid.inference.prediction import predict_files
from protopyramid.model.network import PrototypeNetwork
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.records import PrototypeRecord
from protopyramid.runs.run import Run

if TYPE_CHECKING:
    from protopyramid.reader.worker import InferenceWorker

EXPLAIN_TARGET = 1.3  # times the forward pass
FILM_TARGET = 1.2  # times decoding
PREDICT_TARGET = 0.9  # of the network's own throughput
PREDICT_BATCH = 32  # as prediction takes them
BOUNDARY = "protopyramid-bench"
SECONDS = 600
ATTEMPTS = 20  # of one client


def explain_rows(settings: Settings) -> Iterator[Row]:
    """POST /api/explain of a crop against the network alone, with one client and with many at once.

    Both in the server's inference thread: two pools of OpenMP threads would hinder each other.
    """
    try:
        import fastapi  # noqa: F401
    except ModuleNotFoundError:
        warnings.warn("no rows for serve: the extra reader is not installed", stacklevel=2)
        return
    from protopyramid.reader.settings import Limits

    with _random_run(settings) as run, _served(run) as (port, worker):
        size = run.config.data.image_size
        body = _form(_png(np.random.default_rng(0).integers(0, 256, (size, size), np.uint8)))

        def alone(run: Run, counts: Sequence[int]) -> list[list[Tensor]]:
            return [_forward(run.model, size, count, Limits().batch) for count in counts]

        for clients in (1, settings.clients):
            codes: list[int] = []
            with ThreadPoolExecutor(clients) as pool:
                pair = in_turns(
                    lambda: codes.extend(chain(*pool.map(_ask, [(port, body)] * clients))),  # noqa: B023
                    lambda: worker.submit(run, alone, clients).result(SECONDS),  # noqa: B023
                    settings.slow_repetitions if clients == 1 else 1,
                )
            name = f"POST /api/explain, {clients} client{'s' if clients > 1 else ''}"
            yield at_most(name, "the network alone", pair, EXPLAIN_TARGET, note=_outcome(codes))


def _outcome(codes: list[int]) -> str:
    """How requests ended, and the memory that this process, with the server in it, held at most."""
    answered, refused = codes.count(200), codes.count(503)
    failed = len(codes) - answered - refused
    words = f"{answered} answered, {refused} told to come again (503), {failed} failed"
    return f"{words}; {highest_resident() / 1e6:.0f} MB" if can_measure_resident() else words


def film_row(settings: Settings) -> Iterator[Row]:
    """The first tile of a film of 16 bits against decoding it."""
    try:
        from protopyramid.reader.films import open_film
        from protopyramid.reader.settings import Limits
    except ModuleNotFoundError:
        return  # told by the rows above
    height, width = settings.film
    content = _png(_film(height, width))

    def first_pixels() -> bytes:
        film = open_film(MemoryFile(content, ".png"), "film", Limits())
        return film.tile(len(film.levels) - 1, 0, 0, *film.window)

    pair = in_turns(
        first_pixels,
        lambda: decode(MemoryFile(content, ".png"), DicomConfig()),
        settings.slow_repetitions,
    )
    yield at_most(f"open a film of {width} x {height}", "decoding it", pair, FILM_TARGET)


def predict_row(settings: Settings) -> Iterator[Row]:
    """Predictions of files, decoded from disk, against the network on images that are ready."""
    count = settings.predicted
    with _random_run(settings) as run, tempfile.TemporaryDirectory() as name:
        size = run.config.data.image_size
        rng = np.random.default_rng(0)
        files = []
        for number in range(count):
            files.append(Path(name) / f"{number}.png")
            files[-1].write_bytes(_png(rng.integers(0, 256, (2 * size, 2 * size), np.uint8)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pair = in_turns(
                lambda: predict_files(run, files),
                lambda: _forward(run.model, size, count, PREDICT_BATCH),
                1,
            )
    yield at_least(f"predict {count} files", "the network's throughput", pair, PREDICT_TARGET)


@contextmanager
def _random_run(settings: Settings) -> Iterator[Run]:
    """A run of the measured model with random weights."""
    config = settings.config()
    model = fresh_model(config)
    layer = prototypes_of(model)
    records = [
        PrototypeRecord(index, config.data.classes[owner], level, "case.png", 0, 0, 0.9)
        for index, (owner, level) in enumerate(
            zip(layer.classes.tolist(), layer.levels.tolist(), strict=True)
        )
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = RunFolder(Path(name) / "run")
        folder.begin(config)
        yield Run(folder, config, model, records)


@contextmanager
def _served(run: Run) -> Iterator[tuple[int, InferenceWorker]]:
    """The port on loopback at which a run is served from this process, and the server's inference thread."""
    import uvicorn

    from protopyramid.reader.app import Reader, create_application
    from protopyramid.reader.server import listen
    from protopyramid.reader.shield import Access

    listening = listen("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    reader = Reader([run])
    application = create_application(reader, Access("127.0.0.1", port))
    server = uvicorn.Server(
        uvicorn.Config(application, log_level="error", access_log=False, ws="none")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield port, reader.worker
    finally:
        server.should_exit = True
        thread.join(SECONDS)


def _ask(asked: tuple[int, bytes]) -> list[int]:
    """The status of each request until one is answered: a client that is told to come again does so."""
    port, body = asked
    codes: list[int] = []
    while len(codes) < ATTEMPTS and (not codes or codes[-1] == 503):
        status, wait = _request(port, body)
        codes.append(status)
        time.sleep(wait)
    return codes


def _request(port: int, body: bytes) -> tuple[int, float]:
    """The status of one request, and the seconds that it asks to wait."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        kind = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        connection.request("POST", "/api/explain", body, kind)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 503 or b'"logits"' in content, content
        return answer.status, float(answer.headers["Retry-After"]) if answer.status == 503 else 0.0
    finally:
        connection.close()


def _form(content: bytes) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
    return head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def _forward(model: PrototypeNetwork, size: int, count: int, batch: int) -> list[Tensor]:
    """The network alone on as many images, in batches."""
    found = []
    with torch.inference_mode():
        for start in range(0, count, batch):
            found.append(model(random_images(min(batch, count - start), size)).logits)
    return found


def _film(height: int, width: int) -> Any:
    """A smooth bright half on black with noise in 12 of 16 bits, as films are."""
    rng = np.random.default_rng(0)
    x = np.linspace(1, -1, width, dtype=np.float32)
    values = np.clip(x, 0, 1) * 40_000 + (x > 0) * rng.integers(0, 256, (height, width)) * 16
    return values.astype(np.uint16)


def _png(values: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(values).save(out, "PNG", compress_level=1)
    return out.getvalue()
