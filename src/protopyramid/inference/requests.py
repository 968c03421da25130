"""What a user asks about: image files, folders or a table, and lesions marked on them, as samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from protopyramid.config.schema import DataConfig
from protopyramid.data.framing import Framing
from protopyramid.data.geometry import Box, Region, clip_box, square_around, squared
from protopyramid.data.io.decoding import read_size, read_spacing
from protopyramid.data.manifest import Sample
from protopyramid.errors import UserError
from protopyramid.inference.prediction import (
    Record,
    expand_folders,
    image_samples,
    predict_samples,
    table_rows,
)
from protopyramid.runs import layout
from protopyramid.utils.arguments import check_number, paths_of, wrong_type
from protopyramid.utils.opening import is_folder

if TYPE_CHECKING:
    from protopyramid.runs.run import Run

MARK_IT = (
    "Mark the lesion: --region x0,y0,x1,y1 or --lesion x0,y0,x1,y1, in Python region=(x0, y0, x1, y1), in "
    "pixels of the file"
)


CROPS = ("lesion", "none")


@dataclass(frozen=True)
class Marks:
    """Lesions marked on one image.

    regions: what the model is to see, in pixels of the file, made square around their centres; regions_mm:
    the same in millimetres from the upper left corner; lesions: boxes, around which the run's margin is
    added as in training.
    """

    regions: Sequence[Box] = ()
    regions_mm: Sequence[Box] = ()
    lesions: Sequence[Box] = ()

    def __bool__(self) -> bool:
        return bool(self.regions or self.regions_mm or self.lesions)


@dataclass(frozen=True)
class Request:
    """The samples to look at, and the settings to cut them by."""

    samples: tuple[Sample, ...]
    data: DataConfig


def requested(
    run: Run,
    paths: Sequence[Path],
    split: str | None = None,
    marks: Marks | None = None,
    crop: str | None = None,
) -> Request:
    """The samples of image files, of folders, or of one table (CSV).

    `crop` as in `data.crop`, by default that of the run, says whether a table's lesion boxes are used. By
    default, they also are where an image is a whole film and the run has learned crops.
    """
    data = run.config.data
    if crop not in (None, *CROPS):
        raise UserError(f'crop: expected one of {", ".join(CROPS)}, got "{crop}"')
    chosen = data.model_copy(update={"crop": crop or data.crop})
    table = table_of(paths, split)
    if table is not None:
        if marks:
            raise UserError(
                f"{table}: regions can be marked on one image only; for a table, put the lesion boxes "
                "into its columns lesion_x0 to lesion_y1"
            )
        if crop is None and data.crop == "none":
            return Request(_films_cut(run, table, split), chosen)
        return Request(table_rows(table, split, chosen.crop), chosen)
    if marks:
        lesions = {"crop": "lesion"} if marks.lesions else {}
        return Request(tuple(_marked(paths, marks)), data.model_copy(update=lesions))
    return Request(tuple(image_samples(expand_folders(paths))), chosen)


def _films_cut(run: Run, table: Path, split: str | None) -> tuple[Sample, ...]:
    """The rows of a table for a run of whole images; of whole films, the squares around their lesions."""
    data = run.config.data
    rows = table_rows(table, split, told=False)
    films = [framing_problem(run, row, data) is not None for row in rows]
    if not any(films):
        return table_rows(table, split)
    placed = table_rows(table, split, "lesion", told=False)
    cut = tuple(
        _cut_from_film(row, data) if film else replace(row, box=None, mask=None)
        for row, film in zip(placed, films, strict=True)
    )
    count = sum(row.region is not None for row in cut)
    if count:
        warnings.warn(
            f"{table}: {count} of {len(rows)} images are whole films: the model sees the square around each "
            f"lesion box, with a margin of {data.region.margin:g}; --crop none shows it the whole film",
            stacklevel=3,
        )
    return cut


def _cut_from_film(row: Sample, data: DataConfig) -> Sample:
    """A row of which the model sees the square around its lesion box, where it has one."""
    size = read_size(row.image)
    box = None if row.box is None or size is None else clip_box(row.box, *size)
    region = None if box is None or size is None else square_around(box, data.region.margin, *size)
    return replace(row, box=None, mask=None, region=region)


def region_sample(path: Path, box: Box, name: str | None = None) -> Sample:
    """An image of which the model sees the square around the centre of a box."""
    return _numbered(path, 1, name, _square(box, f"{path}, region"))


def predict_regions(
    run: Run, images: Sequence[str | Path], regions: Sequence[Box | None] | None = None
) -> list[Record]:
    """Predictions of image files, or of one region of each where it is given."""
    samples = image_samples(paths_of(images, "images"))
    if regions is not None and not isinstance(regions, Sequence):
        raise wrong_type("regions", "a list of boxes (x0, y0, x1, y1) or None", regions)
    if regions is not None:
        if len(regions) != len(samples):
            raise UserError(
                f"{len(regions)} regions for {len(samples)} images; give one per image, or None for the "
                "whole image"
            )
        samples = [
            sample if box is None else region_sample(sample.image, box)
            for sample, box in zip(samples, regions, strict=True)
        ]
    return predict_samples(run, samples)


def check_box(box: Sequence[float], what: str) -> Box:
    """A box of four finite numbers, x0 < x1 and y0 < y1; else a UserError."""
    if not isinstance(box, Sequence) or isinstance(box, str | bytes):
        raise wrong_type(what, "four numbers x0, y0, x1, y1", box)
    for edge in box:
        check_number(edge, what)
    if len(box) != 4 or not all(math.isfinite(edge) for edge in box):
        raise UserError(f"{what}: needs four numbers x0,y0,x1,y1, got {_text(box)}")
    x0, y0, x1, y1 = box
    if x1 <= x0 or y1 <= y0:
        raise UserError(f"{what}: {_text(box)} is empty; x1 > x0 and y1 > y0 are needed")
    return float(x0), float(y0), float(x1), float(y1)


def framing_problem(
    run: Run, sample: Sample, data: DataConfig, size: tuple[int, int] | None = None
) -> str | None:
    """How an image that is seen whole differs in size from the training images; else None.

    `size`: its height and width, by default those of the file's header.
    """
    marked = sample.region is not None or (data.crop == "lesion" and (sample.box or sample.mask))
    framing = None if marked else _framing(run)
    if framing is None:
        return None
    size = size or read_size(sample.image)
    return None if size is None else framing.mismatch(size[1], size[0])


def warn_of_films(run: Run, request: Request) -> None:
    """One line where images look like whole films given to a model of crops, and what to do."""
    problems = [(each, framing_problem(run, each, request.data)) for each in request.samples]
    found = [(sample.name, problem) for sample, problem in problems if problem]
    if found:
        name, problem = found[0]
        count = f"{len(found)} of {len(problems)} images: " if len(problems) > 1 else ""
        warnings.warn(f"{count}{name}: {problem} {MARK_IT}", stacklevel=3)


def _framing(run: Run) -> Framing | None:
    """The framing of the run's training images; None where it is not recorded."""
    return run.provenance.framing if (run.folder / layout.DATA).is_file() else None


