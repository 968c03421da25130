"""prototypes.json is read into typed records, and another shape is refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protopyramid.errors import UserError
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.records import PrototypeRecord, read_prototypes

ENTRY: dict[str, Any] = {
    "index": 0,
    "class": "spiculated",
    "level": 2,
    "image": "images/1.png",
    "row": 3,
    "col": 4,
    "similarity": 0.75,
    "box": [0.0, 0.25, 0.5, 1.0],
}


def read(folder: Path, content: object) -> list[PrototypeRecord]:
    (folder / "prototypes.json").write_text(json.dumps(content))
    return read_prototypes(RunFolder(folder))


def test_an_entry_is_read_and_written_alike(tmp_path: Path) -> None:
    (record,) = read(tmp_path, [ENTRY])
    assert (record.class_name, record.level, record.box) == ("spiculated", 2, (0.0, 0.25, 0.5, 1.0))
    assert record.to_json() == ENTRY and list(record.to_json()) == list(ENTRY)


def test_the_label_of_the_source_image_is_kept_and_told_where_it_is_another(tmp_path: Path) -> None:
    content = [{**ENTRY, "label": "indistinct"}, {**ENTRY, "label": "spiculated"}, ENTRY]
    records = read(tmp_path, content)
    assert [record.to_json() for record in records] == content
    assert [record.other_label for record in records] == ["indistinct", None, None]


def test_keys_of_later_versions_are_ignored(tmp_path: Path) -> None:
    (record,) = read(tmp_path, [{**ENTRY, "note": "new"}])
    assert record.to_json() == ENTRY


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"0": ENTRY}, "expected a list"),
        ([3], "expected an object for each prototype, got 3"),
        ([{key: ENTRY[key] for key in ENTRY if key != "level"}], 'no "level"'),
        ([{**ENTRY, "index": True}], '"index" is True'),
        ([{**ENTRY, "class": 2}], '"class" is 2'),
        ([{**ENTRY, "label": 1}], '"label" is 1'),
        ([{**ENTRY, "similarity": "high"}], "\"similarity\" is 'high'"),
        ([{**ENTRY, "box": [0, 1]}], "not four numbers"),
        ([{**ENTRY, "box": [0, 0, 1, "x"]}], "not four numbers"),
        ([{key: ENTRY[key] for key in ENTRY if key != "box"}], "not four numbers but None"),
    ],
)
def test_another_shape_is_refused_in_one_line(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(UserError, match=r"prototypes\.json: .*the file is damaged") as caught:
        read(tmp_path, content)
    assert words in str(caught.value)
