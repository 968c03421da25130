"""COCO instances: JSON files with `images`, `annotations` and `categories`.

    SRC/annotations/instances_train.json  SRC/images/...   or  SRC/train/_annotations.coco.json

Every JSON file below SRC is read. Images are looked for beside the JSON file, then in SRC, each
time also in a folder images, in one with the name of the JSON file without "instances_", and in
both. A word train, val or test in the name of the JSON file, or of its folder, is the split;
otherwise the test split is drawn at random. An annotation is a lesion: its category is the label; its
polygons or its mask (run lengths, also compressed) are the annotation, or else its bbox is the
lesion box. Crowd regions are left out. `patient_id` of an image, where given, keeps a patient in
one split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from protopyramid.data.annotations import Outline, Polygons, outline_bounds
from protopyramid.data.importers import reading
from protopyramid.data.importers.base import Crop, ImportPlan, Options
from protopyramid.data.importers.json_files import Content, Findings, Format, find_in_json
from protopyramid.data.importers.outlines import (
    LONGEST_SIDE,
    Size,
    as_box,
    as_outline,
    check_within,
    mask_outlines,
)
from protopyramid.data.importers.reading import Unusable
from protopyramid.data.importers.splits import split_in
from protopyramid.data.io.decoding import image_stem
from protopyramid.data.manifest import Box
from protopyramid.errors import printable
from protopyramid.utils.opening import is_file

PARTS = ("images", "annotations", "categories")


@dataclass(frozen=True)
class Picture:
    """An image of a JSON file: its path, if there is one, and why it cannot be used, if so."""

    path: Path | None
    problem: str
    size: Size | None
    patient: str


@dataclass(frozen=True)
class Lesion:
    """A checked annotation; `problems` are of the parts that are not used."""

    annotation: Polygons | None
    box: Box | None
    problems: Sequence[str] = ()


def find(source: Path, options: Options) -> ImportPlan:
    """The lesions of all COCO files below the source."""
    return find_in_json(source, options, Format("COCO", PARTS, _read_file))


def _objects(content: Content, part: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a list with their places, from 1; anything that is not an object is empty."""
    for place, item in enumerate(content[part], 1):
        yield place, item if isinstance(item, dict) else {}


def _read_file(findings: Findings, path: Path, content: Content) -> None:
    source, file = findings.source, findings.place(path)
    pictures = _pictures(findings, path, content)
    labels = {
        _key(item.get("id")): str(item.get("name") or "").strip()
        for _, item in _objects(content, "categories")
    }
    split = split_in(path.stem) or split_in(path.parent.name if path.parent != source else "")
    for place, item in _objects(content, "annotations"):
        name = f"{file} annotation {reading.short(item.get('id', f'at place {place}'))}"
        named = pictures.get(_key(item.get("image_id")))
        try:
            picture = _usable(named)
            lesion = _lesion(item, picture.size)
            crop = _crop(findings, picture, lesion, _label(item, labels), split)
        except Unusable as error:
            findings.skip(name, str(error), named.path if named else None)
            continue
        for problem in lesion.problems:
            findings.skip(f"{name}, a part", problem, crop.image)
        findings.crops.append(crop)
    annotated = {_key(item.get("image_id")) for _, item in _objects(content, "annotations")}
    for place, item in _objects(content, "images"):
        if _key(item.get("id")) not in annotated:
            what = reading.short(item.get("file_name", f"at place {place}"))
            findings.skip(f"{file} image {what}", "image without an annotation")


def _pictures(findings: Findings, path: Path, content: Content) -> dict[str, Picture]:
    """The images of a file by their ids; one whose id is not unique cannot be used."""
    pictures: dict[str, Picture] = {}
    for _, item in _objects(content, "images"):
        picture, key = _picture(findings.source, path, item), _key(item.get("id"))
        findings.known |= {picture.path} if picture.path else set()
        twice = key in pictures
        pictures[key] = (
            replace(picture, problem="several images share its id") if twice else picture
        )
    return pictures


