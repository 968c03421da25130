"""JSON files: each below the source is read, and what is not of the format is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.importers.base import Crop, Options, Skipped
from protopyramid.data.importers.json_files import Content, Findings, Format, find_in_json
from protopyramid.data.importers.reading import Unusable
from protopyramid.errors import UserError


def read_items(findings: Findings, path: Path, content: Content) -> None:
    """A format of one label for each image; an image named "odd" makes the file unusable."""
    for name, label in content["items"]:
        image = path.parent / name
        if name == "odd":
            raise Unusable("an odd item")
        findings.known.add(image)
        if label:
            findings.crops.append(Crop(findings.names.new(name), image, label, "train"))
        else:
            findings.skip(f"{findings.place(path)} {name}", "no label", image)


PLAIN = Format("plain", ("items",), read_items)


def save(folder: Path, name: str, **content: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(content))


def save_image(path: Path) -> None:
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(path)


def test_files_below_the_source_are_read_and_the_rest_is_told(tmp_path: Path) -> None:
    save(tmp_path / "deep", "a.JSON", items=[["one.png", "spiculated"], ["two.png", ""]])
    save(tmp_path, "odd.json", items=[["odd", "spiculated"]])
    save(tmp_path, "other.json", things=[])
    for name in ("one", "two", "three"):
        save_image(tmp_path / "deep" / f"{name}.png")
    found = find_in_json(tmp_path, Options(), PLAIN)
    assert [crop.image.name for crop in found.crops] == ["one.png"]
    assert set(found.skipped) == {
        Skipped("deep/a.JSON two.png", "no label"),
        Skipped("odd.json", "an odd item"),
        Skipped("other.json", "not a plain file: it has no list items"),
        Skipped("deep/three.png", "image that no plain file refers to"),
    }


def test_an_image_with_something_left_out_is_no_film_with_all_lesions_known(tmp_path: Path) -> None:
    save(tmp_path, "a.json", items=[["one.png", "spiculated"], ["one.png", ""], ["two.png", "x"]])
    for name in ("one", "two"):
        save_image(tmp_path / f"{name}.png")
    findings = Findings(tmp_path, [])
    read_items(findings, tmp_path / "a.json", json.loads((tmp_path / "a.json").read_text()))
    assert findings.unclear == {tmp_path / "one.png": "a.json one.png: no label"}


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (None, "give the folder that holds one"),
        ({"things": []}, "a.json: not a plain file: it has no list items"),
    ],
)
def test_a_source_without_a_file_of_the_format_is_refused(
    tmp_path: Path, content: dict[str, object] | None, hint: str
) -> None:
    if content is not None:
        save(tmp_path, "a.json", **content)
    save_image(tmp_path / "picture.png")
    with pytest.raises(UserError) as refusal:
        find_in_json(tmp_path, Options(), PLAIN)
    assert str(refusal.value) == f"{tmp_path}: holds no plain file (JSON with a list items); {hint}"
