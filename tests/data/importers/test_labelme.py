"""labelme: lesions from polygons, rectangles and circles; the rest is told."""

from __future__ import annotations

import base64
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.cli.main import main
from protopyramid.data.annotations import Circle, Polygons
from protopyramid.data.importers.base import Crop, ImportPlan, Options
from protopyramid.data.importers.labelme import find
from protopyramid.data.io.decoding import read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError

from .conftest import HEIGHT, JSON_VALUES, WIDTH, only, reasons, save_image

TRIANGLE = [[5, 5], [25, 5], [5, 20]]


def shape(points: Any, kind: str = "polygon", label: Any = "mass", **more: Any) -> dict[str, Any]:
    return {"label": label, "points": points, "shape_type": kind, "flags": {}, **more}


def save_json(path: Path, *shapes: Any, image: Any = "a.png", **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"version": "5.4.1", "flags": {}, "shapes": list(shapes), "imagePath": image}
    content |= {"imageData": None, "imageHeight": HEIGHT, "imageWidth": WIDTH, **more}
    path.write_text(json.dumps(content))


def one(tmp_path: Path, *shapes: Any) -> ImportPlan:
    """The import of one image with some shapes."""
    save_image(tmp_path / "a.png")
    save_json(tmp_path / "a.json", *shapes)
    return find(tmp_path, Options(test_fraction=0))


def test_a_lesion_is_its_polygon_with_its_label(tmp_path: Path) -> None:
    found = one(tmp_path, shape(TRIANGLE, label="Ill-defined "))
    assert only(found) == Crop(
        "a",
        tmp_path / "a.png",
        "indistinct",
        "train",
        annotation=Polygons((((5.0, 5.0), (25.0, 5.0), (5.0, 20.0)),)),
    )
    assert not found.skipped
    assert "labels renamed: Ill-defined -> indistinct" in found.notes


@pytest.mark.parametrize(
    "corners",
    [[[3, 4], [9, 8]], [[9, 8], [3, 4]], [[9, 4], [3, 8]], [[3, 4], [9, 4], [9, 8], [3, 8]]],
)
def test_a_rectangle_is_drawn_from_any_corner(tmp_path: Path, corners: list[list[int]]) -> None:
    annotation = only(one(tmp_path, shape(corners, "rectangle"))).annotation
    assert annotation == Polygons((((3.0, 4.0), (9.0, 4.0), (9.0, 8.0), (3.0, 8.0)),))


def test_a_circle_is_given_by_its_centre_and_a_point_on_it(tmp_path: Path) -> None:
    crop = only(one(tmp_path, shape([[10, 12], [13, 16]], "circle")))
    assert crop.annotation == Circle((10.0, 12.0), 5.0)


