"""What the formats with user-defined labels share: spellings, patients and splits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from protopyramid.data.annotations import bounds
from protopyramid.data.importers.base import Crop, ImportPlan, Options, Skipped
from protopyramid.data.importers.full_films import Films
from protopyramid.data.importers.reading import relative
from protopyramid.data.importers.splits import has_patient, image_as_patient, with_splits
from protopyramid.errors import printable

# Spellings in lower case with single spaces; older editions of BI-RADS say "ill-defined".
SPELLINGS = {
    "circumscribed": "circumscribed",
    "well circumscribed": "circumscribed",
    "well defined": "circumscribed",
    "indistinct": "indistinct",
    "ill defined": "indistinct",
    "illdefined": "indistinct",
    "spiculated": "spiculated",
    "microlobulated": "microlobulated",
    "micro lobulated": "microlobulated",
    "obscured": "obscured",
    "negative": "negative",
}


def margin_name(label: str) -> str:
    """A BI-RADS margin in its one spelling; any other label as it is.

    >>> margin_name("ILL_DEFINED"), margin_name("Spiculated margin"), margin_name("Benign")
    ('indistinct', 'spiculated', 'Benign')
    """
    plain = re.sub(r"[\s_-]+", " ", label).strip().lower()
    return SPELLINGS.get(re.sub(r" margins?$", "", plain), label)


def finish(
    source: Path,
    crops: Sequence[Crop],
    skipped: Sequence[Skipped],
    notes: Sequence[str],
    options: Options,
    unclear: Mapping[Path, str] | None = None,
) -> ImportPlan:
    """What was found, with margins in one spelling, whole images in one split, and notes of it.

    unclear: why images cannot be films with all lesions known; None for a format without lesions.
    """
    renamed = Counter(crop.label for crop in crops if margin_name(crop.label) != crop.label)
    crops = [replace(crop, label=printable(margin_name(crop.label))) for crop in crops]
    crops, split_notes = with_splits(_images_together(source, crops), options)
    told = [*notes]
    if renamed:
        names = ", ".join(f"{printable(name)} -> {margin_name(name)}" for name in sorted(renamed))
        told.append(f"labels renamed: {names}")
    if not all(has_patient(crop) for crop in crops):
        told.append(
            "each image without a patient id counts as a patient, so one patient may be in several "
            "splits and make the test results look better than they are"
        )
    films = Films() if unclear is None else _films(crops, unclear)
    told += split_notes
    return ImportPlan(crops, skipped, told, films.table(), films.left_out(source))


def _films(crops: Sequence[Crop], unclear: Mapping[Path, str]) -> Films:
    films = Films()
    for crop in crops:
        box = crop.box if crop.annotation is None else bounds(crop.annotation)
        films.add(crop.image, crop.patient_id, crop.split, box=box)
    for image, problem in unclear.items():
        films.refuse(image, problem)
    return films


def _images_together(source: Path, crops: Sequence[Crop]) -> list[Crop]:
    """Crops of one image, if its patient is not known, get the image as their patient.

    Otherwise each would be a patient of its own, and the same tissue in several splits.
    """
    counts = Counter(crop.image for crop in crops)
    return [
        replace(crop, patient_id=image_as_patient(relative(crop.image, source)))
        if not crop.patient_id and counts[crop.image] > 1
        else crop
        for crop in crops
    ]
