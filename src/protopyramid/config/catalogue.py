"""The named settings that come with the package, each a TOML file in the folder of its kind.

Systems, demo settings and recipes are presets: complete configurations that load by name. An overlay is
a few settings to put on top of any preset.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable

PACKAGE = files("protopyramid.config")
# In the order in which they are listed.
FOLDERS = {"system": "presets", "demo": "demo", "recipe": "recipes"}
OVERLAYS = "overlays"
SUFFIX = ".toml"


def preset_names(kind: str | None = None) -> list[str]:
    """Names of the presets: systems first, then the demo's, then recipes; or those of one kind.

    >>> preset_names("system"), preset_names("recipe")
    (['fpn-iaia-bl', 'iaia-bl', 'protopnet', 'protopyramid', 'vgg16'], ['cbis-margins', 'margins'])
    """
    return [name for each in FOLDERS if kind in (None, each) for name in _names(FOLDERS[each])]


def overlay_names() -> list[str]:
    """Names of the overlays.

    >>> overlay_names()
    ['five-margins', 'small']
    """
    return _names(OVERLAYS)


def preset_kind(name: str) -> str:
    """What a preset is: "system", "demo" or "recipe"."""
    return next(kind for kind in FOLDERS if name in preset_names(kind))


def preset_summary(name: str) -> str:
    """One sentence on a preset: the first comment of its file."""
    return preset_text(name).partition("\n")[0].lstrip("# ")


def preset_text(name: str) -> str:
    """The TOML file of a preset."""
    return _file(FOLDERS[preset_kind(name)], name).read_text(encoding="utf-8")


def overlay_text(name: str) -> str:
    """The TOML file of an overlay."""
    return _file(OVERLAYS, name).read_text(encoding="utf-8")


def did_you_mean(wanted: object, names: list[str], what: str) -> str:
    """The name that comes closest to a wrong one, and all there are.

    >>> did_you_mean("vgg", ["iaia-bl", "vgg16"], "presets")
    'did you mean "vgg16"? the presets are iaia-bl, vgg16'
    """
    near = [name for name in names if name.startswith(str(wanted))]
    near = near or get_close_matches(str(wanted), names, n=1)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    return f"{hint}the {what} are {', '.join(names)}"


def _names(folder: str) -> list[str]:
    return sorted(_stems(PACKAGE / folder))


def _stems(folder: Traversable) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.name.endswith(SUFFIX):
            yield entry.name.removesuffix(SUFFIX)


def _file(folder: str, name: str) -> Traversable:
    return PACKAGE / folder / f"{name}{SUFFIX}"