def test_shapes_of_one_group_and_label_are_one_lesion(tmp_path: Path) -> None:
    found = one(
        tmp_path,
        shape(TRIANGLE, group_id=1),
        shape(TRIANGLE, group_id=None),
        shape([[30, 20], [33, 24]], "circle", group_id=1),
        shape(TRIANGLE, label="other", group_id=1),
    )
    assert [crop.label for crop in found.crops] == ["mass", "mass", "other"]
    assert [crop.name for crop in found.crops] == ["a", "a_2", "a_3"]
    annotation = found.crops[0].annotation
    assert isinstance(annotation, Polygons)
    triangle, ring = annotation.outlines
    assert len(triangle) == 3
    assert all(math.isclose(math.dist(point, (30, 20)), 5) for point in ring)
    assert len({crop.patient_id for crop in found.crops}) == 1


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (shape([[1, 2]], "point"), "unsupported shape, or one without an inside: point"),
        (
            shape(TRIANGLE, "linestrip"),
            "unsupported shape, or one without an inside: linestrip",
        ),
        (
            shape([[1, 2], [9, 9]], "mask"),
            "unsupported shape, or one without an inside: mask",
        ),
        (shape([[1, 2], [9, 9]]), "unusable outline: 2 distinct point(s), three are needed"),
        (shape([[1, 2], [9]]), "unusable outline: a point is not of the form [x, y]"),
        (shape(None), "unusable outline: 0 distinct point(s), three are needed"),
        (shape([[1, 1], [1, 9]], "rectangle"), "unusable box: it is empty or inverted"),
        (
            shape([[1, 1]], "rectangle"),
            "unusable rectangle: 1 points, but two or four corners are needed",
        ),
        (shape([[1, 1], [1, 1]], "circle"), "unusable circle: its radius is zero"),
        (shape([[1, 1]], "circle"), "unusable circle: 1 points, but centre and edge are needed"),
        (
            shape([[60, 1], [62, 1]], "circle"),
            "outside its image: the image has 40 x 30 pixels",
        ),
        (shape(TRIANGLE, label=""), "shape without a label"),
        (shape(TRIANGLE, label=None), "shape without a label"),
        ("odd", "shape without a label"),
    ],
)
def test_a_shape_that_cannot_be_used_is_told(tmp_path: Path, item: object, reason: str) -> None:
    found = one(tmp_path, shape(TRIANGLE), item)
    assert only(found).name == "a"
    assert reasons(found) == {"a.json shape 2": reason}


def test_an_image_path_may_go_up_within_the_source(tmp_path: Path) -> None:
    save_image(tmp_path / "images/a.png")
    save_json(tmp_path / "json/a.json", shape(TRIANGLE), image="..\\images\\a.png")
    found = find(tmp_path, Options())
    assert only(found).image == tmp_path / "images/a.png"
    assert not found.skipped


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("../secret.png", "path of the image leads outside the source: ../secret.png"),
        ("C:\\a.png", "absolute path of the image: C:/a.png; make it relative"),
        ("b.png", "image is missing: b.png"),
        (None, "no image file is given"),
    ],
)
def test_an_image_that_is_missing_or_outside_of_the_source_is_told(
    source: Path, image: str | None, reason: str
) -> None:
    save_json(source / "a.json", shape(TRIANGLE))
    save_json(source / "b.json", shape(TRIANGLE), image=image)
    found = find(source, Options())
    assert only(found).name == "a"
    assert reasons(found) == {"b.json": reason}


def test_the_copy_of_an_image_inside_the_file_is_not_used_and_that_is_told(tmp_path: Path) -> None:
    save_image(tmp_path / "a.png")
    data = base64.b64encode((tmp_path / "a.png").read_bytes()).decode()
    save_json(tmp_path / "a.json", shape(TRIANGLE), imageData=data)
    save_json(tmp_path / "b.json", shape(TRIANGLE), image="b.png", imageData=data)
    found = find(tmp_path, Options())
    assert only(found).name == "a"
    assert reasons(found) == {
        "b.json": "image is missing: b.png; save it there, the copy in the JSON file is not used"
    }


