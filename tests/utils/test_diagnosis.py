"""The diagnosis tells what is missing, and the remedy."""

from __future__ import annotations

import sys
import types
from collections import namedtuple
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from protopyramid.utils import diagnosis
from protopyramid.utils.diagnosis import Check, diagnose


def found(name: str, folder: Path, **environment: str) -> Check:
    return next(each for each in diagnose(folder, environment) if each.name == name)


def test_versions_are_those_installed(tmp_path: Path) -> None:
    assert found("torch", tmp_path).found == version("torch")
    assert found("Python", tmp_path).state == "ok"
    assert found("GPU", tmp_path).state == ("ok" if torch.cuda.is_available() else "note")


def test_a_missing_and_a_broken_extra_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(diagnosis.EXTRAS, "dicom", ("reading DICOM", ("no_such_module_here",)))  # type: ignore[attr-defined]
    missing = found("extra dicom", tmp_path)
    assert missing.state == "note" and "pip install 'protopyramid[dicom]'" in missing.remedy

    class Broken(types.ModuleType):
        pass

    (tmp_path / "broken_extra.py").write_text("raise RuntimeError('operator\\nis missing')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(diagnosis.EXTRAS, "dicom", ("reading DICOM", ("broken_extra",)))  # type: ignore[attr-defined]
    broken = found("extra dicom", tmp_path)
    assert broken.state == "problem" and "operator is missing" in broken.found
    sys.modules.pop("broken_extra", None)


def test_a_full_disk_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(diagnosis.shutil, "disk_usage", lambda _: usage(10, 9, 1e9))
    check = found("free disk space here", tmp_path)
    assert check.state == "problem" and "1 GB free" in check.found


def test_a_cache_folder_that_does_not_exist_yet_is_measured_where_it_will_be(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "not" / "yet"
    check = found("cache folder", tmp_path, PROTOPYRAMID_CACHE=str(folder))
    assert check.state in ("ok", "problem") and str(folder) in check.found
    assert not folder.exists()


@pytest.mark.parametrize(("threads", "state"), [(10_000, "problem"), (1, "note")])
def test_odd_numbers_of_threads_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, state: str
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(diagnosis.os, "cpu_count", lambda: 4)
    assert found("threads", tmp_path, OMP_NUM_THREADS=str(threads)).state == state
