"""Freed memory is kept where the C library can, and the user's own settings come first."""

import subprocess
import sys

import pytest

from protopyramid.utils import allocator
from protopyramid.utils.allocator import SETTINGS, keep_freed_memory

KEPT = """
from pathlib import Path
from protopyramid.utils.allocator import keep_freed_memory
def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024
if {keep}:
    assert keep_freed_memory()
block = bytearray(200 * 2**20)
before = resident()
del block
print(before - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("keep", [False, True])
def test_a_large_block_stays_with_the_process_only_when_it_is_asked_to(keep, monkeypatch):
    if without_mallopt():
        pytest.skip("the C library is not glibc")
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-c", KEPT.format(keep=keep)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    given_back = float(done.stdout)
    assert (given_back < 10) if keep else (given_back > 190)


def without_mallopt() -> bool:
    import ctypes

    return not hasattr(ctypes.CDLL(None), "mallopt")


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_user_are_left_alone(name, monkeypatch):
    def unexpected(*_):
        raise AssertionError("the allocator was changed")

    monkeypatch.setenv(name, "1000000")
    monkeypatch.setattr(allocator.ctypes, "CDLL", unexpected)
    assert keep_freed_memory() is False


def test_a_c_library_without_the_setting_is_no_error(monkeypatch):
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    assert keep_freed_memory() is False
