"""Files are written whole or not at all, and a failure names the file."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from protopyramid.errors import UserError
from protopyramid.utils import files


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_write_that_fails_leaves_the_old_bytes_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_bytes(b"old bytes")
    monkeypatch.setattr(os, broken, full)
    for path in (old, new):
        with pytest.raises(UserError, match=rf"{path.name}: the disk is full; free some space"):
            files.write_bytes(path, b"new bytes")
    assert old.read_bytes() == b"old bytes"
    assert [each.name for each in tmp_path.iterdir()] == ["old.csv"]


def test_an_error_inside_the_block_leaves_the_old_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ValueError, match="stop"), files.replacing(path) as file:
        file.write(b"half of the ne")
        raise ValueError("stop")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_created_and_json_ends_with_a_line_break(tmp_path: Path) -> None:
    path = files.write_json(tmp_path / "a/b/c.json", {"x": [1, None]})
    assert path.read_text() == '{\n  "x": [\n    1,\n    null\n  ]\n}\n'


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_without_a_standard_form_is_refused(tmp_path: Path, value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "a.json", {"x": value})
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/a\.txt: cannot be written"):
        files.write_text(tmp_path / "file/a.txt", "x")


def test_leftovers_of_a_killed_process_are_removed_and_nothing_else(tmp_path: Path) -> None:
    keep = files.write_text(tmp_path / "deep/kept.txt", "x")
    (tmp_path / "deep" / f"{files.TEMPORARY}abc").write_text("half")
    files.remove_partial(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [keep]


@pytest.mark.parametrize("native", [True, False])
def test_reserved_space_is_there_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    if not native:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    size = files.CHUNK + 5
    with (tmp_path / "cache.bin").open("wb") as file:
        files.reserve(file, size)
        assert os.fstat(file.fileno()).st_size == size
    assert (tmp_path / "cache.bin").read_bytes() == bytes(size)


def test_a_limit_for_files_is_an_error_of_the_user(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
            files.write_bytes(tmp_path / "long.bin", bytes(100))
        except UserError as error:
            code = 0 if "long.bin" in str(error) and "ulimit" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_never_takes_the_place_of_what_is_not_one(tmp_path: Path) -> None:
    """As root a rename would replace /dev/null itself, and whoever may write there /dev/stdout."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "output").symlink_to("/proc/self/fd/1")
    (tmp_path / "folder").mkdir()
    before = sorted((each.name, each.lstat().st_mode) for each in tmp_path.iterdir())
    for name, what in (
        ("pipe", "a pipe"),
        ("device", "a device"),
        ("output", "(a link of the system|a pipe|a device)"),
        ("folder", "a folder"),
    ):
        with pytest.raises(UserError, match=rf"{name}: is {what}; give the name of a file"):
            files.write_text(tmp_path / name, "x")
    assert before == sorted((each.name, each.lstat().st_mode) for each in tmp_path.iterdir())


def test_a_folder_that_is_a_loop_of_links_is_told(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="loop: is a link that leads nowhere"):
        files.make_folder(tmp_path / "loop")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    files.write_text(tmp_path / "file", "")
    with pytest.raises(UserError, match="file/inner"):
        files.make_folder(tmp_path / "file/inner")
    assert files.make_folder(tmp_path / "a/b").is_dir()
