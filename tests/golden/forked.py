"""Runs command lines one after another, each in a process forked from one that has imported torch.

    python forked.py COMMANDS.json LOGS

The commands are lists of words. LOGS gets the output of each, by its number, and `codes.json`. A fork
starts at once, where a new process would spend seconds on its imports.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path

# Heavy libraries of others; of ours only what is public.
PRELOADED = (
    "torch",
    "torchmetrics.classification",
    "lightning_fabric",
    "matplotlib.pyplot",
    "torch.utils.tensorboard.writer",
)


def preload() -> None:
    """Import what most commands need."""
    for name in PRELOADED:
        importlib.import_module(name)
    package = importlib.import_module("protopyramid")
    assert package.build_model and package.load_run and package.losses


def run(words: list[str], log: Path) -> None:
    """Run one command in this process and leave it."""
    code = 1
    try:
        for stream, ending in ((1, "out"), (2, "err")):
            opened = os.open(log.with_suffix(f".{ending}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(opened, stream)
        sys.argv = ["protopyramid", *words]
        code = importlib.import_module("protopyramid.cli.main").main(words)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(commands: Path, logs: Path) -> None:
    """Run all commands, in order."""
    preload()
    codes = []
    for number, words in enumerate(json.loads(commands.read_text())):
        process = os.fork()
        if not process:
            run(words, logs / str(number))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
    (logs / "codes.json").write_text(json.dumps(codes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
