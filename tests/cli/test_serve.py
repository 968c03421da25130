"""`protopyramid serve`: its first line is the address, and it ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from protopyramid.data.manifest import Manifest
from protopyramid.runs.run import Run

pytest.importorskip("fastapi", reason="the extra `reader` is not installed")


def heed_interrupts() -> None:
    """A shell's background jobs ignore SIGINT, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def serving(*arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "protopyramid", "serve", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=heed_interrupts,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def get(address: str, path: str) -> object:
    with urllib.request.urlopen(f"{address}{path}", timeout=30) as answer:
        return json.load(answer)


def test_the_first_line_is_the_address_and_a_signal_ends_it(run: Run, manifest: Manifest) -> None:
    with serving(run.folder.path, "--data", manifest.path) as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:") and address.endswith("/")
        assert get(address, "healthz")["status"] == "ok"  # type: ignore[index]
        cases = get(address, "api/cases")["cases"]  # type: ignore[index]
        assert len(cases) == len(manifest.samples)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        out, err = process.communicate()
        assert (out, err) == ("", "")


def test_beyond_this_machine_a_token_is_printed_once(run: Run) -> None:
    with serving(run.folder.path, "--host", "0.0.0.0") as process:
        assert process.stdout
        address = process.stdout.readline().strip()
        link = process.stdout.readline().strip()
        assert link.startswith(f"open {address}?token=")
        local = address.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(local, "api/runs")
        assert refused.value.code == 401
        asked = urllib.request.Request(
            f"{local}api/runs", headers={"Authorization": f"Bearer {link.partition('token=')[2]}"}
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            assert answer.status == 200


def test_wrong_input_is_one_line(run: Run, tmp_path: Path) -> None:
    for arguments in (
        [tmp_path / "nothing"],
        [run.folder.path, "--data", tmp_path / "nothing.csv"],
        [run.folder.path, "--host", "256.0.0.1"],
    ):
        with serving(*arguments) as process:
            out, err = process.communicate(timeout=60)
            assert (process.returncode, out) == (2, "")
            assert err.startswith("protopyramid: error: ") and err.count("\n") == 1


def test_fifty_clients_at_once_are_answered_or_told_to_come_again(run: Run, lesion: Path) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n'
        + lesion.read_bytes()
        + b"\r\n--x--\r\n"
    )
    kind = {"Content-Type": "multipart/form-data; boundary=x"}

    def ask(address: str) -> tuple[int, object]:
        asked = urllib.request.Request(f"{address}api/explain", body, kind)
        try:
            with urllib.request.urlopen(asked, timeout=120) as answer:
                return answer.status, json.load(answer)["predicted"]
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Retry-After"]

    with serving(run.folder.path) as process, ThreadPoolExecutor(50) as pool:
        assert process.stdout
        address = process.stdout.readline().strip()
        answers = list(pool.map(ask, [address] * 100))
        assert {code for code, _ in answers} <= {200, 503}
        said = {answer for code, answer in answers if code == 200}
        assert said == {run.explain(lesion).predicted}
        assert {answer for code, answer in answers if code == 503} <= {"1"}
        assert get(address, "healthz")["status"] == "ok"  # type: ignore[index]
