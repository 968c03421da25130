"""Annotations: masks and rows in a folder of their own, a dataset after every save."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.check import check_manifest
from protopyramid.data.manifest import Manifest, read_images, read_manifest
from protopyramid.errors import UserError
from protopyramid.reader.annotations import AnnotationFolder

SIDE = 64


def disc(radius: float = 12, side: int = SIDE) -> np.ndarray:
    y, x = np.mgrid[:side, :side] + 0.5
    return np.asarray((x - 30) ** 2 + (y - 34) ** 2 <= radius**2)


@pytest.fixture
def folder(tmp_path: Path, manifest: Manifest) -> AnnotationFolder:
    return AnnotationFolder(tmp_path / "drawn", manifest.samples, manifest.path)


def test_a_mask_is_a_png_of_the_images_size_white_inside(folder: AnnotationFolder) -> None:
    drawn = folder.save(3, disc(), None)
    assert drawn.mask is not None and drawn.kind == "mask"
    with Image.open(drawn.mask) as picture:
        assert (picture.mode, picture.size) == ("L", (SIDE, SIDE))
        values = np.asarray(picture)
    assert set(np.unique(values).tolist()) == {0, 255}
    assert np.array_equal(values == 255, disc())
    assert np.array_equal(folder.mask(3), disc())


def test_the_folder_is_a_dataset_with_all_rows_and_the_users_files_are_untouched(
    folder: AnnotationFolder, manifest: Manifest
) -> None:
    before = {path: path.read_bytes() for path in manifest.path.parent.rglob("*") if path.is_file()}
    folder.save(3, disc(), None)
    folder.save(4, None, (10.0, 12.0, 70.0, 50.5))
    folder.save(5, disc(9), (5.0, 5.0, 40.0, 40.0))
    found = read_manifest(folder.path)
    assert len(found.samples) == len(manifest.samples)
    for number, (row, sample) in enumerate(zip(found.samples, manifest.samples, strict=True)):
        assert row.image.resolve() == sample.image.resolve()
        assert (row.label, row.split, row.patient_id) == (
            sample.label,
            sample.split,
            sample.patient_id,
        )
        expected = {3: "mask", 4: "box", 5: "mask and box"}.get(number, "")
        assert row.extra["annotation"] == expected
        if not expected:
            assert row.box == sample.box
    assert found.samples[3].box == manifest.samples[3].box
    assert found.samples[4].box == (10.0, 12.0, 64.0, 50.5)  # clipped to the image
    assert found.samples[5].box == (5.0, 5.0, 40.0, 40.0)
    assert check_manifest(folder.path).errors == []
    after = {path: path.read_bytes() for path in manifest.path.parent.rglob("*") if path.is_file()}
    assert after == before


def test_work_continues_after_a_restart(folder: AnnotationFolder, manifest: Manifest) -> None:
    folder.save(3, disc(), (1.0, 2.0, 30.0, 40.0))
    folder.close()
    again = AnnotationFolder(folder.folder, manifest.samples, manifest.path)
    drawn = again.drawn(3)
    assert drawn is not None and drawn.box == (1.0, 2.0, 30.0, 40.0)
    assert np.array_equal(again.mask(3), disc())
    again.save(6, disc(5), None)
    assert [row.extra["annotation"] != "" for row in read_manifest(again.path).samples].count(
        True
    ) == 2


def test_removing_brings_the_cases_own_back(folder: AnnotationFolder, manifest: Manifest) -> None:
    number = next(n for n, each in enumerate(manifest.samples) if each.mask is not None)
    own = folder.mask(number)
    drawn = folder.save(number, disc(), None)
    folder.remove(number)
    folder.remove(number)
    assert drawn.mask is not None and not drawn.mask.exists()
    assert folder.drawn(number) is None
    assert np.array_equal(folder.mask(number), own)
    assert read_manifest(folder.path).samples[number].mask is not None


def test_what_cannot_be_an_annotation_is_told(folder: AnnotationFolder) -> None:
    for mask, box, words in (
        (np.zeros((SIDE, SIDE), bool), None, "empty"),
        (np.ones((SIDE, SIDE + 1), bool), None, "65 x 64"),
        (None, None, "nothing is drawn"),
        (None, (100.0, 100.0, 120.0, 120.0), "outside"),
    ):
        with pytest.raises(UserError, match=words):
            folder.save(0, mask, box)
    assert not folder.path.exists()


def test_a_users_own_manifest_is_never_overwritten(manifest: Manifest, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="never overwritten"):
        AnnotationFolder(manifest.path.parent, manifest.samples, manifest.path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.csv").write_text(f"image,label,split\n{manifest.samples[0].image},a,train\n")
    text = (other / "manifest.csv").read_text()
    with pytest.raises(UserError, match="not written by the reader"):
        AnnotationFolder(other, manifest.samples, manifest.path)
    assert (other / "manifest.csv").read_text() == text


def test_two_processes_do_not_write_to_one_folder(
    folder: AnnotationFolder, manifest: Manifest
) -> None:
    with pytest.raises(UserError, match="another process"):
        AnnotationFolder(folder.folder, manifest.samples, manifest.path)


def test_annotations_of_other_cases_are_refused(
    folder: AnnotationFolder, manifest: Manifest
) -> None:
    folder.save(3, disc(), None)
    folder.close()
    with pytest.raises(UserError, match="not among these cases"):
        AnnotationFolder(folder.folder, manifest.samples[:2], manifest.path)


def test_images_without_labels_are_annotated_with_one(manifest: Manifest, tmp_path: Path) -> None:
    table = tmp_path / "bare.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([["image"], *([each.image] for each in manifest.samples[:3])])
    cases = read_images(table, places=True).samples
    folder = AnnotationFolder(tmp_path / "drawn", cases, table)
    with pytest.raises(UserError, match="label"):
        folder.save(1, disc(), None)
    folder.save(1, disc(), None, "spiculated")
    (row,) = read_manifest(folder.path).samples
    assert (row.label, row.split) == ("spiculated", "train")


def test_further_columns_are_kept_and_paths_still_lead_to_their_files(
    manifest: Manifest, tmp_path: Path
) -> None:
    table = manifest.path.parent / "more.csv"
    film = manifest.samples[0].image
    try:
        with table.open("w", newline="") as file:
            rows = [["image", "label", "split", "view", "source_image"]]
            name = film.relative_to(table.parent)
            rows.append([str(name), "spiculated", "train", "MLO", str(name)])
            csv.writer(file).writerows(rows)
        folder = AnnotationFolder(tmp_path / "a" / "drawn", read_images(table, True).samples, table)
        folder.save(0, disc(), None)
        (row,) = read_manifest(folder.path).samples
        assert row.extra["view"] == "MLO"
        assert (folder.folder / row.extra["source_image"]).resolve() == film.resolve()
    finally:
        table.unlink()
