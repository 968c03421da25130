"""Margins get one spelling, and what is renamed or not known is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from protopyramid.data.importers.base import Crop, Options
from protopyramid.data.importers.own_labels import finish, margin_name


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("CIRCUMSCRIBED", "circumscribed"),
        ("Ill-defined", "indistinct"),
        ("ill_defined", "indistinct"),
        (" ILL DEFINED margins", "indistinct"),
        ("Micro-lobulated", "microlobulated"),
        ("Negative", "negative"),
        ("spiculated", "spiculated"),
        ("CIRCUMSCRIBED-ILL_DEFINED", "CIRCUMSCRIBED-ILL_DEFINED"),
        ("Malignant", "Malignant"),
        ("non-spiculated", "non-spiculated"),
        ("margin", "margin"),
    ],
)
def test_only_obvious_spellings_of_margins_are_changed(label: str, name: str) -> None:
    assert margin_name(label) == name


def found(*crops: Crop) -> tuple[list[Crop], str]:
    result = finish(Path("src"), crops, [], [], Options())
    return list(result.crops), "\n".join(result.notes)


def test_renamed_labels_are_told() -> None:
    crops, notes = found(
        Crop("a", Path("src/a.png"), "ILL_DEFINED", "train", "p"),
        Crop("b", Path("src/b.png"), "Odd\ud800", "train", "q"),
    )
    assert [crop.label for crop in crops] == ["indistinct", "Odd\\ud800"]
    assert notes == "labels renamed: ILL_DEFINED -> indistinct"


def test_lesions_of_one_image_without_a_patient_stay_together() -> None:
    pairs = [
        Crop(f"{number}{lesion}", Path(f"src/x/{number}.png"), "a", "")
        for number in range(10)
        for lesion in "ab"
    ]
    single = Crop("single", Path("src/single.png"), "a", "")
    crops, notes = found(*pairs, single)
    splits = {(crop.image, crop.split) for crop in crops}
    assert len(splits) == 11
    assert {split for _, split in splits} == {"train", "test"}
    assert crops[0].patient_id == crops[1].patient_id == "image x/0.png"
    assert crops[-1].patient_id == ""
    assert "one patient may be in several splits" in notes


def test_known_patients_need_no_warning() -> None:
    assert found(Crop("a", Path("src/a.png"), "a", "train", "p"))[1] == ""
