"""labelme: one JSON file for each image, with `shapes` and `imagePath`.

Every JSON file below SRC is read; imagePath is relative to it and must not leave SRC. A shape is a
lesion: polygons, rectangles and circles, whose label is the class. Shapes with the same label and
group_id are one lesion. Points, lines and other shapes are left out, as is a lesion whose image is
not there as a file: the copy inside the JSON file (imageData) is not used. A folder train, val or
test in the path of the JSON file is the split; otherwise the test split is drawn at random.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from protopyramid.data.annotations import Annotation, Circle, Outline, Polygons
from protopyramid.data.geometry import Point
from protopyramid.data.importers import reading
from protopyramid.data.importers.base import Crop, ImportPlan, Options
from protopyramid.data.importers.json_files import Content, Findings, Format, find_in_json
from protopyramid.data.importers.outlines import (
    Size,
    as_box,
    as_outline,
    check_within,
    coordinate,
)
from protopyramid.data.importers.reading import Unusable
from protopyramid.data.importers.splits import split_in
from protopyramid.errors import printable
from protopyramid.utils.opening import is_file

CIRCLE_SIDES = 64  # of the polygon for a circle that is one of several shapes of a lesion

Shape = Circle | Outline


def find(source: Path, options: Options) -> ImportPlan:
    """The lesions of all labelme files below the source."""
    return find_in_json(source, options, Format("labelme", ("shapes",), _read_file))


def _read_file(findings: Findings, path: Path, content: Content) -> None:
    image = _image(findings.source, path, content)
    findings.known.add(image)
    size = _checked_size(image, content, findings.unclear)
    split = _split(path.relative_to(findings.source))
    stem = findings.place(path).rpartition(".")[0]
    for label, annotation in _lesions(content["shapes"], size, path, image, findings):
        name = findings.names.new(stem)
        findings.crops.append(Crop(name, image, label, split, annotation=annotation))


def _image(source: Path, path: Path, content: Content) -> Path:
    name = str(content.get("imagePath") or "")
    image = reading.inside(source, path.parent, name)
    if is_file(image):
        return image
    hint = "; save it there, the copy in the JSON file is not used"
    raise Unusable(f"image is missing: {printable(name)}{hint if content.get('imageData') else ''}")


def _size(content: Content) -> Size | None:
    width, height = content.get("imageWidth"), content.get("imageHeight")
    if width is None or height is None:
        return None
    return reading.number(width), reading.number(height)


def _checked_size(image: Path, content: Content, unclear: dict[Path, str]) -> Size | None:
    """The size that was annotated; an image of another one may have lesions that are not read."""
    try:
        size = _size(content)
        reading.check_size(image, size)
    except Unusable as error:
        unclear.setdefault(image, str(error))
        raise
    return size


def _split(path: Path) -> str:
    return next((split for part in path.parts[:-1] if (split := split_in(part))), "")


def _lesions(
    shapes: Sequence[Any], size: Size | None, path: Path, image: Path, findings: Findings
) -> Iterator[tuple[str, Annotation]]:
    """Label and annotation of each lesion, in the order of their first shapes."""
    file = findings.place(path)
    groups: dict[tuple[str, str], list[Shape]] = {}
    for place, item in enumerate(shapes, 1):
        item = item if isinstance(item, dict) else {}
        try:
            label = str(item.get("label") or "").strip()
            if not label:
                raise Unusable("shape without a label")
            group = item.get("group_id")
            key = f"shape {place}" if group is None else f"group {group}"
            drawn = _shape(item, size)
            groups.setdefault((label, key), []).append(drawn)
        except Unusable as error:
            findings.skip(f"{file} shape {place}", str(error), image)
    if not shapes:
        findings.skip(file, "no shapes", image)
    for (label, _), members in groups.items():
        yield label, _together(members)


def _shape(item: Mapping[str, Any], size: Size | None) -> Shape:
    """A polygon or a rectangle as an outline, or a circle."""
    kind = str(item.get("shape_type") or "polygon")
    points = [_point(pair) for pair in _list(item.get("points"))]
    if kind == "polygon":
        return as_outline(points, size)
    if kind == "rectangle":
        if len(points) not in (2, 4):
            raise Unusable(
                f"unusable rectangle: {len(points)} points, but two or four corners are needed"
            )
        return _rectangle(points, size) if len(points) == 2 else as_outline(points, size)
    if kind == "circle":
        if len(points) != 2:
            raise Unusable(f"unusable circle: {len(points)} points, but centre and edge are needed")
        return _circle(points, size)
    raise Unusable(f"unsupported shape, or one without an inside: {printable(kind)}")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _point(pair: object) -> Point:
    if not isinstance(pair, list) or len(pair) != 2:
        raise Unusable("unusable outline: a point is not of the form [x, y]")
    return coordinate(pair[0]), coordinate(pair[1])


def _rectangle(corners: Sequence[Point], size: Size | None) -> Outline:
    """A rectangle between opposite corners, drawn from any of the four."""
    (ax, ay), (bx, by) = corners
    x0, y0, x1, y1 = as_box(min(ax, bx), min(ay, by), max(ax, bx), max(ay, by), size)
    return (x0, y0), (x1, y0), (x1, y1), (x0, y1)


def _circle(points: Sequence[Point], size: Size | None) -> Circle:
    centre, edge = points
    radius = math.dist(centre, edge)
    if not radius:
        raise Unusable("unusable circle: its radius is zero")
    x, y = centre
    check_within((x - radius, y - radius, x + radius, y + radius), size)
    return Circle(centre, radius)


def _together(members: Sequence[Shape]) -> Annotation:
    if len(members) == 1 and isinstance(members[0], Circle):
        return members[0]
    return Polygons(tuple(_ring(each) if isinstance(each, Circle) else each for each in members))


def _ring(circle: Circle) -> Outline:
    angles = [2 * math.pi * step / CIRCLE_SIDES for step in range(CIRCLE_SIDES)]
    (x, y), radius = circle.centre, circle.radius
    return tuple((x + radius * math.cos(a), y + radius * math.sin(a)) for a in angles)
