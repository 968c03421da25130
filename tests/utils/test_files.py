"""A file is complete or it is not there, and a write that fails names its file."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from protopyramid.errors import UserError
from protopyramid.utils.files import make_folder, write_bytes, write_text


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EFBIG, "larger than the limit for files"),
        (errno.EIO, "cannot be written"),
    ],
)
def test_a_write_that_fails_names_its_file_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, words: str
) -> None:
    path = tmp_path / "table.csv"

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    for before in (None, b"old bytes"):
        if before is not None:
            path.write_bytes(before)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            with pytest.raises(UserError, match=rf"table\.csv: .*{words}"):
                write_bytes(path, b"new bytes")
        assert [each.read_bytes() for each in tmp_path.iterdir()] == ([before] if before else [])
    write_bytes(path, b"new bytes")
    assert path.read_bytes() == b"new bytes"


def test_a_limit_for_files_is_an_error_of_the_user(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
            write_bytes(tmp_path / "long.bin", bytes(100))
        except UserError as error:
            code = 0 if "long.bin" in str(error) and "ulimit" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "")
    with pytest.raises(UserError, match="file/inner"):
        make_folder(tmp_path / "file/inner")
    assert make_folder(tmp_path / "a/b").is_dir()
