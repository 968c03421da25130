"""The documentation site builds without a warning, and everything on it can be made again."""

from __future__ import annotations

import importlib.util
import logging
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tools import pictures

from protopyramid.config.keys import valid_keys

PROJECT = Path(__file__).parent.parent
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """The pages that docs/site.py makes."""
    spec = importlib.util.spec_from_file_location("site_pages", PROJECT / "docs" / "site.py")
    assert spec and spec.loader
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_site_builds_strictly_and_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("mkdocstrings", reason="the extra `docs` is not installed")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(PROJECT)
    monkeypatch.setattr("socket.socket.connect", refuse)
    config: Any = load_config(str(PROJECT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path))
    with caplog.at_level(logging.WARNING):
        build(config)
    assert [
        record.getMessage() for record in caplog.records if record.name.startswith("mkdocs")
    ] == []
    for page in ("index", "faq", "reference/settings", "reference/commands", "reference/python"):
        text = (tmp_path / f"{page}.html").read_text(encoding="utf-8")
        assert len(text) > 5_000
        loaded = re.findall(
            r'<(?:script|img|link rel="stylesheet")[^>]+(?:src|href)="(https?:[^"]+)', text
        )
        assert loaded == [], page


def refuse(*_: object) -> None:
    raise AssertionError("the site must build without a network")


def test_every_setting_is_on_the_page_of_settings(generated: dict[str, str]) -> None:
    page = generated["reference/settings.md"]
    from protopyramid.config.keys import section_keys

    missing = [key for key in valid_keys() if key not in section_keys() and f"`{key}`" not in page]
    assert [key for key in missing if key != "train.schedule"] == []
    for name in ("epochs", "learns", "views", "decay_factor", "times"):
        assert f"| `{name}` |" in page


def test_every_picture_is_used_and_has_a_command_that_makes_it() -> None:
    used = set()
    for document in DOCUMENTS:
        for link in IMAGE.findall(document.read_text(encoding="utf-8")):
            path = (document.parent / link).resolve()
            assert path.is_file(), (document, link)
            used.add(path.relative_to(PROJECT / "docs" / "images").as_posix())
    stored = {path.name for path in (PROJECT / "docs" / "images").iterdir()}
    assert used == stored == set(pictures.PICTURES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["architecture.png", "data-phantoms.png"])
def test_a_picture_is_made_again(name: str, tmp_path: Path) -> None:
    from PIL import Image

    pictures.make(name, tmp_path)
    with (
        Image.open(tmp_path / name) as made,
        Image.open(PROJECT / "docs" / "images" / name) as stored,
    ):
        assert made.size == stored.size


def test_the_changelog_sorts_every_version() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = text.split("\n## ")[1:]
    assert versions
    for version in versions:
        kinds = re.findall(r"^### (\w+)$", version, re.MULTILINE)
        assert kinds and set(kinds) <= {"Added", "Changed", "Fixed", "Deprecated", "Removed"}
        assert not version.partition("### ")[0].partition("\n")[2].strip()


def test_the_package_says_where_it_comes_from() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert all(url.startswith("https://") for url in project["urls"].values())
    pythons = [name for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]
    tested = (PROJECT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    assert pythons and all(f'"{name.rpartition(" ")[2]}"' in tested for name in pythons)
