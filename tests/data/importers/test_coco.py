"""COCO: lesions from polygons, masks and boxes; splits from names; the rest is told."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protopyramid.cli.main import main
from protopyramid.data.annotations import Polygons
from protopyramid.data.importers.base import Crop, ImportPlan, Options
from protopyramid.data.importers.coco import find
from protopyramid.data.io.decoding import read_image
from protopyramid.data.manifest import read_manifest
from protopyramid.errors import UserError

from .conftest import HEIGHT, JSON_VALUES, WIDTH, only, reasons, save_image

TRIANGLE = [5, 5, 25, 5, 5, 20]
CATEGORIES = [{"id": 1, "name": "Spiculated"}, {"id": 2, "name": "ill-defined"}]


def picture(number: int, name: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT, **more}


def lesion(number: int, image: int, category: int = 1, **more: Any) -> dict[str, Any]:
    return {"id": number, "image_id": image, "category_id": category, "iscrowd": 0, **more}


def save_json(path: Path, images: list[Any], annotations: list[Any], **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"images": images, "annotations": annotations, "categories": CATEGORIES, **more}
    path.write_text(json.dumps(content))


def one(tmp_path: Path, **annotation: Any) -> ImportPlan:
    """The import of one annotation of one image."""
    save_image(tmp_path / "a.png")
    save_json(tmp_path / "x.json", [picture(7, "a.png")], [lesion(1, 7, **annotation)])
    return find(tmp_path, Options(test_fraction=0))


def test_a_lesion_is_its_polygons_with_its_category(tmp_path: Path) -> None:
    found = one(tmp_path, segmentation=[TRIANGLE, [30, 5, 38, 5, 38, 9]], bbox=[0, 0, 40, 30])
    outlines = (
        ((5.0, 5.0), (25.0, 5.0), (5.0, 20.0)),
        ((30.0, 5.0), (38.0, 5.0), (38.0, 9.0)),
    )
    assert only(found) == Crop(
        "a", tmp_path / "a.png", "spiculated", "train", annotation=Polygons(outlines)
    )
    assert not found.skipped
    assert "labels renamed: Spiculated -> spiculated" in found.notes
    assert any("one patient may be in several splits" in note for note in found.notes)


def test_a_flat_list_is_one_polygon(tmp_path: Path) -> None:
    crop = only(one(tmp_path, segmentation=TRIANGLE))
    assert crop.annotation == Polygons((((5.0, 5.0), (25.0, 5.0), (5.0, 20.0)),))


@pytest.mark.parametrize("missing", [{}, {"segmentation": []}, {"segmentation": None}])
def test_without_outlines_the_bbox_is_the_lesion_box(
    tmp_path: Path, missing: dict[str, Any]
) -> None:
    crop = only(one(tmp_path, bbox=[10, 5, 8, 4.5], **missing))
    assert (crop.box, crop.annotation) == ((10, 5, 18, 9.5), None)


def test_a_polygon_of_two_points_is_told_and_the_others_are_used(tmp_path: Path) -> None:
    found = one(tmp_path, segmentation=[[1, 1, 9, 9], TRIANGLE])
    annotation = only(found).annotation
    assert isinstance(annotation, Polygons)
    assert len(annotation.outlines) == 1
    assert reasons(found) == {
        "x.json annotation 1, a part": "unusable outline: 2 distinct point(s), three are needed"
    }


# Letters of the compressed counts [63, 5, 25, 5, 1102], worked out by hand from the definition:
# 63 = 1*32 + 31 -> "o1"; 5 -> "5"; 25 -> 25 with the sign bit clear needs "i0"; 5 - 5 = 0 -> "0";
# 1102 - 25 = 1077 = 1*1024 + 1*32 + 21 -> "eQ1".
@pytest.mark.parametrize("counts", [[63, 5, 25, 5, 1102], "o15i00eQ1"])
def test_a_mask_of_run_lengths_is_its_pixels(tmp_path: Path, counts: object) -> None:
    crop = only(one(tmp_path, segmentation={"size": [HEIGHT, WIDTH], "counts": counts}))
    # Column by column: 63 pixels are two columns of 30 and 3 rows; five rows of columns 2 and 3.
    assert crop.annotation == Polygons((((2.0, 3.0), (4.0, 3.0), (4.0, 8.0), (2.0, 8.0)),))


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ({"segmentation": [TRIANGLE], "iscrowd": 1}, "crowd region: not a single lesion"),
        ({"segmentation": [TRIANGLE], "category_id": 9}, "category_id is not among the categories"),
        ({"segmentation": [TRIANGLE], "image_id": 9}, "image_id is not among the images"),
        ({}, "neither a segmentation nor a bbox"),
        ({"bbox": [1, 2, 3]}, "neither a segmentation nor a bbox"),
        ({"bbox": [1, 2, 0, 3]}, "unusable box: it is empty or inverted"),
        ({"bbox": [1, 2, None, 3]}, "not a number: 'None'"),
        ({"bbox": [41, 2, 5, 5]}, "outside its image: the image has 40 x 30 pixels"),
        (
            {"segmentation": [[50, 1, 60, 1, 60, 9]], "bbox": [1, 1, 5, 5]},
            "outside its image: the image has 40 x 30 pixels",
        ),
        ({"segmentation": [[1, 2, 3, 4, 5]]}, "unusable outline: not a list of x, y, x, y, ..."),
        (
            {"segmentation": {"size": [30, 41], "counts": [0, 1230]}},
            "unusable mask: its size [30, 41] is not that of its image",
        ),
        (
            {"segmentation": {"size": [30, 40], "counts": [0, 12]}},
            "unusable mask: the counts do not fill 40 x 30 pixels",
        ),
    ],
)
def test_an_annotation_that_cannot_be_used_is_told(
    tmp_path: Path, annotation: dict[str, Any], reason: str
) -> None:
    save_image(tmp_path / "a.png")
    annotations = [lesion(1, 7, segmentation=[TRIANGLE]), {**lesion(2, 7), **annotation}]
    save_json(tmp_path / "x.json", [picture(7, "a.png")], annotations)
    found = find(tmp_path, Options())
    assert only(found).name == "a"
    assert reasons(found) == {"x.json annotation 2": reason}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../secret.png", "path of the image leads outside the source: ../secret.png"),
        ("/secret.png", "absolute path of the image: /secret.png; make it relative"),
        ("b.png", "image is missing: b.png"),
        ("", "no image file is given"),
        (None, "no image file is given"),
    ],
)
def test_an_image_that_is_missing_or_outside_of_the_source_is_told(
    source: Path, name: str | None, reason: str
) -> None:
    images = [picture(7, "a.png"), {**picture(8, ""), "file_name": name}]
    save_json(source / "x.json", images, [lesion(1, 7, bbox=[1, 1, 9, 9]), lesion(2, 8)])
    found = find(source, Options())
    assert only(found).image == source / "a.png"
    assert reasons(found) == {"x.json annotation 2": reason}


def test_an_id_of_several_images_is_told(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        save_image(tmp_path / f"{name}.png")
    images = [picture(7, "a.png"), picture(7, "b.png"), picture(8, "c.png")]
    annotations = [lesion(n, n, bbox=[1, 1, 9, 9]) for n in (7, 8)]
    save_json(tmp_path / "x.json", images, annotations)
    found = find(tmp_path, Options())
    assert only(found).name == "c"
    assert reasons(found) == {"x.json annotation 7": "several images share its id"}


def test_an_image_of_another_size_than_annotated_is_told(tmp_path: Path) -> None:
    save_image(tmp_path / "a.png")
    save_json(tmp_path / "x.json", [{**picture(7, "a.png"), "width": 80}], [lesion(1, 7)])
    found = find(tmp_path, Options())
    assert not found.crops
    assert reasons(found) == {
        "x.json annotation 1": "image size differs from its annotation: 40 x 30 pixels, not 80 x 30"
    }


@pytest.mark.parametrize(
    ("file", "image"),
    [
        ("x.json", "a.png"),
        ("x.json", "images/a.png"),
        ("annotations/instances_all.json", "all/a.png"),
        ("annotations/instances_all.json", "images/a.png"),
        ("annotations/instances_all.json", "images/all/a.png"),
        ("part/_annotations.coco.json", "part/a.png"),
    ],
)
def test_images_are_found_in_the_usual_places(tmp_path: Path, file: str, image: str) -> None:
    save_image(tmp_path / image)
    save_json(tmp_path / file, [picture(7, "a.png")], [lesion(1, 7, bbox=[1, 1, 9, 9])])
    assert only(find(tmp_path, Options())).image == tmp_path / image


@pytest.mark.parametrize("pattern", ["annotations/instances_{}2017.json", "{}/_annotations.json"])
def test_the_split_is_in_the_name_of_the_file_or_of_its_folder(
    tmp_path: Path, pattern: str
) -> None:
    save_image(tmp_path / "images/a.png")
    for word in ("train", "val", "test"):
        save_image(tmp_path / f"images/{word}.png")
        file = tmp_path / pattern.format(word)
        save_json(file, [picture(7, f"{word}.png")], [lesion(1, 7, bbox=[1, 1, 9, 9])])
    crops = find(tmp_path, Options()).crops
    assert {crop.name: crop.split for crop in crops} == {
        "images_train": "train",
        "images_val": "validation",
        "images_test": "test",
    }


def test_patients_of_the_images_keep_their_lesions_in_one_split(tmp_path: Path) -> None:
    images, annotations = [], []
    for number in range(20):
        save_image(tmp_path / f"{number}.png")
        images.append(picture(number, f"{number}.png", patient_id=number // 2))
        annotations.append(lesion(number, number, bbox=[1, 1, 9, 9]))
    save_json(tmp_path / "x.json", images, annotations)
    found = find(tmp_path, Options())
    pairs = {(crop.patient_id, crop.split) for crop in found.crops}
    assert {patient for patient, _ in pairs} == {str(number) for number in range(10)}
    assert len(pairs) == 10
    assert {split for _, split in pairs} == {"train", "test"}
    assert not any("one patient may be" in note for note in found.notes)


def test_files_and_images_that_tell_nothing_are_told(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        save_image(tmp_path / f"{name}.png")
    images = [picture(1, "a.png"), picture(2, "b.png")]
    save_json(tmp_path / "x.json", images, [lesion(1, 1, bbox=[1, 1, 9, 9]), "odd"])
    (tmp_path / "captions.json").write_text('{"images": [], "annotations": []}')
    (tmp_path / "broken.json").write_text('{"images": [')
    found = find(tmp_path, Options())
    assert only(found).name == "a"
    assert reasons(found) == {
        "captions.json": "not a COCO file: it has no list categories",
        "broken.json": "not JSON: Expecting value",
        "x.json annotation at place 2": "image_id is not among the images",
        "x.json image b.png": "image without an annotation",
        "c.png": "image that no COCO file refers to",
    }


POINTS = st.lists(st.floats(-9, 99) | st.integers(-9, 99), max_size=8)
FIELDS = {
    "id": st.integers(0, 2) | JSON_VALUES,
    "image_id": st.integers(0, 2) | JSON_VALUES,
    "category_id": st.integers(0, 2) | JSON_VALUES,
    "file_name": st.sampled_from(["a.png", "../a.png", "."]) | JSON_VALUES,
    "name": JSON_VALUES,
    "width": st.just(WIDTH) | JSON_VALUES,
    "height": st.just(HEIGHT) | JSON_VALUES,
    "patient_id": JSON_VALUES,
    "iscrowd": st.just(0) | JSON_VALUES,
    "bbox": POINTS | JSON_VALUES,
    "segmentation": st.lists(POINTS, max_size=2)
    | st.fixed_dictionaries({"size": st.just([HEIGHT, WIDTH]) | JSON_VALUES, "counts": JSON_VALUES})
    | JSON_VALUES,
}
ITEMS = st.lists(st.fixed_dictionaries({}, optional=FIELDS) | JSON_VALUES, max_size=3)


@settings(deadline=None)
@given(st.fixed_dictionaries({"images": ITEMS, "annotations": ITEMS, "categories": ITEMS}))
def test_whatever_a_file_holds_each_annotation_is_a_crop_or_told(content: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        save_image(source / "a.png")
        (source / "x.json").write_text(json.dumps(content))
        found = find(source, Options())
    told = {skip.item for skip in found.skipped if skip.item.startswith("x.json annotation")}
    parts = {item for item in told if item.endswith(", a part")}
    assert len(found.crops) + len(told - parts) <= len(content["annotations"])
    assert bool(found.crops or told) == bool(content["annotations"])
    for text in (*(skip.item + skip.reason for skip in found.skipped), *found.notes):
        assert text.encode()
        assert len(text) < 1000


def test_a_source_without_a_coco_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no COCO file"):
        find(tmp_path, Options())
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(UserError, match=r"broken\.json: not JSON"):
        find(tmp_path, Options())


def test_the_command_writes_the_pixels_of_a_mask_with_a_hole(tmp_path: Path) -> None:
    source, out = tmp_path / "src", tmp_path / "out"
    values = save_image(source / "a.png")
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[6:18, 10:20] = True
    mask[9:12, 13:16] = False
    mask[15, 10:14] = False
    changes = np.flatnonzero(np.diff(mask.T.reshape(-1).astype(int))) + 1
    counts = np.diff([0, *changes, mask.size]).tolist()
    rle = {"size": [HEIGHT, WIDTH], "counts": counts}
    annotations = [lesion(1, 7, segmentation=rle), lesion(2, 7, 2, segmentation=[TRIANGLE])]
    save_json(source / "x.json", [picture(7, "a.png")], annotations)
    command = ["data", "import", "coco", str(source), str(out), "--workers", "1"]
    assert main([*command, "--margin", "0.25", "--test-fraction", "0"]) == 0
    first, second = read_manifest(out / "manifest.csv").samples
    # The box is 10 x 12 pixels from (10, 6): a square of 18 from (6, 3).
    assert first.box == (4, 3, 14, 15)
    assert first.mask is not None
    assert second.mask is not None
    np.testing.assert_allclose(read_image(first.image), values[3:21, 6:24] / 255, atol=1e-5)
    np.testing.assert_array_equal(read_image(first.mask), mask[3:21, 6:24])
    assert (first.label, second.label) == ("spiculated", "indistinct")
    assert first.patient_id == second.patient_id != ""
    # Half of 20 x 15 pixels, but for the stairs of the slope.
    assert abs(read_image(second.mask).sum() - 150) <= 10


def test_films_have_the_boxes_of_all_lesions_if_all_are_known(tmp_path: Path) -> None:
    for number, name in enumerate("abcd"):
        save_image(tmp_path / f"{name}.png", number)
    save_json(
        tmp_path / "train.json",
        [picture(number, f"{name}.png") for number, name in enumerate("abcd")],
        [
            lesion(1, 0, segmentation=[TRIANGLE, [30, 5, 38, 5, 38, 9]]),
            lesion(2, 0, bbox=[1, 2, 3, 4]),
            lesion(3, 1, bbox=[1, 2, 3, 4]),
            lesion(4, 1, bbox=[1, 2, 3, 4], iscrowd=1),
            lesion(5, 2, segmentation=[TRIANGLE, [1, 1, 2, 2]]),
        ],
    )
    found = find(tmp_path, Options())
    assert [(row.image.name, row.split, row.box) for row in found.films] == [
        ("a.png", "train", (5, 5, 38, 20)),
        ("a.png", "train", (1, 2, 4, 6)),
    ]
    left_out = {each.item: each.reason for each in found.films_left_out}
    assert sorted(left_out) == ["b.png", "c.png"]  # nothing is said of d: it is not a film yet
    assert "crowd region" in left_out["b.png"] and "2 distinct point(s)" in left_out["c.png"]
