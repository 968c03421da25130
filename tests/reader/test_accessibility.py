"""axe-core finds nothing on the screens, in the dark and in the light."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .test_page import ROW, open_file

axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed"
)
SETTINGS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}


def problems(page: Any) -> list[str]:
    """What axe-core finds, one line per rule and element."""
    found = axe.Axe().run(page, options=SETTINGS).response["violations"]
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found for node in rule["nodes"]]


@pytest.fixture(params=["dark", "light"])
def themed(page: Any, request: pytest.FixtureRequest) -> Any:
    """The page in a theme."""
    if request.param == "light":
        page.locator("#theme").click()
    assert page.locator("html").get_attribute("data-theme") == request.param
    return page


def test_reading_a_lesion(themed: Any, lesion: Path) -> None:
    assert problems(themed) == []
    open_file(themed, lesion)
    themed.wait_for_selector(ROW)
    themed.locator("[data-testid=prototype-toggle]").first.uncheck()
    themed.locator("[data-testid=ask-other]").click()
    themed.locator("#others").get_by_text("no case stands behind it").wait_for()
    assert problems(themed) == []


def test_a_case_and_the_keys(themed: Any, lesion: Path) -> None:
    open_file(themed, lesion)
    themed.wait_for_selector(ROW)
    themed.locator("[data-testid=open-case]").first.click()
    themed.locator("#case-sheet [data-testid=neighbour]").first.wait_for()
    assert problems(themed) == []
    themed.keyboard.press("Escape")
    themed.keyboard.press("?")
    assert problems(themed) == []


def test_prototypes(themed: Any) -> None:
    themed.get_by_role("link", name="Prototypes").click()
    themed.locator("[data-testid=prototype-card]").first.click()
    themed.locator("[data-testid=neighbour]").first.wait_for()
    themed.locator("[data-testid=remove]").check()
    assert problems(themed) == []
