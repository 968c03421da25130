"""Manifests of several datasets become one, which means what they meant."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.joining import CLASSES, join_manifests, parse_labels, parse_sources, render
from protopyramid.data.manifest import patient_folds, read_manifest
from protopyramid.errors import UserError

HEADER = "image,label,split,mask,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1,band,series"


def dataset(folder: Path, rows: list[str], header: str = HEADER) -> Path:
    """A manifest with a picture, and a mask where one is named, for each row."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(rows):
        for name in {row.split(",")[0], row.split(",")[3] if "mask" in header else ""} - {""}:
            (folder / name).parent.mkdir(exist_ok=True)
            values = np.random.default_rng(number).integers(0, 256, (12, 12)).astype(np.uint8)
            Image.fromarray(values).save(folder / name)
    (folder / "manifest.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder / "manifest.csv"


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    film = [
        "images/a.png,spiculated,train,,P1,1,2,8,9,,",
        "images/b.png,negative,train,,P2,,,,,,",
        "images/c.png,ill-defined,test,,P2,,,,,,",
    ]
    digital = [
        "images/a.png,circumscribed,train,masks/a.png,P1,1,2,8,9,bands/a.png,D1",
        "images/b.png,obscured,validation,masks/b.png,,,,,,,D2",
    ]
    return {
        "film": dataset(tmp_path / "one/film", film),
        "digital": dataset(tmp_path / "two", digital),
    }


def test_rows_keep_their_files_boxes_and_splits(tmp_path: Path, sources: dict[str, Path]) -> None:
    out = tmp_path / "joined/all.csv"
    joined = join_manifests(sources, out, CLASSES["three"]).manifest
    for sample in joined.samples:
        own = read_manifest(sources[sample.source])
        (before,) = [each for each in own.samples if each.image.samefile(sample.image)]
        assert (before.label, before.split, before.box) == (sample.label, sample.split, sample.box)
        assert (before.mask is None) == (sample.mask is None)
        assert before.mask is None or sample.mask is None or before.mask.samefile(sample.mask)
        assert sample.extra["series"] == before.extra["series"]


def test_patients_of_two_sources_with_one_id_stay_two(
    tmp_path: Path, sources: dict[str, Path]
) -> None:
    joined = join_manifests(sources, tmp_path / "all.csv", CLASSES["three"]).manifest
    assert [each.patient_id for each in joined.samples] == ["film:P1", "film:P2", "digital:P1"]


def test_a_row_without_a_patient_stays_without(tmp_path: Path, sources: dict[str, Path]) -> None:
    joined = join_manifests(sources, tmp_path / "all.csv", CLASSES["five"]).manifest
    assert [each.patient_id for each in joined.samples if each.label == "obscured"] == [""]


def test_files_of_other_columns_are_found_from_the_new_place(
    tmp_path: Path, sources: dict[str, Path]
) -> None:
    out = tmp_path / "deep/er/all.csv"
    join_manifests(sources, out, CLASSES["three"])
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["band"] for row in rows] == ["", "", "../../two/bands/a.png"]


def test_other_labels_are_left_out_and_counted(tmp_path: Path, sources: dict[str, Path]) -> None:
    joined = join_manifests(sources, tmp_path / "all.csv", CLASSES["three"])
    assert joined.left_out == {("film", "ill-defined"): 1, ("digital", "obscured"): 1}
    text = render(joined)
    assert "left out: 1 of 'obscured' in digital" in text
    assert "| spiculated | 1 (1) | – |" in text


def test_labels_are_renamed_before_they_are_chosen(
    tmp_path: Path, sources: dict[str, Path]
) -> None:
    renamed = parse_labels(["ill-defined=indistinct", "obscured=indistinct"])
    joined = join_manifests(sources, tmp_path / "all.csv", CLASSES["three"], renamed)
    assert not joined.left_out
    assert [each.label for each in joined.manifest.samples].count("indistinct") == 2


@pytest.mark.parametrize("given", ["a.csv", "=a.csv", "film=", "film"])
def test_a_source_without_a_name_or_file_is_refused(given: str) -> None:
    with pytest.raises(UserError, match="NAME=MANIFEST"):
        parse_sources([given])


def test_a_name_for_two_sources_is_refused() -> None:
    with pytest.raises(UserError, match="twice"):
        parse_sources(["a=x.csv", "a=y.csv"])


def test_an_image_of_two_sources_is_refused(tmp_path: Path, sources: dict[str, Path]) -> None:
    with pytest.raises(UserError, match=r"in the manifests of 'film' and of 'copy'"):
        join_manifests(
            {"film": sources["film"], "copy": sources["film"]},
            tmp_path / "all.csv",
            CLASSES["three"],
        )
    assert not (tmp_path / "all.csv").exists()


def test_a_table_without_rows_is_refused(tmp_path: Path, sources: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="--classes"):
        join_manifests(sources, tmp_path / "all.csv", ["benign"])


def test_folds_have_their_share_of_every_class_of_every_source(tmp_path: Path) -> None:
    """Stratified by class alone, the few rows of the small source could all be in one fold."""
    large = [f"{n}.png,{'xy'[n % 2]},train,,P{n},,,,,," for n in range(60)]
    small = [f"{n}.png,{'xy'[n % 2]},train,,P{n},,,,,," for n in range(12)]
    manifests = {"large": dataset(tmp_path / "l", large), "small": dataset(tmp_path / "s", small)}
    joined = join_manifests(manifests, tmp_path / "all.csv", ["x", "y"]).manifest
    for seed in range(5):
        folds = patient_folds(joined.samples, 3, seed)
        for source, count in (("large", 10), ("small", 2)):
            for label in "xy":
                for fold in range(3):
                    found = sum(
                        number == fold and each.source == source and each.label == label
                        for number, each in zip(folds, joined.samples, strict=True)
                    )
                    assert found == count
