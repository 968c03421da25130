"""The folders are the data's way through the system: each imports only from those before it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import protopyramid

ROOT = Path(protopyramid.__file__).parent
# The rooms in the order of the data's way through the system: each imports only from those before it.
ROOMS = [
    "errors",
    "version",
    "utils",
    "config",
    "data",
    "model",
    "losses",
    "metrics",
    "figures",
    "runs",
    "inference",
    "training",
    "prototypes",
    "explanations",
    "evaluation",
    "reports",
    "sharing",
    "exporting",
    "api",
    "reader",
    "studies",
    "benchmarks",
    "cli",
    "__main__",
]
# Doors that stay shut although the order would open them: arrays and tensors know nothing of files.
SHUT = {
    "utils": {"version"},
    "model": {"data"},
    "losses": {"data"},
    "metrics": {"data", "losses"},
    "figures": {"data", "losses"},
}
ALLOWED = {room: set(ROOMS[:place]) - SHUT.get(room, set()) for place, room in enumerate(ROOMS)}
ALLOWED["__init__"] = set(ROOMS)
# A loaded run predicts, explains and is edited for its user, and keeps the cases behind its prototypes:
# inside those methods, and nowhere else in `runs`.
DEFERRED = {
    ("runs", "api"),
    ("runs", "explanations"),
    ("runs", "inference"),
    ("runs", "prototypes"),
}


def part_of(module: str) -> str:
    """The folder or module of ours that a dotted name belongs to."""
    name = module.split(".")[1]
    return "version" if name == "__version__" else name


def imported(node: ast.AST, package: list[str]) -> list[str]:
    """The dotted names that one import statement may load."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = [str(node.module)] if not node.level else package[: len(package) - node.level + 1]
    if node.level and node.module:
        base = [*base, node.module]
    return [".".join([*base, alias.name]) for alias in node.names]


def deferred(node: ast.AST) -> bool:
    """Whether what is below a node does not run when its module is imported."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def imports(source: str, package: list[str]) -> Iterator[tuple[str, int, bool]]:
    """Our own parts that a module imports: part, line, whether only when called or type-checked."""
    tree = ast.parse(source)
    later = {id(node) for outer in ast.walk(tree) if deferred(outer) for node in ast.walk(outer)}
    for node in ast.walk(tree):
        for name in imported(node, package):
            if name == "protopyramid":
                raise AssertionError(f"line {node.lineno}: import the part, not the package")
            if name.startswith("protopyramid."):
                yield part_of(name), node.lineno, id(node) in later


def violations(source: str, relative: str) -> list[str]:
    """What a module, given by its path below the package, imports but may not."""
    parts = Path(relative).with_suffix("").parts
    here = parts[0]
    package = ["protopyramid", *parts[:-1]]
    found = []
    for part, line, is_deferred in imports(source, package):
        fine = part == here or part in ALLOWED[here]
        if not fine and not (is_deferred and (here, part) in DEFERRED):
            found.append(f"{relative}:{line}: {here} imports {part}")
    return found


def test_every_module_imports_only_from_before_it() -> None:
    paths = sorted(ROOT.rglob("*.py"))
    assert len(paths) > 10
    found = []
    for path in paths:
        relative = path.relative_to(ROOT).as_posix()
        found += violations(path.read_text(encoding="utf-8"), relative)
    assert found == []


def test_every_part_has_its_place() -> None:
    parts = {path.relative_to(ROOT).with_suffix("").parts[0] for path in ROOT.rglob("*.py")}
    assert parts <= set(ALLOWED)


@pytest.mark.parametrize(
    ("source", "relative"),
    [
        ("from protopyramid.training.loop import train", "model/network.py"),
        ("def f():\n    from protopyramid.losses import fine", "data/store.py"),
        ("from protopyramid import training", "losses/fine.py"),
        ("import protopyramid.api", "explanations/report.py"),
        ("from ..evaluation import metrics", "training/loop.py"),
        ("from protopyramid.runs.run import load_run", "losses/objective.py"),
        ("from protopyramid.training.loop import train", "runs/run.py"),
        ("from protopyramid.explanations import explain", "runs/run.py"),
        ("from protopyramid.cli.console import say", "training/loop.py"),
        ("from protopyramid.data import manifest", "config/loading.py"),
        ("from protopyramid.benchmarks.timing import in_turns", "training/loop.py"),
        ("from protopyramid.cli.console import say", "benchmarks/rows.py"),
        ("from protopyramid.studies.plan import Study", "api.py"),
        ("from protopyramid.data.manifest import Sample", "model/network.py"),
    ],
)
def test_a_planted_violation_is_found(source: str, relative: str) -> None:
    assert len(violations(source, relative)) == 1


@pytest.mark.parametrize(
    ("source", "relative"),
    [
        ("from protopyramid.data.images import normalise", "inference/batches.py"),
        ("from . import stencil", "losses/fine.py"),
        ("from .stencil import apply", "losses/fine.py"),
        ("from protopyramid.runs.run import load_run", "evaluation/metrics.py"),
        ("def f():\n    from protopyramid.explanations import explain", "runs/run.py"),
        ("from protopyramid.config.schema import Config", "data/store.py"),
        ("import torch", "data/store.py"),
    ],
)
def test_an_allowed_import_is_not_found(source: str, relative: str) -> None:
    assert violations(source, relative) == []
