"""Importers of public datasets: each format has a module with `find(source, options) -> ImportPlan`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from protopyramid.errors import UserError

if TYPE_CHECKING:
    from protopyramid.data.importers.base import Finder

# Names only: a module is imported when its format is asked for.
FORMATS = {
    "cbis-ddsm": "cbis_ddsm",
    "mini-mias": "mini_mias",
    "inbreast": "inbreast",
    "vindr-mammo": "vindr_mammo",
    "cdd-cesm": "cdd_cesm",
    "cmmd": "cmmd",
    "coco": "coco",
    "labelme": "labelme",
    "folders": "folders",
}


def finder(name: str) -> Finder:
    """The finder of a format."""
    if name not in FORMATS:
        raise UserError(f'no format "{name}"; the formats are {", ".join(FORMATS)}')
    find: Finder = import_module(f"{__name__}.{FORMATS[name]}").find
    return find
