"""Which split an image belongs to: by the names of files and folders, or by patient and seed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from protopyramid.data.importers.base import Crop, Options, split_by_patient

IMAGE_ID = "image "
SPLIT_WORDS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
    "testing": "test",
}


def split_in(name: str) -> str:
    """The split that a file or folder name speaks of, or "" for none.

    >>> split_in("instances_val2017.json"), split_in("contest.json")
    ('validation', '')
    """
    words = re.split(r"[^a-z]+", name.lower())
    return next((SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS), "")


def image_as_patient(name: str) -> str:
    """The patient id for the crops of one image whose patient is not known."""
    return f"{IMAGE_ID}{name}"


def has_patient(crop: Crop) -> bool:
    """Whether the patient of a crop is known."""
    return bool(crop.patient_id) and not crop.patient_id.startswith(IMAGE_ID)


def with_splits(crops: Sequence[Crop], options: Options) -> tuple[list[Crop], list[str]]:
    """The crops, each with a split, and what the user should know of it.

    Crops of split "" are put into train and test by patient; into train alone where the download
    has a test split already.
    """
    unnamed = [crop for crop in crops if not crop.split]
    if not unnamed:
        return list(crops), []
    if any(crop.split == "test" for crop in crops):
        note = f"{len(unnamed)} crop(s) have no split and are put into train"
        return [replace(crop, split=crop.split or "train") for crop in crops], [note]
    drawn = iter(split_by_patient(unnamed, options))
    found = [crop if crop.split else next(drawn) for crop in crops]
    if options.test_fraction <= 0:
        return found, ["no splits are given: all crops are in train"]
    unit = "patients" if all(has_patient(crop) for crop in unnamed) else "images"
    note = (
        f"no splits are given: about {options.test_fraction:.0%} of the {unit}, drawn with seed "
        f"{options.seed}, are the test split"
    )
    return found, [note]
