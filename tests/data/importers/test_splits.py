"""Splits come from names where there are some, and are drawn by patient where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from protopyramid.data.importers.base import Crop, Options
from protopyramid.data.importers.splits import split_in, with_splits


def crop(name: str, split: str = "", patient: str = "", label: str = "a") -> Crop:
    return Crop(name, Path(f"{name}.png"), label, split, patient)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("instances_train2017", "train"),
        ("valid", "validation"),
        ("Test", "test"),
        ("annotations-val", "validation"),
        ("latest", ""),
        ("trainer", ""),
        ("", ""),
    ],
)
def test_a_split_is_a_word_in_a_name(name: str, split: str) -> None:
    assert split_in(name) == split


def test_named_splits_are_kept_without_a_word() -> None:
    crops = [crop("a", "train"), crop("b", "validation")]
    assert with_splits(crops, Options()) == (crops, [])


def test_beside_a_named_test_split_the_rest_is_train() -> None:
    found, notes = with_splits([crop("a", "test"), crop("b"), crop("c", "train")], Options())
    assert [each.split for each in found] == ["test", "train", "train"]
    assert notes == ["1 crop(s) have no split and are put into train"]


def test_without_splits_whole_patients_of_every_class_are_the_test_split() -> None:
    crops = [
        crop(f"{label}{patient}{view}", patient=f"{label}{patient}", label=label)
        for label in "ab"
        for patient in range(20)
        for view in range(2)
    ]
    found, notes = with_splits(crops, Options(test_fraction=0.25, seed=3))
    assert [each.name for each in found] == [each.name for each in crops]
    splits = {each.patient_id: set[str]() for each in found}
    for each in found:
        splits[each.patient_id].add(each.split)
    assert all(len(names) == 1 for names in splits.values())
    for label in "ab":
        assert sum(each.label == label and each.split == "test" for each in found) == 10
    assert notes == [
        "no splits are given: about 25% of the patients, drawn with seed 3, are the test split"
    ]
    assert with_splits(crops, Options(test_fraction=0.25, seed=3))[0] == found
    assert with_splits(crops, Options(test_fraction=0.25, seed=4))[0] != found
