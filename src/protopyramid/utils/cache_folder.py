"""The user's folder for what is downloaded once and used by many runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "PROTOPYRAMID_CACHE"
NAME = "protopyramid"


def cache_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """The folder that PROTOPYRAMID_CACHE names, else one in the platform's cache folder.

    >>> cache_folder({"PROTOPYRAMID_CACHE": "/data/cache"}).as_posix()
    '/data/cache'
    >>> cache_folder({"XDG_CACHE_HOME": "/home/me/.cache"}, "linux").as_posix()
    '/home/me/.cache/protopyramid'
    """
    if chosen := environment.get(VARIABLE):
        return Path(chosen).expanduser()
    if platform == "win32":
        local = environment.get("LOCALAPPDATA")
        return Path(local or Path.home() / "AppData" / "Local") / NAME / "Cache"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / NAME
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / NAME
