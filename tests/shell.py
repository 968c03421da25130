"""A shell for what documents tell readers to type, with a `protopyramid` that is forked, not started.

Blocks run in bash as they are written. The word `protopyramid` is a script that asks a server (this file,
run as a program) to fork a process that has already imported torch; training gets tiny settings on top of
what is written. `serve` returns as soon as its address is known, `make` only says what it would do, and
`curl` fails where the server answers with an error.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parent.parent
PRELOADED = (
    "protopyramid.api",
    "protopyramid.training.engine",
    "protopyramid.studies.crossval",
    "protopyramid.reader.app",
    "matplotlib.pyplot",
)
BLACK_BOXES = ("vgg16",)
TINY = {
    "data.image_size": "32",
    "data.memory_budget": "0.1",
    "model.backbone.width": "0.0625",
    "model.backbone.batch_norm": "true",
    "model.backbone.weights": "none",
    "model.neck.dim": "8",
    "model.tta": "1",
    "train.batch_size": "16",
    "train.threads": "1",
    "train.scale": "1",
}
TRAINED = "[{step='train', epochs=1}, {step='project'}, {step='fit-head'}]"
TRAINED_BLACK_BOX = "[{step='train', epochs=1}]"
# What makes a command quick, by its first words, where the option is not given.
QUICKER = {
    ("data", "phantom"): ["--patients", "10", "--size", "64"],
    ("data", "negatives"): ["--count", "16"],
    ("evaluate",): ["--bootstrap", "20"],
}
CLIENT = """#!{python} -IS
import json, os, socket, sys, time
words, log = sys.argv[1:], "serve.log"
served = words[:1] == ["serve"]
out, err = 1, 2
if served:  # it stays: it must not keep the block's own output open
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    err = os.open("serve.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    job = {{"words": words, "folder": os.getcwd(), "name": {name!r}, "environment": dict(os.environ)}}
    socket.send_fds(server, [json.dumps(job).encode() + b"\\n"], [0, out, err])
    if served:
        server.settimeout(0.05)
        while not open(log).read().endswith("\\n"):
            try:
                sys.exit(int(server.recv(16) or b"1"))
            except TimeoutError:
                pass
    else:
        sys.exit(int(server.recv(16) or b"1"))
"""
# Port 8000 stands for that of the last server.
CURL = """#!/bin/bash
read -r served < serve.log
exec /usr/bin/curl --silent --show-error --fail "${@//http:\\/\\/127.0.0.1:8000\\//$served}"
"""


def shrunk(words: list[str]) -> list[str]:
    """A command as written, with options at its end that make it quick."""
    if words[:1] == ["serve"]:
        return [*words, "--port", "0"]  # whatever is written: another program may have that port
    if words[:1] in (["train"], ["crossval"]):
        schedule = TRAINED_BLACK_BOX if words[1] in BLACK_BOXES else TRAINED
        settings = {**TINY, "train.schedule": schedule}
        return [*words, *(part for pair in settings.items() for part in ("--set", "=".join(pair)))]
    for beginning, options in QUICKER.items():
        if tuple(words[: len(beginning)]) == beginning:
            pairs = zip(options[::2], options[1::2], strict=True)
            return [*words, *(part for pair in pairs if pair[0] not in words for part in pair)]
    return words


class Shell:
    """Runs blocks of shell and Python in a folder; a context, at whose end all servers stop."""

    def __init__(self, folder: Path) -> None:
        self.tools = folder / "bin"
        self.tools.mkdir(parents=True)
        self.address = str(folder / "forks")
        self.cache = folder / "cache"
        self._write("protopyramid", CLIENT.format(**self._client("protopyramid")))
        self._write("run-python", CLIENT.format(**self._client("python")))
        self._write("make", f'#!/bin/sh\nexec /usr/bin/make --dry-run -C "{PROJECT}" "$@"\n')
        self._write("curl", CURL)
        self._write("python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        self.server = subprocess.Popen(
            [sys.executable, __file__, self.address],
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert self.server.stdout and self.server.stdout.readline() == b"ready\n"

    def _client(self, name: str) -> dict[str, str]:
        return {"python": sys.executable, "address": self.address, "name": name}

    def _write(self, name: str, text: str) -> None:
        (self.tools / name).write_text(text, encoding="utf-8")
        (self.tools / name).chmod(0o755)

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.server.pid, signal.SIGKILL)  # its servers too: they are of its session
        self.server.wait()

    def run(self, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a block of shell."""
        return self._start(["bash", "-euo", "pipefail", "-c", text], folder)

    def python(self, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run Python code in a process of its own; port 8000 stands for that of the last server."""
        log = folder / "serve.log"
        if log.exists():
            text = text.replace("http://127.0.0.1:8000/", log.read_text().splitlines()[0])
        script = folder / "snippet.py"
        script.write_text(text, encoding="utf-8")
        return self._start([str(self.tools / "run-python"), str(script)], folder)

    def _start(self, words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
        path = f"{self.tools}{os.pathsep}{os.environ['PATH']}"
        environment = {
            **os.environ,
            "PATH": path,
            "PYTHONPATH": os.pathsep.join(
                [str(folder / "packages"), os.environ.get("PYTHONPATH", "")]
            ),
            "PROTOPYRAMID_CACHE": str(self.cache),
            "BROWSER": "true",  # `serve --open` opens nothing
        }
        return subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )


def _work(job: dict[str, Any], files: list[int]) -> int:
    """One job, in its own process."""
    for stream, file in enumerate(files):
        os.dup2(file, stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(job["folder"])
    os.environ.update(job["environment"])
    if job["name"] == "python":
        path = Path(job["words"][0])
        exec(compile(path.read_text(encoding="utf-8"), path.name, "exec"), {"__name__": "__main__"})
        return 0
    from protopyramid.cli.main import main

    sys.argv = ["protopyramid", *shrunk(job["words"])]
    return main(sys.argv[1:])


def _answer(connection: socket.socket) -> None:
    """Fork a process for the job that comes through a connection; its exit code goes back."""
    message, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not message.endswith(b"\n"):
        message += connection.recv(1 << 20)
    if os.fork() == 0:
        code = 1
        try:
            code = _work(json.loads(message), files)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            try:
                connection.send(str(code).encode())
            finally:
                os._exit(code)
    for file in files:
        os.close(file)


def _serve(address: str) -> None:
    """Answer until killed."""
    for name in PRELOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                _answer(connection)


if __name__ == "__main__":
    _serve(sys.argv[1])
