"""Regions that were drawn in the VGG Image Annotator and exported as CSV.

A row is a region: the file's name, the number of regions of that file, and a JSON object with the
shape. A file without regions has one row with region_count 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protopyramid.data.annotations import Annotation, Circle, Polygons, bounds
from protopyramid.data.importers.base import Skipped
from protopyramid.data.importers.outlines import as_outline, check_within, coordinate
from protopyramid.data.importers.reading import Row, Unusable, read_rows, short
from protopyramid.data.manifest import Box

FILE, COUNT, SHAPE = "#filename", "region_count", "region_shape_attributes"
COLUMNS = (FILE, COUNT, SHAPE)
LONGEST_SHAPE = 1_000_000  # letters of the JSON
CORNERS = 180  # of the polygon that stands for an ellipse: at most .02 % of its area is lost


@dataclass(frozen=True)
class Region:
    """One region of a file, with the row of the table that describes it."""

    row: int
    text: str

    @property
    def kind(self) -> str:
        """The name of the shape: polygon, ellipse, circle, rect, polyline or point."""
        return str(self._values().get("name", ""))

    def annotation(self) -> Annotation:
        """What the shape encloses."""
        values = self._values()
        kind = str(values.get("name", ""))
        if kind == "polygon":
            return Polygons((as_outline(self._points(values), None),))
        if kind == "ellipse":
            return Polygons((as_outline(_ellipse(values), None),))
        if kind == "circle":
            return _circle(values)
        if kind == "rect":
            x, y, width, height = (
                coordinate(values.get(key)) for key in ("x", "y", "width", "height")
            )
            corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height))
            return Polygons((as_outline(corners, None),))
        raise Unusable(f"not an outline, but a {short(kind) or 'shape without a name'}")

    def box(self) -> Box:
        """The box around the shape, whatever it is: it may be a point or a line."""
        values = self._values()
        kind = values.get("name")
        if kind == "point":
            x, y = coordinate(values.get("cx")), coordinate(values.get("cy"))
            return x, y, x, y
        if kind == "polyline":
            points = [(coordinate(x), coordinate(y)) for x, y in self._points(values)]
            if not points:
                raise Unusable("unusable outline: it has no points")
            across, down = zip(*points, strict=True)
            return min(across), min(down), max(across), max(down)
        box = bounds(self.annotation())
        assert box is not None  # only mask files have none
        return box

    def _values(self) -> Mapping[str, Any]:
        try:
            values = json.loads(self.text) if len(self.text) <= LONGEST_SHAPE else None
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise Unusable(f"{SHAPE} is not a JSON object: {short(self.text[:40])!r}")
        return values

    @staticmethod
    def _points(values: Mapping[str, Any]) -> list[tuple[object, object]]:
        across, down = values.get("all_points_x"), values.get("all_points_y")
        if not isinstance(across, list) or not isinstance(down, list) or len(across) != len(down):
            raise Unusable(
                "unusable outline: all_points_x and all_points_y are not lists of one length"
            )
        return list(zip(across, down, strict=True))


def _circle(values: Mapping[str, Any]) -> Circle:
    x, y, radius = (coordinate(values.get(key)) for key in ("cx", "cy", "r"))
    if radius <= 0:
        raise Unusable("unusable outline: the circle has no size")
    check_within((x - radius, y - radius, x + radius, y + radius), None)
    return Circle((x, y), radius)


def _ellipse(values: Mapping[str, Any]) -> list[tuple[float, float]]:
    """An ellipse as a polygon; theta, in radians, turns it clockwise on the screen, where y is down."""
    x, y, wide, high = (coordinate(values.get(key)) for key in ("cx", "cy", "rx", "ry"))
    turn = coordinate(values.get("theta", 0))
    if wide <= 0 or high <= 0:
        raise Unusable("unusable outline: the ellipse has no size")
    cosine, sine = math.cos(turn), math.sin(turn)
    points = []
    for number in range(CORNERS):
        angle = 2 * math.pi * number / CORNERS
        along, across = wide * math.cos(angle), high * math.sin(angle)
        points.append((x + along * cosine - across * sine, y + along * sine + across * cosine))
    return points


def read_regions(path: Path) -> tuple[dict[str, list[Region]], list[Skipped]]:
    """The regions of every file of the table, by its name as it is written there, outer spaces removed."""
    rows, skipped = read_rows(path, COLUMNS)
    found: dict[str, list[Region]] = {}
    for row in rows:
        regions = found.setdefault(row[FILE], [])
        if not _is_empty(row):
            regions.append(Region(row.line, row[SHAPE]))
    return found, skipped


def _is_empty(row: Row) -> bool:
    return row[COUNT] == "0" and row[SHAPE] in ("", "{}")
