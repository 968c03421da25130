"""Every block of shell and Python in README and docs runs as it is written, in the order of its page.

Training gets tiny settings on top of what is written (tests/shell.py), and data, films and runs are small
stand-ins of the same names (tests/workshop.py). NOT_RUN lists the lines that cannot run here, and why.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from .shell import Shell
from .snippets import DOCUMENTS, PROJECT, PROMPT, Snippet, snippets
from .workshop import build

pytest.importorskip("fastapi", reason="the extra `reader` is not installed")

SHELL = ("sh", "bash", "text")
# Beginnings of lines, with the reason. `make` says what it would do and does nothing (tests/shell.py).
NOT_RUN = {
    "pip install ": "the network, and this environment would change",
    "protopyramid bench": "minutes; tests/cli/test_bench.py and tests/benchmarks run its parts",
    "protopyramid train protopyramid --data data/manifest.csv --out runs/c --devices 4": (
        "four processes; tests/training/test_distributed.py runs two"
    ),
    "torchrun ": "four processes; tests/training/test_distributed.py runs two",
    "head=$(scontrol": "a cluster with Slurm",
    "srun ": "a cluster with Slurm",
    "protopyramid models pull https://": "the network; tests/sharing pulls from a loopback server",
    "protopyramid models remove first": "removes what the line above it has pulled",
}
DRY = ("make ",)
# What a person does on the page that a line has opened, before the next block.
ON_THE_PAGE = {
    "protopyramid serve runs/margins --data cases/manifest.csv --annotations drawn": (
        "curl -X PUT -F mask=@mask.png http://127.0.0.1:8000/api/annotations/0"
    ),
}


def reason_not_to_run(line: str) -> str | None:
    """Why a line is not run; None for one that is."""
    return next((why for start, why in NOT_RUN.items() if line.strip().startswith(start)), None)


def of(document: Path) -> list[Snippet]:
    """The blocks of a document that can be run, in its order."""
    found = [each for each in snippets(*SHELL, "python") if each.document == document]
    return [each for each in found if each.language == "python" or each.logical_lines]


WITH_CODE = [document for document in DOCUMENTS if of(document)]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with Shell(tmp_path_factory.mktemp("shell")) as shell:
        yield shell


@pytest.fixture(scope="module")
def template(shell: Shell, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workshop")
    build(folder, shell)
    return folder


def words_of(text: str) -> str:
    """Text without the differences of spacing and line breaks."""
    return " ".join(text.split())


def printed(block: Snippet) -> list[str]:
    """What a transcript says that its command has printed."""
    if block.language != "text":
        return []
    lines = [line for line in block.text.splitlines() if not line.startswith(PROMPT)]
    return [words_of(line) for line in lines if line.strip() not in ("", "…")]


def prepare(document: Path, template: Path, folder: Path) -> None:
    """A folder of its own for a document, without the runs that the document makes itself."""
    shutil.copytree(template, folder)
    for words in (words for each in of(document) for words in each.commands):
        if words[:2] == ["protopyramid", "train"] and "--out" in words:
            shutil.rmtree(folder / words[words.index("--out") + 1], ignore_errors=True)


@pytest.mark.parametrize("document", WITH_CODE, ids=lambda path: str(path.relative_to(PROJECT)))
def test_every_block_runs(document: Path, template: Path, tmp_path: Path, shell: Shell) -> None:
    workshop = tmp_path / "workshop"
    prepare(document, template, workshop)
    python = ""
    for block in of(document):
        if block.language == "python":
            python += block.text  # a later block may use the names of an earlier one
            done = shell.python(python, workshop)
        else:
            lines = [line for line in block.logical_lines if not reason_not_to_run(line)]
            acts = [ON_THE_PAGE[line] for line in lines if line in ON_THE_PAGE]
            done = shell.run("\n".join([*lines, *acts]), workshop)
            missing = [line for line in printed(block) if line not in words_of(done.stdout)]
            assert missing == [], f"{block.name}\n{done.stdout}"
        assert done.returncode == 0, f"{block.name}\n{block.text}\n{done.stdout}\n{done.stderr}"


def test_what_is_not_run_is_listed_and_counted() -> None:
    lines = [line for each in snippets(*SHELL) for line in each.logical_lines]
    unused = [start for start in NOT_RUN if not any(line.startswith(start) for line in lines)]
    assert unused == []
    left = [line for line in lines if reason_not_to_run(line)]
    dry = [line for line in lines if line.startswith(DRY)]
    run = [line for line in lines if line not in left and line not in dry]
    assert len(left) <= 17, left
    assert len(dry) <= 8, dry
    assert len(run) >= 60