def _key(value: object) -> str:
    """An id; some tools write the same id as a number here and as text there."""
    return str(value)


def _picture(source: Path, path: Path, item: Mapping[str, Any]) -> Picture:
    patient = item.get("patient_id")
    known = isinstance(patient, str | int) and not isinstance(patient, bool)
    patient = printable(str(patient).strip()) if known else ""
    found, size = None, None
    try:
        found = _locate(source, path, str(item.get("file_name") or ""))
        size = _size(item)
        reading.check_size(found, size)
        return Picture(found, "", size, patient)
    except Unusable as error:
        return Picture(found, str(error), size, patient)


def _size(item: Mapping[str, Any]) -> Size | None:
    if item.get("width") is None or item.get("height") is None:
        return None
    size = (reading.number(item["width"]), reading.number(item["height"]))
    if not all(0 < side <= LONGEST_SIDE for side in size):
        raise Unusable(f"invalid image size: {size[0]:g} x {size[1]:g} pixels")
    return size


def _locate(source: Path, path: Path, name: str) -> Path:
    own = path.stem.removeprefix("instances_")
    for folder in dict.fromkeys((path.parent, source)):
        for part in ("", "images", own, f"images/{own}"):
            found = reading.inside(source, folder / part, name)
            if is_file(found):
                return found
    raise Unusable(f"image is missing: {printable(name)}")


def _usable(picture: Picture | None) -> Picture:
    if picture is None:
        raise Unusable("image_id is not among the images")
    if picture.problem:
        raise Unusable(picture.problem)
    return picture


def _label(item: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    label = labels.get(_key(item.get("category_id")))
    if not label:
        raise Unusable("category_id is not among the categories")
    return label


def _lesion(item: Mapping[str, Any], size: Size | None) -> Lesion:
    if item.get("iscrowd"):
        raise Unusable("crowd region: not a single lesion")
    shape = item.get("segmentation")
    problems: list[str] = []
    outlines: tuple[Outline, ...] = ()
    if isinstance(shape, dict):
        outlines = _mask(shape, size)
    elif isinstance(shape, list):
        outlines = _polygons(shape, size, problems)
    if outlines:
        return Lesion(Polygons(outlines), None, problems)
    bbox = item.get("bbox")
    if not isinstance(bbox, list) or len(bbox) != 4:
        raise Unusable(problems[0] if problems else "neither a segmentation nor a bbox")
    x, y, width, height = (reading.number(value) for value in bbox)
    return Lesion(None, as_box(x, y, x + width, y + height, size), problems)


def _mask(shape: Mapping[str, Any], size: Size | None) -> tuple[Outline, ...]:
    extent = shape.get("size")
    if size is not None and extent != [size[1], size[0]]:
        raise Unusable(f"unusable mask: its size {reading.short(extent)} is not that of its image")
    return mask_outlines(shape.get("counts"), extent)


def _polygons(shape: list[Any], size: Size | None, problems: list[str]) -> tuple[Outline, ...]:
    """The polygons that can be used; what is wrong with others is added to the problems."""
    flat = bool(shape) and not any(isinstance(part, list) for part in shape)
    outlines = []
    for part in [shape] if flat else shape:
        try:
            if not isinstance(part, list) or len(part) % 2:
                raise Unusable("unusable outline: not a list of x, y, x, y, ...")
            outlines.append(as_outline(list(zip(part[::2], part[1::2], strict=True)), None))
        except Unusable as error:
            problems.append(str(error))
    if outlines:
        check_within(outline_bounds(outlines), size)
    return tuple(outlines)


def _crop(findings: Findings, picture: Picture, lesion: Lesion, label: str, split: str) -> Crop:
    assert picture.path is not None
    stem = findings.place(picture.path.with_name(image_stem(picture.path)))
    return Crop(
        name=findings.names.new(stem),
        image=picture.path,
        label=label,
        split=split,
        patient_id=picture.patient,
        annotation=lesion.annotation,
        box=lesion.box,
    )
