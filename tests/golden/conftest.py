"""One run of the whole workflow for all golden tests, and what was recorded of an earlier one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXPECTED = Path(__file__).with_name("expected")
Check = Callable[[str], None]


def recorded(name: str) -> Any:
    """What was recorded: `.json` as content, all else as text."""
    text = (EXPECTED / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else text


@pytest.fixture(scope="session")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the code of today does, by the names of the expectations."""
    from .observations import observe
    from .workflow import run_workflow

    folder = tmp_path_factory.mktemp("golden")
    run_workflow(folder)
    return observe(folder)


@pytest.fixture(scope="session")
def same_processor() -> bool:
    """Whether bytes can be expected to be the recorded ones."""
    from .comparison import signature

    return bool(signature() == recorded("signature.json"))


@pytest.fixture
def check(observed: dict[str, Any], same_processor: bool) -> Check:
    """Compare an expectation with what is found today: check("values.json")."""
    from .comparison import differences

    def compare(name: str) -> None:
        found = json.loads(json.dumps(observed[name]))
        differing = list(differences(recorded(name), found, same_processor))
        assert not differing, "\n".join([f"{len(differing)} differences:", *differing[:20]])

    return compare
