"""Each test has a cache folder of its own, so that nothing of the user's is seen or changed."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROTOPYRAMID_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PROTOPYRAMID_CATALOGUE", raising=False)
    return tmp_path / "cache"
