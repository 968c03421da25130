"""`data check` sees what a dataset holds and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from protopyramid.config.schema import MarginBandConfig
from protopyramid.data.check import View, check_manifest, contact_sheet, render
from protopyramid.data.geometry import ellipse_mask
from protopyramid.data.manifest import parse_manifest, read_manifest
from protopyramid.errors import UserError

HEADER = "image,label,split,patient_id,mask,lesion_x0,lesion_y0,lesion_x1,lesion_y1"


def picture(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (40, 60)).astype(np.uint8)


def dataset(folder: Path, rows: Sequence[str]) -> Path:
    """A manifest of these rows, with a picture of its own for each image that is not there yet."""
    for seed, row in enumerate(rows):
        path = folder / row.split(",")[0]
        if not path.exists():
            Image.fromarray(picture(seed)).save(path)
    (folder / "manifest.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return folder / "manifest.csv"


def save_mask(path: Path, inside: NDArray[np.bool_]) -> None:
    Image.fromarray(inside.astype(np.uint8) * 255).save(path)


def test_counts_patients_sizes_and_coverage_are_right(tmp_path: Path) -> None:
    half = np.zeros((40, 60), bool)
    half[:20] = True
    save_mask(tmp_path / "mask.png", half)
    Image.fromarray(picture(9)[:30]).save(tmp_path / "c.png")
    path = dataset(
        tmp_path,
        [
            "a.png,x,train,P1,mask.png,,,,",
            "b.png,x,train,P1,,0,0,30,20",
            "c.png,y,train,P2,,,,,",
            "d.png,y,test,P3,,,,,",
        ],
    )
    report = check_manifest(path)
    assert report.ok
    assert report.counts["x"] == {"train": 2, "validation": 0, "test": 0}
    assert report.counts["y"] == {"train": 1, "validation": 0, "test": 1}
    assert report.patients["x"]["train"] == 1
    assert report.annotated["x"]["train"] == 2
    assert report.coverage == {"x": pytest.approx((1 / 2 + 1 / 4) / 2)}
    assert report.sizes == {(60, 40): 3, (60, 30): 1}
    text = render(report)
    for word in ("x", "2 (1)", "38%", "60 x 40", "heights 30 to 40"):
        assert word in text


def test_a_patient_in_two_splits_is_an_error(tmp_path: Path) -> None:
    report = check_manifest(
        dataset(tmp_path, ["a.png,x,train,P1,,,,,", "b.png,x,test,P1,,,,,", "c.png,x,test,,,,,,"])
    )
    (error,) = report.errors
    assert "patient 'P1' is in splits train and test" in error
    assert not report.ok
    assert f"error: {error}" in render(report)


def test_the_same_picture_in_two_splits_is_an_error_even_in_another_format(tmp_path: Path) -> None:
    Image.fromarray(picture(0)).save(tmp_path / "a.png")
    Image.fromarray(picture(0)).save(tmp_path / "b.tif")
    rows = ["a.png,x,train,P1,,,,,", "b.tif,y,validation,P2,,,,,"]
    (error,) = check_manifest(dataset(tmp_path, rows)).errors
    assert (
        "rows 2, 3 are the same image with labels x and y in splits train and validation" in error
    )


def test_the_same_picture_twice_in_a_split_is_a_warning(tmp_path: Path) -> None:
    Image.fromarray(picture(0)).save(tmp_path / "b.png")
    report = check_manifest(dataset(tmp_path, ["a.png,x,train,P1,,,,,", "b.png,x,train,P2,,,,,"]))
    assert report.ok
    assert any("rows 2, 3 are the same image in split train" in said for said in report.warnings)


def test_one_file_in_two_splits_is_an_error(tmp_path: Path) -> None:
    report = check_manifest(dataset(tmp_path, ["a.png,x,train,,,,,,", "a.png,x,test,,,,,,"]))
    assert any("in split train on row 2 and in split test here" in error for error in report.errors)


def test_all_errors_of_files_and_rows_come_in_one_report(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    save_mask(tmp_path / "square.png", np.ones((40, 40), bool))
    rows = [
        "broken.png,x,train,P1,,,,,",
        "a.png,x,dev,P2,,,,,",
        "b.png,x,train,P3,square.png,,,,",
        "c.png,x,train,P4,,70,0,80,10",
    ]
    errors = check_manifest(dataset(tmp_path, rows)).errors
    assert len(errors) == 4
    for row, word in ((2, "broken.png"), (3, "split"), (4, "square.png"), (5, "outside its image")):
        assert any(f"row {row}" in error and word in error for error in errors)


def test_what_looks_odd_is_a_warning_with_its_rows(tmp_path: Path) -> None:
    save_mask(tmp_path / "none.png", np.zeros((40, 60), bool))
    save_mask(tmp_path / "all.png", np.ones((40, 60), bool))
    save_mask(tmp_path / "small.png", np.eye(20, 30, dtype=bool))
    Image.fromarray(picture(5).astype(np.uint16) * 16).save(tmp_path / "dark.png")
    Image.new("L", (60, 40), 7).save(tmp_path / "flat.png")
    rows = [
        "a.png,x,train,P1,none.png,,,,",
        "b.png,x,train,P2,all.png,,,,",
        "c.png,x,train,P3,small.png,,,,",
        "dark.png,x,train,P4,,,,,",
        "flat.png,x,train,,,,,,",
        "d.png,y,test,P6,,-9,0,30,20",
        "e.png,no lesion,test,P7,none.png,,,,",
    ]
    report = check_manifest(dataset(tmp_path, rows))
    assert report.ok
    for said in (
        "with an empty mask (white is inside): row 2",
        "is it inverted?): row 3",
        "was resized",
        "darkest eighth of their range (are 12 bits of 16 used?): row 5",
        "of one grey value: row 6",
        "beyond the image (it is clipped): row 7",
        "1 of 7 rows have no patient_id",
        "class 'x' has no rows in split test",
        "class 'y' has no rows in split train",
    ):
        assert any(said in warning for warning in report.warnings), said


def test_images_that_stretching_would_distort_are_named_with_the_remedy(tmp_path: Path) -> None:
    for name, size in (("square", (40, 40)), ("nearly", (40, 41)), ("wide", (60, 40))):
        values = np.random.default_rng(len(name)).integers(0, 256, size[::-1]).astype(np.uint8)
        Image.fromarray(values).save(tmp_path / f"{name}.png")
    rows = [f"{name}.png,x,train,P1,,,,," for name in ("square", "nearly", "wide")]
    (found,) = [said for said in check_manifest(dataset(tmp_path, rows)).warnings if "fit" in said]
    assert found.startswith("1 image(s) that are not square") and found.endswith(": row 4")
    assert "--set data.fit=pad" in found
    assert not any("fit" in said for said in check_manifest(dataset(tmp_path, rows[:2])).warnings)


def test_whole_films_with_a_lesion_box_or_mask_are_named(tmp_path: Path) -> None:
    small = np.zeros((40, 60), bool)
    small[10:16, 20:28] = True  # 2 % of the image
    save_mask(tmp_path / "small.png", small)
    rows = [
        "a.png,x,train,P1,,10,10,18,16",
        "b.png,x,train,P2,small.png,,,,",
        "c.png,x,train,P3,,10,10,25,20",  # 6 %
        "d.png,x,train,P4,,,,,",
    ]
    report = check_manifest(dataset(tmp_path, rows))
    (found,) = [said for said in report.warnings if "film" in said]
    assert found.startswith("2 image(s) whose lesion covers less than 4%")
    assert found.endswith(": rows 2, 3") and "data.crop=lesion" in found


def test_long_lists_are_cut_in_print_but_not_in_the_report(tmp_path: Path) -> None:
    path = dataset(tmp_path, [])
    path.write_text(HEADER + "\n" + "".join(f"{n}.png,x,train,,,,,,\n" for n in range(50)))
    report = check_manifest(path)
    assert len(report.errors) == 50
    assert "error: and 30 more" in render(report)
    assert "No image could be read." in render(report)


def test_labels_with_markup_are_printed_as_they_are(tmp_path: Path) -> None:
    report = check_manifest(dataset(tmp_path, ["a.png,[bold]x[/nope] :smile:,train,P1,,,,,"]))
    assert "[bold]x[/nope] :smile:" in render(report)


def test_no_table_at_all_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the manifest"):
        check_manifest(tmp_path / "missing.csv")


def pixels_of(path: Path, colour: tuple[int, int, int]) -> int:
    image = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return int((np.abs(image - colour).max(2) < 40).sum())


def test_the_contact_sheet_outlines_masks_and_boxes_and_leaves_the_image_visible(
    tmp_path: Path,
) -> None:
    save_mask(tmp_path / "mask.png", ellipse_mask((10, 5, 50, 35), 40, 60))
    rows = ["a.png,$x_1 [odd],train,P1,mask.png,10,5,50,35", "b.png,\u4e2d,test,P2,,,,,"]
    path = dataset(tmp_path, rows)
    out = contact_sheet(read_manifest(path), tmp_path / "new" / "sheet.png")
    yellow, cyan = pixels_of(out, (255, 212, 0)), pixels_of(out, (0, 200, 255))
    plain = dataset(tmp_path, [row.replace("mask.png,10,5,50,35", ",,,,") for row in rows])
    bare = contact_sheet(read_manifest(plain), tmp_path / "bare.png")
    assert pixels_of(bare, (255, 212, 0)) == pixels_of(bare, (0, 200, 255)) == 0
    assert 100 < yellow < 2000
    assert 100 < cyan < 2000


def test_the_contact_sheet_draws_both_edges_of_a_band(tmp_path: Path) -> None:
    save_mask(tmp_path / "mask.png", ellipse_mask((15, 10, 45, 30), 40, 60))
    band = MarginBandConfig(inner=0.2, outer=0.2, box_inner=0.2, box_outer=0.2)
    drawn = {}
    for name, row in (
        ("mask", "a.png,x,train,P1,mask.png,15,10,45,30"),
        ("box", "a.png,x,train,P1,,15,10,45,30"),
    ):
        manifest = read_manifest(dataset(tmp_path, [row]))
        for kind, width in (("lesion", None), ("margin", band)):
            out = contact_sheet(manifest, tmp_path / f"{name}-{kind}.png", view=View(width))
            drawn[name, kind] = pixels_of(out, (255, 212, 0))
    assert drawn["box", "lesion"] == 0
    assert drawn["mask", "margin"] > 1.5 * drawn["mask", "lesion"] > 0
    assert drawn["box", "margin"] == drawn["mask", "margin"]


def test_the_contact_sheet_draws_what_a_model_of_lesions_sees(tmp_path: Path) -> None:
    """Of an image that is bright only near its lesion, the sheet of the lesion is brighter."""
    values = np.zeros((200, 200), np.uint8)
    values[90:110, 90:110] = 255
    Image.fromarray(values).save(tmp_path / "a.png")
    manifest = read_manifest(dataset(tmp_path, ["a.png,x,train,P1,,92,92,108,108"]))
    light = {}
    for margin in (None, 4.0, 0.1):
        out = contact_sheet(manifest, tmp_path / "sheet.png", view=View(margin=margin))
        light[margin] = pixels_of(out, (255, 255, 255))
    assert light[0.1] > 1.2 * light[4.0]


def test_the_contact_sheet_has_a_row_for_each_source(tmp_path: Path) -> None:
    rows = ["a.png,x,train,film", "b.png,x,train,digital", "c.png,x,train,digital"]
    for seed, row in enumerate(rows):
        Image.fromarray(picture(seed)).save(tmp_path / row[:5])
    path = tmp_path / "manifest.csv"
    heights = []
    for header in ("image,label,split,source", "image,label,split,kind"):
        path.write_text("\n".join([header, *rows]) + "\n")
        sheet = contact_sheet(read_manifest(path), tmp_path / "sheet.png")
        heights.append(Image.open(sheet).height)
    assert heights[0] > 1.5 * heights[1]


def test_the_contact_sheet_bears_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    manifest, _ = parse_manifest(dataset(tmp_path, ["broken.png,x,train,,,,,,"]))
    assert contact_sheet(manifest, tmp_path / "sheet.png").stat().st_size > 1000


def test_a_contact_sheet_of_nothing_or_to_nowhere_is_a_user_error(tmp_path: Path) -> None:
    manifest, _ = parse_manifest(dataset(tmp_path, []))
    with pytest.raises(UserError, match="no images"):
        contact_sheet(manifest, tmp_path / "sheet.png")
    some = read_manifest(dataset(tmp_path, ["a.png,x,train,,,,,,"]))
    with pytest.raises(UserError, match="cannot be written"):
        contact_sheet(some, tmp_path / "a.png" / "sheet.png")


def test_real_data_has_no_leak_and_boxes_that_cover_43_percent(real_manifest_path: Path) -> None:
    report = check_manifest(real_manifest_path)
    assert report.ok
    assert sum(sum(row.values()) for row in report.annotated.values()) == 585
    for share in report.coverage.values():
        assert share == pytest.approx(0.43, abs=0.01)
    assert any("class 'negative' has only 2 training patient" in w for w in report.warnings)


def test_classes_that_the_source_alone_tells_are_warned_of(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        save_mask(tmp_path / f"{name}.png", ellipse_mask((1, 1, 9, 9), 20 + ord(name) % 7, 20))
    path = tmp_path / "several.csv"
    head = "image,label,split,source\n"
    path.write_text(head + "a.png,x,train,film\nb.png,x,train,digital\nc.png,y,train,digital\n")
    told = [warning for warning in check_manifest(path).warnings if "source" in warning]
    assert told == ["class 'y' is in source 'digital' only: a model may learn the source instead"]
    path.write_text(head + "a.png,x,train,film\nb.png,x,train,film\nc.png,y,train,film\n")
    assert not any("source" in warning for warning in check_manifest(path).warnings)
