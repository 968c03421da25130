"""Where downloads are kept."""

from pathlib import Path

import pytest

from protopyramid.utils.cache_folder import cache_folder


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_the_users_variable_comes_first(platform: str, tmp_path: Path) -> None:
    chosen = {"PROTOPYRAMID_CACHE": str(tmp_path), "XDG_CACHE_HOME": "/x", "LOCALAPPDATA": "/y"}
    assert cache_folder(chosen, platform) == tmp_path


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, ".cache/protopyramid"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "Library/Caches/protopyramid"),
        ("win32", {}, "AppData/Local/protopyramid/Cache"),
    ],
)
def test_each_platform_has_its_own_place(platform, environment, expected) -> None:
    assert cache_folder(environment, platform) == Path.home() / expected


def test_an_empty_variable_counts_as_none() -> None:
    found = cache_folder({"PROTOPYRAMID_CACHE": "", "XDG_CACHE_HOME": "/x"}, "linux")
    assert found == Path("/x/protopyramid")
