"""The files of the page, read from the package once: no path of a request ever reaches the disk."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def page_files() -> dict[str, tuple[bytes, str]]:
    """Content and media type of each file of the page, by name."""
    folder = files("protopyramid.reader") / "page"
    found = {}
    for file in folder.iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        if file.is_file() and suffix in TYPES:
            found[file.name] = file.read_bytes(), TYPES[suffix]
    return found


def read_page(name: str) -> bytes:
    """The content of a file of the page."""
    return page_files()[name][0]
