"""Reader study and annotating in a real browser: to the CSV, and to the mask on disk."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.check import check_manifest
from protopyramid.data.manifest import Manifest, read_manifest
from protopyramid.reader.readings.store import ReadingStore
from protopyramid.runs.run import Run

from .conftest import serving, watched_page
from .test_accessibility import problems


def test_id(name: str) -> str:
    return f"[data-testid={name}]"


test_id.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def study_address(run: Run, manifest: Manifest, folder: Path) -> Iterator[str]:
    """A server with a study of three cases, and with annotations."""
    table = folder / "cases.csv"
    rows = [["image", "label", "split"]]
    rows += [[str(each.image), each.label, "test"] for each in manifest.samples[:3]]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    words = ("--readings", folder / "readings", "--annotations", folder / "drawn")
    with serving(run.folder.path, "--data", table, *words) as address:
        yield address


@contextmanager
def screen(browser: Any, address: str, name: str) -> Iterator[Any]:
    """A screen of the page, chosen in its navigation."""
    with watched_page(browser, address) as page:
        page.click(f"[data-screen={name}]")
        yield page


def violations(page: Any) -> list[str]:
    """What axe-core finds in the dark and in the light."""
    found = problems(page)
    page.click("#theme")
    found += problems(page)
    page.click("#theme")
    return found


def read_case(page: Any, place: int, margin: str, confidence: int, birads: str) -> None:
    page.wait_for_selector(f"text=Case {place} of 3")
    assert page.locator(test_id("study-save")).is_disabled()
    assert page.locator(test_id("study-predicted")).count() == 0
    page.check(test_id(f"margin-{margin}"))
    page.fill(test_id("confidence"), str(confidence))
    page.check(test_id(f"birads-{birads}"))
    page.click(test_id("study-save"))
    page.wait_for_selector(test_id("study-predicted"))
    page.wait_for_selector(test_id("study-row"))


def test_a_study_is_read_to_its_table(
    browser: Any, study_address: str, run: Run, manifest: Manifest, folder: Path, tmp_path: Path
) -> None:
    with screen(browser, study_address, "readings") as page:
        page.wait_for_selector(test_id("study-begin"))
        assert violations(page) == []
        page.fill(test_id("study-reader"), "Dr Weber")
        page.click(test_id("study-begin"))
        read_case(page, 1, "indistinct", 30, "4A")
        assert violations(page) == []
        page.check(test_id("margin-spiculated"))
        page.fill(test_id("confidence"), "80")
        page.click(test_id("study-save"))
        page.wait_for_selector("text=Case 2 of 3")
        page.locator(test_id("study-film")).focus()
        page.keyboard.press("1")
        assert page.is_checked(test_id("margin-circumscribed"))
        read_case(page, 2, "negative", 55, "1")
        page.reload()  # in the middle of a case
        page.wait_for_selector("text=1 of 3 cases read")
        page.click("text=Dr Weber")
        page.wait_for_selector(test_id("study-predicted"))
        assert "Step 2" in page.inner_text(test_id("study-step"))
        page.click(test_id("study-save"))
        read_case(page, 3, "spiculated", 100, "5")
        page.click(test_id("study-save"))
        page.wait_for_selector(test_id("study-done"))
        page.click("text=Back to the start")
        page.click(test_id("study-results"))
        page.wait_for_selector(test_id("study-over_reliance"))
        assert violations(page) == []
        with page.expect_download() as waiting:
            page.click(test_id("study-csv"))
        waiting.value.save_as(tmp_path / "readings.csv")
    rows = list(csv.DictReader((tmp_path / "readings.csv").open()))
    with ReadingStore.open(folder / "readings") as store:
        order = store.plan.order("Dr Weber")
    assert [row["case"] for row in rows] == [str(manifest.samples[each].image) for each in order]
    said = [
        (row["unaided_margin"], row["unaided_confidence"], row["unaided_birads"]) for row in rows
    ]
    assert said == [("indistinct", "30", "4A"), ("negative", "55", "1"), ("spiculated", "100", "5")]
    assert [row["aided_margin"] for row in rows] == ["spiculated", "negative", "spiculated"]
    assert [row["changed"] for row in rows] == ["1", "0", "0"]
    assert [row["aided_openings"] for row in rows] == ["1", "2", "1"]
    assert all(float(row["unaided_seconds"]) > 0 for row in rows)
    for row in rows:
        assert row["model_margin"] == run.explain(row["case"]).predicted


def middle(page: Any) -> tuple[float, float]:
    frame = page.locator(test_id("annotate-film")).bounding_box()
    return frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2


def drag(page: Any, *points: tuple[float, float]) -> None:
    page.mouse.move(*points[0])
    page.mouse.down()
    for point in points[1:]:
        page.mouse.move(*point, steps=4)
    page.mouse.up()


def saved_row(folder: Path, number: int) -> Any:
    return read_manifest(folder / "drawn/manifest.csv").samples[number]


def values_of(row: Any) -> Any:
    assert row.mask is not None
    return np.asarray(Image.open(row.mask))


def test_a_mask_is_drawn_and_found_on_disk(
    browser: Any, study_address: str, manifest: Manifest, folder: Path
) -> None:
    with screen(browser, study_address, "annotate") as page:
        page.wait_for_selector("text=Nothing drawn by you yet.")
        assert violations(page) == []
        page.click(test_id("annotate-outline"))
        x, y = middle(page)
        corners = [(x - 90, y - 90), (x + 90, y - 90), (x + 90, y + 90), (x - 90, y + 90)]
        drag(page, *corners, corners[0])
        page.click(test_id("annotate-save"))
        page.wait_for_selector("text=Saved: mask.")
        outlined = values_of(saved_row(folder, 0))
        assert outlined.shape == (64, 64) and set(np.unique(outlined).tolist()) == {0, 255}
        assert outlined[32, 32] == 255 and outlined[2, 2] == 0
        columns = np.flatnonzero(outlined.any(0))
        assert columns[0] + columns[-1] == pytest.approx(63, abs=2)  # around the middle
        page.click(test_id("annotate-erase"))
        drag(page, (x, y), (x + 5, y))
        page.click(test_id("annotate-save"))
        page.wait_for_selector("text=Saved: mask.")
        page.wait_for_function("document.querySelector('[data-testid=annotate-save]').disabled")
        erased = values_of(saved_row(folder, 0))
        assert erased[32, 32] == 0 and erased.sum() < outlined.sum()
        page.keyboard.press("Control+z")
        page.wait_for_selector("text=Not saved yet.")
        page.keyboard.press("Control+s")
        page.wait_for_selector("text=Saved: mask.")
        assert np.array_equal(values_of(saved_row(folder, 0)), outlined)
        page.click(test_id("annotate-redo"))
        page.click(test_id("annotate-next"))  # saves, too
        page.wait_for_selector("text=Nothing drawn by you yet.")
        assert np.array_equal(values_of(saved_row(folder, 0)), erased)
    assert check_manifest(folder / "drawn/manifest.csv").errors == []


def test_brush_and_box_by_keys_alone_and_work_continues_after_a_reload(
    browser: Any, study_address: str, folder: Path
) -> None:
    with screen(browser, study_address, "annotate") as page:
        page.wait_for_selector("text=Nothing drawn by you yet.")
        page.select_option(test_id("annotate-case"), "2")
        page.wait_for_function(
            "document.querySelector('[data-testid=annotate-case]').value === '2'"
        )
        page.wait_for_timeout(300)
        film = page.locator(test_id("annotate-film"))
        film.focus()
        for key in ("b", " ", "Shift+ArrowRight", "Shift+ArrowDown", " ", "x", "Shift+ArrowLeft"):
            page.keyboard.press(key)
        page.keyboard.press("Control+s")
        page.wait_for_selector("text=Saved: mask and box.")
        row = saved_row(folder, 2)
        assert values_of(row)[32, 32] == 255
        assert row.box is not None and row.box[0] < 32 < row.box[3]
        page.reload()
        page.wait_for_selector(test_id("annotate-save"))
        page.select_option(test_id("annotate-case"), "2")
        page.wait_for_selector("text=Saved: mask and box.")
        page.click(test_id("annotate-remove"))
        page.wait_for_selector("text=Nothing drawn by you yet.")
        assert saved_row(folder, 2).extra["annotation"] == ""


def test_without_folders_the_screens_say_how_to_begin(browser: Any, address: str) -> None:
    for name, option in (("readings", "--readings"), ("annotate", "--annotations")):
        with screen(browser, address, name) as page:
            page.locator(f"#{name} code", has_text=option).wait_for()


def test_a_case_unlike_the_training_data_is_said_first_in_a_study(
    browser: Any, tmp_path: Path
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (224, 224), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    table = tmp_path / "cases.csv"
    table.write_text("image,label,split\nnoise.png,spiculated,test\n")
    with (
        serving("phantoms", "--data", table, "--readings", tmp_path / "readings") as address,
        screen(browser, address, "readings") as page,
    ):
        page.fill(test_id("study-reader"), "Dr Weber")
        page.click(test_id("study-begin"))
        page.check(test_id("margin-spiculated"))
        page.fill(test_id("confidence"), "50")
        page.check(test_id("birads-3"))
        page.click(test_id("study-save"))
        page.wait_for_selector(test_id("study-predicted"))
        said = page.locator(".aid").inner_text()
        assert said.startswith("Unlike anything the model has learned")
