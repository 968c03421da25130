"""An import plan: the crops to make from a download, what is left out and why.

An importer is one function that looks through a download and decodes no pixels:

    def find(source: Path, options: Options) -> ImportPlan

The writer (writer.py) makes the crops, masks and manifest of the plan; so every format is cropped,
resumed and reported in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from protopyramid.data.annotations import Annotation
from protopyramid.data.geometry import Box
from protopyramid.data.manifest import Sample, patient_parts

NEGATIVE = "negative"  # the label of crops without a lesion: they get no mask and no lesion box


@dataclass(frozen=True)
class Tissue:
    """A patch of breast tissue, sampled by the writer, since only the pixels tell where tissue is.

    side: of the patch in pixels, without a margin. seed: of the sampling.
    """

    side: int
    seed: tuple[int, ...]


@dataclass(frozen=True)
class Crop:
    """One image of the new dataset: a square around a lesion, a tissue patch, or a whole image.

    `name` is the stem of the new files, unique in the dataset. With neither annotation nor box nor
    tissue the whole image is taken; with `whole`, too, together with its annotation. The box is the
    lesion's, in pixels of the full image; by default, that of the annotation. With `on_tissue`, an
    annotation that lies on the black background is refused: it belongs to another image.
    """

    name: str
    image: Path
    label: str
    split: str
    patient_id: str = ""
    annotation: Annotation | None = None
    box: Box | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    whole: bool = False
    tissue: Tissue | None = None
    on_tissue: bool = False


@dataclass(frozen=True)
class Skipped:
    """Something in the download that is not imported, and why.

    Reasons are counted by the part before their first ": ", as in "mixed margins: A-B".
    """

    item: str
    reason: str


@dataclass(frozen=True)
class FilmRow:
    """A full film with one lesion on it, given by its mask or box; without either, it shows none.

    The mask has the film's size. The split is "" where the download does not give it.
    """

    image: Path
    patient_id: str
    split: str = ""
    mask: Path | None = None
    box: Box | None = None


@dataclass(frozen=True)
class ImportPlan:
    """What to import from a download. Notes tell the user what the dataset lacks and what was guessed.

    films: full films with all lesions on them, also those that give no crop; films_left_out: those
    with a lesion whose place is unknown.
    """

    crops: Sequence[Crop]
    skipped: Sequence[Skipped] = ()
    notes: Sequence[str] = ()
    films: Sequence[FilmRow] = ()
    films_left_out: Sequence[Skipped] = ()


@dataclass(frozen=True)
class Options:
    """How to import.

    margin: tissue on each side of the lesion, as a fraction of its longer side. mixed: what to do with
    labels such as CIRCUMSCRIBED-ILL_DEFINED, "drop" or "first". margins: the class set, "three"
    (circumscribed, indistinct, spiculated) or "five" (also microlobulated and obscured). regions: where
    a film has several outlines, but its table does not say which of them the margin is of, "only" skips
    it and "all" takes every outline. margin_column: the column of the mass margins, by its letters or
    name, in a spreadsheet whose header is not understood.
    """

    margin: float = 0.5
    mixed: str = "drop"
    margins: str = "three"
    test_fraction: float = 0.2
    seed: int = 0
    regions: str = "only"
    margin_column: str = ""


Finder = Callable[[Path, Options], ImportPlan]


def split_by_patient(crops: Sequence[Crop], options: Options) -> list[Crop]:
    """The crops with splits train and test, for a dataset that has none of its own.

    Whole patients are in test, about `options.test_fraction` of the crops of every class; a crop
    without a patient is its own patient.
    """
    fraction = options.test_fraction
    if not 0 < fraction < 1 or not crops:
        return [replace(crop, split="test" if fraction >= 1 else "train") for crop in crops]
    samples = [
        Sample(0, crop.name, crop.image, crop.label, "train", patient_id=crop.patient_id)
        for crop in crops
    ]
    parts = patient_parts(samples, [1 - fraction, fraction], options.seed)
    return [
        replace(crop, split="test" if part else "train")
        for crop, part in zip(crops, parts, strict=True)
    ]
