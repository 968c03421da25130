"""The page with a trained model: images unlike any learned, whole films, cases without pictures."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from protopyramid.runs.run import Run, load_run
from protopyramid.sharing.pack import PackOptions, pack

from .conftest import serving, watched_page
from .test_page import ROW, open_file


@pytest.fixture(scope="module")
def trained() -> Run:
    """The shipped model, trained on phantoms of 224 px, with limits and example images."""
    return load_run("phantoms")


@pytest.fixture(scope="module")
def unpictured(trained: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model as it travels without pictures."""
    folder = tmp_path_factory.mktemp("models")
    options = PackOptions(name="nopictures", pictures=False, anonymous=True)
    pack(trained, folder / "nopictures.zip", options)
    zipfile.ZipFile(folder / "nopictures.zip").extractall(folder / "nopictures")
    return folder / "nopictures"


@pytest.fixture(scope="module")
def phantoms(trained: Run, unpictured: Path, browser: Any) -> Iterator[str]:
    with serving("phantoms", unpictured) as address:
        yield address


@pytest.fixture
def phantom_page(browser: Any, phantoms: str) -> Iterator[Any]:
    with watched_page(browser, phantoms) as page:
        yield page


@pytest.fixture
def case(trained: Run) -> Path:
    return trained.folder / "cases" / "spiculated-2.png"


def headline(page: Any) -> str:
    page.wait_for_selector(ROW)
    return str(page.locator("#answer h1:visible").first.inner_text())


def test_what_the_model_has_learned_is_not_flagged(phantom_page: Any, case: Path) -> None:
    open_file(phantom_page, case)
    assert headline(phantom_page) == "Spiculated"


def test_noise_is_unlike_anything_learned(phantom_page: Any, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (224, 224), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    open_file(phantom_page, tmp_path / "noise.png")
    assert headline(phantom_page) == "Unlike anything the model has learned"
    assert phantom_page.get_by_text("Without that caution, the model would say:").is_visible()


def test_a_lesion_in_a_wide_film_is_to_be_marked_first(
    phantom_page: Any, case: Path, tmp_path: Path
) -> None:
    film = np.full((800, 1100), 90, np.uint8)
    film[300:524, 400:624] = np.asarray(Image.open(case).convert("L"))
    Image.fromarray(film).save(tmp_path / "film.png")
    open_file(phantom_page, tmp_path / "film.png")
    assert headline(phantom_page) == "Mark the lesion first"
    assert "1100 x 800 pixels" in phantom_page.locator("#flag-text").inner_text()


def test_a_model_without_pictures_tells_the_place_of_its_cases_in_words(
    phantom_page: Any, trained: Run, case: Path
) -> None:
    asked: list[str] = []
    phantom_page.on("request", lambda request: asked.append(request.url))
    phantom_page.select_option("#run", "nopictures")
    open_file(phantom_page, case)
    phantom_page.wait_for_selector(ROW)
    row = phantom_page.locator(ROW).first
    record = next(
        each for each in trained.prototypes if each.index == int(row.get_attribute("data-index"))
    )
    x, y = (record.box[0] + record.box[2]) / 2, (record.box[1] + record.box[3]) / 2
    sentence = row.locator(".sentence").inner_text()
    side = "left" if x < 1 / 3 else "right" if x >= 2 / 3 else ""
    height = "upper" if y < 1 / 3 else "lower" if y >= 2 / 3 else ""
    assert side in sentence and height in sentence
    assert "(spiculated, " in sentence
    light = (
        row.locator("canvas")
        .nth(1)
        .evaluate(
            """canvas => {
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
          const red = data.filter((_, index) => index % 4 === 0);
          return red.reduce((a, b) => a + b, 0) / red.length;
        }"""
        )
    )
    assert 5 < light < 80  # something is drawn, and it does not glare in a dark room
    assert not [url for url in asked if "nopictures/prototypes" in url and url.endswith(".png")]


def test_what_a_comparison_needs_is_tested_and_outlined_for_each_row_in_sight(
    phantom_page: Any, trained: Run, case: Path
) -> None:
    open_file(phantom_page, case)
    headline(phantom_page)
    row = phantom_page.locator(ROW).first
    index = int(row.get_attribute("data-index"))
    strongest_part = thumbnail(row)
    region = trained.explain(case, evidence=False).with_evidence(indices=[index]).evidence_regions
    asked: list[str] = []
    phantom_page.on("request", lambda request: asked.append(request.url))
    phantom_page.click("[data-testid=overlay-needed]")
    found = region[index]
    assert found is not None
    text = f"Needed: {round(100 * found.share)}\u00a0% of what the model sees."
    row.locator("[data-testid=needed]").get_by_text(text).wait_for()
    assert thumbnail(row) != strongest_part
    last = phantom_page.locator("[data-testid=needed]").last
    last.get_by_text("Needed:").or_(last.get_by_text("matches everywhere")).wait_for()
    rows = phantom_page.locator(ROW).count()
    assert (
        sum("/api/explain" in url for url in asked) == rows
    )  # once per row, not for all prototypes
    phantom_page.click("[data-testid=overlay-contour]")
    assert row.locator("[data-testid=needed]").is_hidden()
    assert thumbnail(row) == strongest_part


def thumbnail(row: Any) -> str:
    """What is drawn of the user's image in a row."""
    return str(row.locator("canvas").first.evaluate("canvas => canvas.toDataURL()"))


def test_rows_fit_their_panel_and_say_what_the_slider_is(phantom_page: Any, case: Path) -> None:
    open_file(phantom_page, case)
    row = phantom_page.locator("[data-testid=prototype-row]").first
    row.wait_for()
    phantom_page.select_option("#against", index=1)  # its sums are the longest
    panel = phantom_page.locator("#result")
    assert panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth")
    room = phantom_page.locator("#reasons").evaluate("section => section.clientWidth")
    assert row.evaluate("row => row.offsetWidth") <= room
    assert row.evaluate("row => row.scrollWidth <= row.clientWidth")  # nor does its text stand out
    assert row.locator(".weigh").inner_text().strip() == "weight"


def test_in_two_views_the_name_of_a_film_covers_nothing(phantom_page: Any, case: Path) -> None:
    open_file(phantom_page, case)
    headline(phantom_page)
    phantom_page.keyboard.press("2")
    phantom_page.keyboard.press("b")  # a lesion and a ruler: two lines of status
    phantom_page.keyboard.press("u")
    phantom_page.keyboard.press("b")
    phantom_page.wait_for_selector(".status:has-text('ruler')")
    name = phantom_page.locator(".film-name").first.bounding_box()
    status = phantom_page.locator(".status").first.bounding_box()
    assert name["y"] + name["height"] <= status["y"]
