"""The page in a real browser: open, mark, read, switch off, and see what goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.manifest import Manifest
from protopyramid.runs.run import Run

ROW, TOGGLE = "[data-testid=prototype-row]", "[data-testid=prototype-toggle]"


def value(page: Any, selector: str) -> float:
    return float(page.locator(selector).first.get_attribute("data-value"))


def scores(page: Any, run: Run) -> dict[str, float]:
    return {name: value(page, f"[data-testid=score-{name}]") for name in run.config.data.classes}


def open_file(page: Any, path: Path) -> None:
    page.set_input_files("[data-testid=open-file]", path)


@pytest.fixture
def film(tmp_path: Path, lesion: Path) -> Path:
    """A film of 2000 x 1600 pixels at 16 bits, dark but for a lesion in its middle."""
    small = np.asarray(Image.open(lesion).convert("L").resize((400, 400)), np.uint16)
    values = np.full((2000, 1600), 3000, np.uint16)
    values[800:1200, 600:1000] += small * 60
    path = tmp_path / "film.png"
    Image.fromarray(values).save(path)
    return path


def test_a_small_image_is_read_at_once_as_the_python_api_reads_it(
    page: Any, run: Run, lesion: Path
) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    expected = run.explain(lesion)
    assert scores(page, run) == pytest.approx(expected.logits, abs=1e-9)
    assert page.locator("[data-testid=predicted]").get_attribute("data-class") == expected.predicted
    shown = page.locator(ROW).evaluate_all("rows => rows.map(row => Number(row.dataset.index))")
    sizes = {
        part.index: abs(part.contributions[expected.predicted]) for part in expected.prototypes
    }
    assert [sizes[index] for index in shown] == sorted(sizes.values(), reverse=True)[: len(shown)]
    assert "not a medical device" in page.locator("header").inner_text()


def test_a_prototype_that_is_switched_off_takes_exactly_its_contribution(
    page: Any, run: Run, lesion: Path
) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    before = scores(page, run)
    index = int(page.locator(ROW).first.get_attribute("data-index"))
    part = next(each for each in run.explain(lesion).prototypes if each.index == index)
    chosen = page.locator("[data-testid=predicted]").get_attribute("data-class")
    assert value(page, "[data-testid=contribution]") == part.contributions[chosen]
    page.locator(TOGGLE).first.uncheck()
    after = scores(page, run)
    for name, contribution in part.contributions.items():
        assert before[name] - after[name] == pytest.approx(contribution, abs=1e-9)
    page.locator("[data-testid=reset]").click()
    assert scores(page, run) == before


def test_a_level_is_shown_alone_and_switched_off(page: Any, run: Run, lesion: Path) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    page.locator("[data-testid=level][data-level='5']").click()
    levels = page.locator(ROW).evaluate_all("rows => rows.map(row => row.dataset.level)")
    assert set(levels) == {"5"}
    before = scores(page, run)
    page.locator("[data-testid=level-toggle][data-level='5']").uncheck()
    after = scores(page, run)
    parts = [each for each in run.explain(lesion).prototypes if each.level == 5]
    for name in before:
        lost = sum(part.contributions[name] for part in parts)
        assert before[name] - after[name] == pytest.approx(lost, abs=1e-9)


def test_a_lesion_is_marked_by_mouse_and_moved_by_its_handle(
    page: Any, run: Run, film: Path
) -> None:
    open_file(page, film)
    page.get_by_text("Drag a box around the lesion. The model").wait_for()
    assert page.locator(ROW).count() == 0  # a film is not read whole
    frame = page.locator("#canvas").bounding_box()
    x, y = frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2
    drag(page, (x - 50, y - 50), (x + 50, y + 50))
    first = answered(page, lambda: None)
    region = first["region"]
    assert region["x1"] - region["x0"] == region["y1"] - region["y0"]
    assert (region["x0"] + region["x1"]) / 2 == pytest.approx(800, abs=4)
    assert (region["y0"] + region["y1"]) / 2 == pytest.approx(1000, abs=4)
    page.wait_for_selector(ROW)
    box = tuple(region[edge] for edge in ("x0", "y0", "x1", "y1"))
    assert scores(page, run) == pytest.approx(run.explain(film, region=box).logits, abs=1e-9)
    second = answered(page, lambda: drag(page, (x + 50, y + 50), (x + 90, y + 90)))
    wider = second["region"]["x1"] - second["region"]["x0"]
    assert wider == pytest.approx(1.4 * (region["x1"] - region["x0"]), rel=0.03)


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=5)
    page.mouse.up()


def answered(page: Any, act: Any) -> Any:
    """The explanation that the page gets when something is done."""
    with page.expect_response("**/api/explain") as waiting:
        act()
    return waiting.value.json()


def test_a_lesion_is_marked_by_keys(page: Any, run: Run, film: Path) -> None:
    open_file(page, film)
    page.get_by_text("Drag a box around the lesion. The model").wait_for()
    page.locator("#canvas").focus()
    first = answered(page, lambda: page.keyboard.press("b"))["region"]
    moved = answered(page, lambda: page.keyboard.press("Shift+ArrowRight"))["region"]
    assert moved["x0"] > first["x0"] and moved["y0"] == first["y0"]
    assert moved["x1"] - moved["x0"] == first["x1"] - first["x0"]
    larger = answered(page, lambda: page.keyboard.press("Alt+Shift+ArrowDown"))["region"]
    assert larger["x1"] - larger["x0"] > moved["x1"] - moved["x0"]
    page.wait_for_selector(ROW)
    page.locator("#canvas").focus()
    page.keyboard.press("Delete")
    page.locator("#answer").wait_for(state="hidden")


def test_a_case_of_the_manifest_is_opened(page: Any, run: Run, manifest: Manifest) -> None:
    page.select_option("#case", "1")
    page.wait_for_selector(ROW)
    expected = run.explain(manifest.samples[1].image)
    assert scores(page, run) == pytest.approx(expected.logits, abs=1e-9)


def test_a_black_box_says_that_it_cannot_say_why(page: Any, black_box: Run, lesion: Path) -> None:
    page.select_option("#run", black_box.name)
    open_file(page, lesion)
    page.get_by_text("cannot say why").wait_for()
    assert scores(page, black_box) == pytest.approx(black_box.explain(lesion).logits, abs=1e-9)


def test_a_broken_file_shows_its_error_and_the_next_one_clears_it(
    page: Any, lesion: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG broken")
    open_file(page, broken)
    error = page.locator("[data-testid=error]")
    error.wait_for()
    assert "cannot read the image" in error.inner_text()
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    assert error.is_hidden()


def test_the_film_is_drawn_and_its_window_changes(page: Any, film: Path) -> None:
    open_file(page, film)
    page.get_by_text("Drag a box around the lesion. The model").wait_for()
    page.wait_for_timeout(500)
    middle = brightness(page)
    assert middle > 20
    page.locator("#canvas").focus()
    page.keyboard.press("i")
    page.wait_for_timeout(300)
    assert brightness(page) == pytest.approx(255 - middle, abs=3)
    page.keyboard.press("i")
    for _ in range(8):
        page.keyboard.press(".")
    page.wait_for_timeout(1500)
    assert brightness(page) < middle - 10


def brightness(page: Any) -> float:
    """The mean of the middle of the canvas."""
    return float(
        page.evaluate(
            """() => {
              const canvas = document.getElementById("canvas");
              const [x, y] = [canvas.width / 2 - 30, canvas.height / 2 - 30];
              const data = canvas.getContext("2d").getImageData(x, y, 60, 60).data;
              return data.filter((_, index) => index % 4 === 0).reduce((a, b) => a + b, 0) / 3600;
            }"""
        )
    )


def test_everything_is_reached_by_keyboard_and_named(page: Any, lesion: Path) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, input, select, canvas, [role=toolbar]")]
          .filter((each) => each.checkVisibility())
          .filter((each) => !each.textContent.trim() && !each.ariaLabel && !each.labels?.length)
          .map((each) => each.outerHTML)"""
    )
    assert unnamed == []
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.dataset.testid ?? document.activeElement.id")
        )
    wanted = {"open-file", "film", "level", "level-toggle", "prototype-row", "prototype-toggle"}
    assert wanted <= reached
    page.locator("#canvas").focus()
    page.keyboard.press("?")
    assert page.locator("#sheet").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#sheet").is_hidden()
