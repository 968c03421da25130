"""Within `data`, too, each room imports only from those before it, and no two modules import each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import protopyramid.data

ROOT = Path(protopyramid.data.__file__).parent
PACKAGE = "protopyramid.data"
# geometry is arithmetic on coordinates, without files: the readers of files may use it.
ROOMS = ["geometry", "io", "data", "negatives", "importers"]


def modules() -> dict[str, str]:
    """The source of every module of `data`, by its dotted name below it; packages have theirs."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


def room_of(module: str) -> str:
    first = module.partition(".")[0]
    return first if first in ROOMS else "data"


def imported(source: str, known: set[str]) -> set[str]:
    """The modules of `data` that a source imports, at its top or when called."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports within data are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    inside = {name.removeprefix(f"{PACKAGE}.") for name in names if name.startswith(f"{PACKAGE}.")}
    return inside & known


def violations(source: str, module: str, known: set[str]) -> list[str]:
    place = ROOMS.index(room_of(module))
    return [
        f"{module} imports {other}"
        for other in sorted(imported(source, known))
        if ROOMS.index(room_of(other)) > place
    ]


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules of which each imports the next and the last the first; none if there is no such ring."""
    left = {name: set(others) for name, others in graph.items()}
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    return sorted(left)


def test_every_room_of_data_imports_only_from_before_it() -> None:
    sources = modules()
    assert len(sources) > 30
    found = [v for name, text in sources.items() for v in violations(text, name, set(sources))]
    assert found == []


def test_no_modules_of_data_import_each_other() -> None:
    sources = modules()
    graph = {name: imported(text, set(sources)) - {name} for name, text in sources.items()}
    assert cycle(graph) == []


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from protopyramid.data.importers.base import Circle", "cropping"),
        ("def f():\n    from protopyramid.data.negatives import tissue", "images"),
        ("import protopyramid.data.manifest", "io.decoding"),
        ("from protopyramid.data.importers import writer", "negatives.dataset"),
    ],
)
def test_a_planted_violation_is_found(source: str, module: str) -> None:
    assert len(violations(source, module, set(modules()))) >= 1


def test_a_planted_cycle_is_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["a", "b", "c", "d"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
