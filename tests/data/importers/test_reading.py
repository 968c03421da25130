"""What a download says is not trusted: paths stay inside, names are plain, tables are checked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.importers.reading import (
    LONGEST_NAME,
    Names,
    Unusable,
    check_size,
    inside,
    is_file,
    number,
    printable,
    read_json,
    read_rows,
    walk,
)
from protopyramid.errors import UserError

from .conftest import SaveDicom


@pytest.mark.parametrize(
    "name",
    [
        "../x.png",
        "a/../../x.png",
        "..\\..\\x.png",
        "/etc/passwd",
        "C:\\x.png",
        "//host/x",
        "",
        "a\0b",
    ],
)
def test_a_path_that_leaves_the_source_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Unusable):
        inside(tmp_path, tmp_path, name)


def test_a_path_may_go_up_within_the_source(tmp_path: Path) -> None:
    assert inside(tmp_path, tmp_path / "json", "..\\images\\x.png") == tmp_path / "images/x.png"


def test_a_source_with_dots_in_its_path_gives_the_paths_that_walk_gives(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/x.png").touch()
    source = tmp_path / "a" / ".." / "b"
    assert walk(source)[0] == [inside(source, source, "x.png")]


def test_a_name_that_no_file_can_have_is_no_file(tmp_path: Path) -> None:
    assert not is_file(tmp_path / ("x" * 5000))
    assert not is_file(tmp_path / "a\ud800b")


def test_files_are_walked_in_order_and_hidden_ones_are_told(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/1.png", "a.png", "b/._1.png", ".git/x.png", ".DS_Store"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files, skipped = walk(tmp_path)
    assert files == [tmp_path / name for name in ("a.png", "b/1.png", "b/2.png")]
    assert {skip.item for skip in skipped} == {".DS_Store", ".git", "b/._1.png"}


def test_links_are_followed_but_no_folder_is_entered_twice(tmp_path: Path) -> None:
    source, elsewhere = tmp_path / "src", tmp_path / "elsewhere"
    for folder in (source, elsewhere):
        folder.mkdir()
    (elsewhere / "x.png").touch()
    (source / "linked").symlink_to(elsewhere)
    (source / "loop").symlink_to(source)
    (source / "gone.png").symlink_to(tmp_path / "nothing")
    files, skipped = walk(source)
    assert files == [source / "linked/x.png"]
    assert {skip.item: skip.reason for skip in skipped} == {
        "gone.png": "not a regular file",
        "loop": "folder that was already read, through a link",
    }


def test_names_that_are_not_text_are_told_in_text(tmp_path: Path) -> None:
    (tmp_path / "good.png").touch()
    try:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.png")).touch()
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/dir\xff")).mkdir()
    except OSError:
        pytest.skip("the file system has no such names")
    files, skipped = walk(tmp_path)
    assert [path.name for path in files] == ["good.png"]
    assert [skip.item for skip in skipped] == ["bad\\udcff.png", "dir\\udcff"]
    assert all(skip.item.encode() and "UTF-8" in skip.reason for skip in skipped)


def test_new_names_are_plain_and_different_where_case_does_not_count() -> None:
    names = Names()
    wanted = ["a/b c", "A_b c", "a_b_c", "a_b_c_2", "../..", "", "x" * 999, "x" * 998, "乳房/é"]
    found = [names.new(each) for each in wanted]
    assert len({name.casefold() for name in found}) == len(found)
    assert found[:2] == ["a_b_c", "A_b_c_2"]
    assert found[-1] == "乳房_é"
    assert all(len(name.encode()) <= LONGEST_NAME + 2 for name in found)
    assert not any(set(name) & set('/\\:*?"<>| ') or name[0] == "." for name in found)


def test_printable_text_can_be_written() -> None:
    assert printable("a\ud800\n\tb") == "a\\ud800\\n\\tb"
    assert printable("mäßig") == "mäßig"


@pytest.mark.parametrize("value", [None, True, "x", "", float("inf"), "nan", [1], 10**400])
def test_what_is_not_a_finite_number_is_refused(value: object) -> None:
    with pytest.raises(Unusable, match="not a number"):
        number(value)


def test_a_dicom_film_of_another_size_than_annotated_is_refused(
    tmp_path: Path, save_dicom: SaveDicom
) -> None:
    save_dicom(tmp_path / "x.dcm", np.zeros((30, 40), np.uint16))
    check_size(tmp_path / "x.dcm", (40, 30))
    check_size(tmp_path / "x.dcm", None)
    with pytest.raises(Unusable, match="40 x 30 pixels, not 20 x 15"):
        check_size(tmp_path / "x.dcm", (20, 15))


def test_an_image_of_another_size_than_annotated_is_refused(tmp_path: Path) -> None:
    Image.new("L", (40, 30)).save(tmp_path / "x.png")
    (tmp_path / "x.dcm").write_bytes(b"no header that tells a size")
    check_size(tmp_path / "x.png", (40, 30))
    check_size(tmp_path / "x.png", None)
    check_size(tmp_path / "x.dcm", (1, 1))
    with pytest.raises(Unusable, match="40 x 30 pixels, not 30 x 40"):
        check_size(tmp_path / "x.png", (30, 40))


@pytest.mark.parametrize(
    "content", [b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b""]
)
def test_a_file_that_is_no_json_object_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(Unusable, match="not JSON"):
        read_json(tmp_path / "x.json")


def test_json_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xef\xbb\xbf" + json.dumps({"a": 1}).encode())
    assert read_json(tmp_path / "x.json") == {"a": 1}


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_table_is_read_whatever_its_delimiter_and_the_case_of_its_header(
    tmp_path: Path, delimiter: str
) -> None:
    text = '\ufefffile name ;OTHER\r\n1 ;"a\r\nb"\r\n\r\n2;c\r\n3;d;e\r\n'.replace(";", delimiter)
    (tmp_path / "t.csv").write_text(text, newline="")
    rows, skipped = read_rows(tmp_path / "t.csv", ["File Name"])
    assert [(row.line, row["File Name"]) for row in rows] == [(2, "1"), (5, "2")]
    assert [(each.item, each.reason.split(":")[0]) for each in skipped] == [
        ("t.csv row 6", "malformed row")
    ]


def test_a_table_that_is_not_utf8_is_read_as_latin_1(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes("a,b\n1,nódulo\n".encode("latin-1"))
    assert read_rows(tmp_path / "t.csv", ["a"])[0][0]["b"] == "nódulo"


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"x,y\n1,2\n", b"a,b\n1,\0\n", None])
def test_a_table_that_cannot_be_read_is_the_users_to_mend(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"t\.csv"):
        read_rows(tmp_path / "t.csv", ["a"])
