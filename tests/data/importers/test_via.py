"""Regions of the VGG Image Annotator."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from protopyramid.data.annotations import Circle, Polygons, drawn_mask
from protopyramid.data.importers.reading import Unusable
from protopyramid.data.importers.via import Region, read_regions


def region(**values: object) -> Region:
    return Region(2, json.dumps(values))


def test_an_ellipse_is_turned_as_it_is_drawn() -> None:
    turn = 0.5
    shape = region(name="ellipse", cx=60, cy=50, rx=40, ry=15, theta=turn).annotation()
    assert isinstance(shape, Polygons)
    mask = drawn_mask(shape, 100, 120)
    y, x = np.mgrid[:100, :120] + 0.5
    along = (x - 60) * math.cos(turn) + (y - 50) * math.sin(turn)
    across = -(x - 60) * math.sin(turn) + (y - 50) * math.cos(turn)
    expected = (along / 40) ** 2 + (across / 15) ** 2 <= 1
    assert (mask ^ expected).sum() <= 0.01 * expected.sum()


def test_shapes_and_their_boxes() -> None:
    circle = region(name="circle", cx=30, cy=20, r=10)
    assert circle.annotation() == Circle((30, 20), 10)
    assert circle.box() == (20, 10, 40, 30)
    polygon = region(name="polygon", all_points_x=[1, 9, 9], all_points_y=[2, 2, 8])
    assert polygon.annotation() == Polygons((((1, 2), (9, 2), (9, 8)),))
    assert polygon.box() == (1, 2, 9, 8)
    rect = region(name="rect", x=1, y=2, width=3, height=4)
    assert rect.box() == (1, 2, 4, 6)
    assert region(name="point", cx=5, cy=6).box() == (5, 6, 5, 6)
    line = region(name="polyline", all_points_x=[5, 1], all_points_y=[6, 7])
    assert line.box() == (1, 6, 5, 7)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "region_shape_attributes is not a JSON object: ''"),
        ("[]", "region_shape_attributes is not a JSON object: '[]'"),
        ("[" * 100_000, "region_shape_attributes is not a JSON object: "),
        ("{}", "not an outline, but a shape without a name"),
        ('{"name": "point", "cx": 1, "cy": 2}', "not an outline, but a point"),
        ('{"name": "circle", "cx": 1, "cy": 2}', "not a number: 'None'"),
        ('{"name": "circle", "cx": 1, "cy": 2, "r": 0}', "the circle has no size"),
        ('{"name": "circle", "cx": 1, "cy": 2, "r": 1e300}', "outside any image: 1e+300"),
        ('{"name": "circle", "cx": -50, "cy": 2, "r": 9}', "outside its image"),
        ('{"name": "ellipse", "cx": 1, "cy": 2, "rx": -1, "ry": 3}', "the ellipse has no size"),
        ('{"name": "ellipse", "cx": 1, "cy": 2, "rx": NaN, "ry": 3}', "not a number: 'nan'"),
        (
            '{"name": "polygon", "all_points_x": [1, 2, 3], "all_points_y": [1]}',
            "lists of one length",
        ),
        ('{"name": "polygon", "all_points_x": 5}', "lists of one length"),
        ('{"name": "polygon", "all_points_x": [1], "all_points_y": [1]}', "three are needed"),
        ('{"name": "circle", "cx": ' + "9" * 5000 + "}", "is not a JSON object"),
    ],
)
def test_a_shape_that_cannot_be_used_is_told(text: str, reason: str) -> None:
    with pytest.raises(Unusable) as caught:
        Region(2, text).annotation()
    assert reason in str(caught.value)


def test_regions_are_read_by_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    shape = '"{""name"":""circle"",""cx"":1,""cy"":2,""r"":3}"'
    path.write_text(
        "#filename,file_size,file_attributes,region_count,region_id,region_shape_attributes,"
        "region_attributes\n"
        f'a.jpg,1,"{{}}",2,0,{shape},"{{}}"\n'
        f'a.jpg,1,"{{}}",2,1,{shape},"{{}}"\n'
        'b.jpg,1,"{}",0,0,"{}","{}"\n'
        "c.jpg,1\n"
    )
    regions, skipped = read_regions(path)
    assert {name: [each.row for each in found] for name, found in regions.items()} == {
        "a.jpg": [2, 3],
        "b.jpg": [],
    }
    assert regions["a.jpg"][0].kind == "circle"
    assert [each.item for each in skipped] == ["a.csv row 5"]