def test_files_and_images_that_tell_nothing_are_told(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        save_image(tmp_path / f"{name}.png")
    save_json(tmp_path / "a.json", shape(TRIANGLE))
    save_json(tmp_path / "b.json", image="b.png")
    save_json(tmp_path / "turned.json", shape(TRIANGLE), imageHeight=WIDTH, imageWidth=HEIGHT)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    found = find(tmp_path, Options())
    assert only(found).name == "a"
    assert reasons(found) == {
        "b.json": "no shapes",
        "broken.json": "not JSON: Expecting property name enclosed in double quotes",
        "other.json": "not a labelme file: it has no list shapes",
        "turned.json": "image size differs from its annotation: 40 x 30 pixels, not 30 x 40",
        "c.png": "image that no labelme file refers to",
    }


def test_folders_with_the_name_of_a_split_are_the_splits(tmp_path: Path) -> None:
    for folder in ("train", "val", "test/more"):
        save_image(tmp_path / folder / "a.png")
        save_json(tmp_path / folder / "a.json", shape(TRIANGLE))
    crops = find(tmp_path, Options()).crops
    assert {crop.name: crop.split for crop in crops} == {
        "train_a": "train",
        "val_a": "validation",
        "test_more_a": "test",
    }


FIELDS = {
    "label": JSON_VALUES,
    "points": st.lists(st.lists(st.integers(-9, 99), min_size=2, max_size=2), max_size=5)
    | JSON_VALUES,
    "shape_type": st.sampled_from(["polygon", "rectangle", "circle", "point"]) | JSON_VALUES,
    "group_id": JSON_VALUES,
}


@settings(deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional=FIELDS) | JSON_VALUES, max_size=4))
def test_whatever_a_file_holds_each_shape_is_in_a_crop_or_told(shapes: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = one(Path(folder), *shapes)
    told = [skip for skip in found.skipped if skip.item.startswith("a.json shape")]
    drawn = 0
    for crop in found.crops:
        alone = isinstance(crop.annotation, Circle)
        drawn += 1 if alone else len(crop.annotation.outlines)  # type: ignore[union-attr]
        assert crop.label.encode()
    assert drawn + len(told) == len(shapes)


def test_a_source_without_a_labelme_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UserError, match="holds no labelme file"):
        find(tmp_path, Options())


def test_the_command_writes_crops_of_a_group_and_of_a_circle(tmp_path: Path) -> None:
    source, out = tmp_path / "src", tmp_path / "out"
    values = save_image(source / "a.png")
    save_json(
        source / "a.json",
        shape([[10, 10], [14, 14]], "rectangle", group_id=1, label="SPICULATED"),
        shape([[16, 10], [20, 14]], "rectangle", group_id=1, label="SPICULATED"),
        shape([[20, 15], [24, 15]], "circle", label="Obscured"),
    )
    command = ["data", "import", "labelme", str(source), str(out), "--workers", "1"]
    assert main([*command, "--test-fraction", "0", "--margin", "0"]) == 0
    pair, disc = read_manifest(out / "manifest.csv").samples
    assert pair.mask is not None
    assert disc.mask is not None
    # The box is 10 x 4 pixels from (10, 10), in a square of 10 from (10, 7).
    expected = np.zeros((10, 10))
    expected[3:7, 0:4] = expected[3:7, 6:10] = 1
    np.testing.assert_array_equal(read_image(pair.mask), expected)
    np.testing.assert_allclose(read_image(pair.image), values[7:17, 10:20] / 255, atol=1e-5)
    y, x = np.mgrid[11:19, 16:24] + 0.5
    np.testing.assert_array_equal(read_image(disc.mask), np.hypot(x - 20, y - 15) <= 4)
    assert (pair.label, disc.label) == ("spiculated", "obscured")
    assert pair.patient_id == disc.patient_id == "image a.png"


def test_films_have_the_boxes_of_all_shapes_if_all_are_known(tmp_path: Path) -> None:
    for name in ("b", "c"):
        save_image(tmp_path / f"{name}.png")
    save_json(tmp_path / "b.json", shape(TRIANGLE), shape([[3, 4]], "point"), image="b.png")
    save_json(tmp_path / "c.json", shape(TRIANGLE), image="c.png", imageWidth=WIDTH + 1)
    save_json(tmp_path / "again.json", shape(TRIANGLE), image="c.png")
    found = one(tmp_path, shape(TRIANGLE), shape([[20, 15], [20, 10]], "circle"))
    assert [(row.image.name, row.box) for row in found.films] == [
        ("a.png", (5, 5, 25, 20)),
        ("a.png", (15, 10, 25, 20)),
    ]
    left_out = {each.item: each.reason for each in found.films_left_out}
    assert sorted(left_out) == ["b.png", "c.png"]
    assert "b.json shape 2" in left_out["b.png"] and "size differs" in left_out["c.png"]
