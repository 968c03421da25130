"""The examples in the docstrings are run as tests, module by module."""

import doctest
import importlib
from pathlib import Path

import pytest

import protopyramid

ROOT = Path(protopyramid.__path__[0])
FILES = [path for path in sorted(ROOT.rglob("*.py")) if ">>>" in path.read_text(encoding="utf-8")]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("name", [module_name(path) for path in FILES])
def test_examples_of(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "protopyramid":
            raise
        pytest.skip(f"needs the optional library {error.name}")
    result = doctest.testmod(module)
    assert result.failed == 0
    assert result.attempted > 0, ">>> stands in the file, but not in a docstring"
