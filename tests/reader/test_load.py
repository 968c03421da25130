"""Fifty clients at once on loopback: all answered or told to come again, in bounded memory."""

from __future__ import annotations

import http.client
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from protopyramid.runs.run import Run

from .conftest import png, serving_process

CLIENTS = 50
MOST_ATTEMPTS = 30
SIDE = 1000  # pixels: 50 of them decoded at once would be 200 MB
MOST_GROWTH = 100_000_000  # bytes

pytestmark = pytest.mark.slow


def form(content: bytes) -> bytes:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
    return head + content + b"\r\n--b--\r\n"


def ask(address: str, body: bytes) -> list[int]:
    """The statuses that a client meets until it is answered; it waits as long as it is told to."""
    codes: list[int] = []
    while len(codes) < MOST_ATTEMPTS and (not codes or codes[-1] == 503):
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=300)
        kind = {"Content-Type": "multipart/form-data; boundary=b"}
        connection.request("POST", "/api/explain", body, kind)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        connection.close()
        codes.append(answer.status)
        if answer.status == 503:
            time.sleep(float(answer.headers["Retry-After"]))
        else:
            assert set(content["logits"]) == set(content["probabilities"])
    return codes


def highest_resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("this system does not tell how much memory a process holds")
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    assert found
    return 1000 * int(found[1])


def test_fifty_clients_are_answered_or_told_to_come_again_in_bounded_memory(run: Run) -> None:
    rng = np.random.default_rng(0)
    body = form(png(rng.integers(0, 256, (SIDE, SIDE), dtype=np.uint8)))
    with serving_process(run.folder.path) as (process, address):
        ask(address, body)
        before = highest_resident(process.pid)
        with ThreadPoolExecutor(CLIENTS) as pool:
            codes = list(pool.map(lambda _: ask(address, body), range(CLIENTS)))
        assert all(each[-1] == 200 for each in codes), codes
        assert {code for each in codes for code in each} <= {200, 503}
        assert highest_resident(process.pid) - before < MOST_GROWTH + CLIENTS * len(body)