def table_of(paths: Sequence[Path], split: str | None = None) -> Path | None:
    """The table (CSV) among the paths, which then must be the only one; None where there is none."""
    tables = [path for path in paths if path.suffix.lower() == ".csv"]
    if tables and len(paths) > 1:
        raise UserError(f"{tables[0]}: give either one manifest or images, not both")
    if not tables and split is not None:
        raise UserError("--split: only applies to a manifest; leave it out for images")
    return tables[0] if tables else None


def _marked(paths: Sequence[Path], marks: Marks) -> list[Sample]:
    if len(paths) != 1 or is_folder(paths[0]):
        raise UserError(
            "--region: marks lesions on one image; give one image file, or a table (CSV) with lesion boxes"
        )
    path = image_samples(paths)[0].image
    boxes = [_square(box, "--region") for box in marks.regions]
    boxes += [_square(_in_pixels(box, path), "--region-mm") for box in marks.regions_mm]
    samples = [_numbered(path, number, region=region) for number, region in enumerate(boxes, 1)]
    return samples + [
        replace(_numbered(path, number), box=check_box(box, "--lesion"))
        for number, box in enumerate(marks.lesions, len(samples) + 1)
    ]


def _numbered(
    path: Path, number: int, name: str | None = None, region: Region | None = None
) -> Sample:
    again = f"#{number}" if number > 1 else ""
    called = f"{name or path.as_posix()}{again}"
    return Sample(0, called, path, label="", split="test", lesion=number, region=region)


def _square(box: Sequence[float], what: str) -> Region:
    return squared(check_box(box, what))


def _in_pixels(box: Box, path: Path) -> Box:
    spacing = read_spacing(path)
    if spacing is None:
        raise UserError(
            f"{path}: has no pixel spacing (DICOM PixelSpacing or ImagerPixelSpacing), so millimetres "
            "are unknown; use --region with pixels"
        )
    return spacing.to_pixels(check_box(box, "--region-mm"))


def _text(box: Sequence[float]) -> str:
    return ",".join(f"{edge:g}" for edge in box) or "none"
