"""docs/architecture.md describes the rooms that there are, and links lead somewhere."""

import ast
import re
from pathlib import Path

import pytest

import protopyramid
from protopyramid.api import load_run
from protopyramid.cli.presets import differences_table
from protopyramid.config import load_config

from .test_layers import ROOMS, imports

PROJECT = Path(__file__).parent.parent
PACKAGE = Path(protopyramid.__file__).parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (PROJECT / "docs/architecture.md").read_text(encoding="utf-8")
NOT_ROOMS = {"__init__", "__main__", "version"}  # of which `version` is a name in __init__.py


def rooms() -> list[str]:
    """The folders and modules of the package, in the order of the layers."""
    found = {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in PACKAGE.rglob("*.py")}
    return sorted(found - NOT_ROOMS, key=ROOMS.index)


def generated_pages() -> list[str]:
    """Pages that docs/site.py makes."""
    notebooks = [f"tutorials/{path.stem}.md" for path in (PROJECT / "notebooks").glob("*.ipynb")]
    return ["reference/commands.md", "reference/settings.md", *notebooks]


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the table below a heading, without its header."""
    below = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in below.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_layers_name_the_rooms_there_are() -> None:
    assert [room for room in ROOMS if room not in NOT_ROOMS] == rooms()


def test_the_architecture_has_a_line_for_every_room_in_order() -> None:
    rows = table(ARCHITECTURE, "The rooms")
    assert [row[0].strip("`") for row in rows] == rooms()
    assert all(len(row[1]) > 20 for row in rows)


def test_the_architecture_draws_only_imports_that_there_are() -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+)$", ARCHITECTURE, re.MULTILINE)
    assert len(drawn) > 15
    real = set()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        package = ["protopyramid", *parts[:-1]]
        source = path.read_text(encoding="utf-8")
        real |= {(parts[0], part) for part, *_ in imports(source, package)}
    assert set(drawn) - real == set()
    assert {room for arrow in drawn for room in arrow} == set(rooms()) - {
        "errors",
        "utils",
        "config",
    }


@pytest.mark.parametrize("document", sorted((PROJECT / "docs").rglob("*.md")), ids=lambda p: p.name)
def test_a_document_names_files_that_exist(document: Path) -> None:
    """Paths in backticks below a room or a folder of the project, and links to other documents."""
    text = document.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|toml))`", text))
    missing = [n for n in named if not ((PACKAGE / n).exists() or (PROJECT / n).exists())]
    assert missing == []
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)", text))
    paths = [(document.parent / link).resolve() for link in links]
    made = {(PROJECT / "docs" / name).resolve() for name in generated_pages()}
    assert [path for path in paths if not path.exists() and path not in made] == []


def test_the_readme_links_to_what_exists() -> None:
    links = set(re.findall(r"\]\((?!https?:)([^)#]+)", README))
    assert links and [link for link in links if not (PROJECT / link).exists()] == []


def test_code_in_the_readme_is_python() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        ast.parse(block)


def test_the_readme_lists_what_differs_from_the_paper_as_the_command_prints_it() -> None:
    printed = differences_table(load_config("protopyramid")).partition("\n\n")[2].strip()
    assert printed.count("\n") > 30
    assert printed in README


def test_documents_say_whether_the_shipped_demo_is_of_todays_settings() -> None:
    stale = load_run("phantoms").config.model != load_config("demo").model
    for name in ("README.md", "docs/index.md", "docs/models.md"):
        text = (PROJECT / name).read_text(encoding="utf-8")
        assert ("an earlier version of protopyramid" in text) == stale, name
