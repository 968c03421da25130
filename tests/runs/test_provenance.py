"""data.json is read into one typed record, and another shape is refused in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protopyramid import __version__
from protopyramid.errors import UserError
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.provenance import Provenance, read_provenance, write_provenance

from ..harness import Reference

CONTENT: dict[str, Any] = {
    "classes": ["a", "b"],
    "manifest": "manifest.csv",
    "manifest_path": "../data/manifest.csv",
    "counts": {"train": {"a": 2, "b": 1}, "validation": {"a": 1}, "test": {}},
    "splits": {"train": {"1.png": "d1", "2.png": "d2"}, "validation": {"3.png": "d3"}},
    "backbone": "run iaia-bl",
    "software": {"name": "protopyramid", "version": "0.0.7"},
}


def written(folder: Path, content: object) -> RunFolder:
    (folder / "data.json").write_text(json.dumps(content))
    return RunFolder(folder)


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    found = read_provenance(written(tmp_path, CONTENT))
    assert found.version == "0.0.7" and found.backbone == "run iaia-bl"
    assert found.digests == {"d1", "d2", "d3"}
    write_provenance(RunFolder(tmp_path / "copy"), found)
    assert json.loads((tmp_path / "copy/data.json").read_text()) == CONTENT


def test_keys_of_other_versions_are_kept_and_missing_ones_are_not_invented(tmp_path: Path) -> None:
    content = {"splits": CONTENT["splits"], "protocol": {"fold": 3}}
    found = read_provenance(written(tmp_path, content))
    assert found.version == "" and found.counts == {}
    assert found.to_json() == content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "data.json: "),
        ({**CONTENT, "splits": ["1.png"]}, "key splits"),
        ({**CONTENT, "splits": {"train": {"1.png": 5}}}, "key splits.train.1.png"),
        ({**CONTENT, "counts": {"train": {"a": "many"}}}, "key counts.train.a"),
        ({**CONTENT, "software": "0.1"}, "key software"),
        ({**CONTENT, "manifest_path": None}, "key manifest_path"),
    ],
)
def test_another_shape_is_refused_in_one_line(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(UserError, match="the file is damaged") as caught:
        read_provenance(written(tmp_path, content))
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.json: no such file"):
        read_provenance(RunFolder(tmp_path))


def test_the_manifest_is_found_from_a_copy_of_the_run(tmp_path: Path) -> None:
    manifest = tmp_path / "data/manifest.csv"
    manifest.parent.mkdir()
    manifest.write_text("image,label,split\n")
    old, new = tmp_path / "run", tmp_path / "deeper/still/copy"
    moved = Provenance.model_validate(CONTENT).moved(old, new)
    assert moved.manifest_path == "../../../data/manifest.csv"
    new.mkdir(parents=True)
    assert moved.manifest_from(new) == manifest.resolve()
    manifest.unlink()
    assert moved.manifest_from(new) is None


def test_a_run_records_the_software_that_made_it(reference: Reference) -> None:
    content = json.loads((reference.folder / "data.json").read_text())
    assert content["software"] == {"name": "protopyramid", "version": __version__}
