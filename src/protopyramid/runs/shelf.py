"""Models by name: those that are shipped with the package, and those in the user's cache folder.

A packed model is unpacked once, into the cache folder (PROTOPYRAMID_CACHE), and is a run folder there like
any other. Shipped models are packed files inside the package; a new version of one has another digest and
so another folder.
"""

from __future__ import annotations

import difflib
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.archive import archive_digest, read_about, unpack
from protopyramid.runs.folder import RunFolder
from protopyramid.runs.package import Package, check_name, read_package
from protopyramid.utils.cache_folder import cache_folder
from protopyramid.utils.files import TEMPORARY
from protopyramid.utils.locks import locked
from protopyramid.utils.opening import is_file, is_folder, other_than_file

SHIPPED = Path(__file__).parent.parent / "shipped"
SUFFIX = ".zip"
LIST = "protopyramid models"


@dataclass(frozen=True)
class Model:
    """A model that has a name. `archive` is None where it was pulled, `folder` where it is not unpacked."""

    name: str
    about: Package
    archive: Path | None = None
    folder: Path | None = None

    @property
    def shipped(self) -> bool:
        """Whether it came with the package."""
        return self.archive is not None


def pulled_folder() -> Path:
    """Where pulled models are, each in a folder of its name."""
    return cache_folder() / "models"


def shipped_names() -> list[str]:
    """The names of the models that are shipped."""
    return sorted(path.stem for path in SHIPPED.glob(f"*{SUFFIX}"))


def model_names() -> list[str]:
    """The names of all models: shipped first, then pulled."""
    shipped = shipped_names()
    folder = pulled_folder()
    found = sorted(path.parent.name for path in folder.glob(f"*/{layout.PACKAGE}"))
    return [*shipped, *(name for name in found if name not in shipped)]


def find_model(name: str) -> Model | None:
    """A model by its name, or None."""
    if name in shipped_names():
        archive = SHIPPED / f"{name}{SUFFIX}"
        return Model(name, read_about(archive), archive, _shipped_place(archive))
    if name not in model_names():
        return None
    folder = pulled_folder() / name
    about = read_package(RunFolder(folder))
    if about is None:  # something of that name is there, but not a file
        raise UserError(f"{folder / layout.PACKAGE}: is not a file; pull the model again")
    return Model(name, about, None, folder)


def model_folder(model: Model) -> Path:
    """The run folder of a model; a shipped one is unpacked when it is first used."""
    if model.archive is None:
        assert model.folder is not None
        return model.folder
    place = _shipped_place(model.archive)
    if not is_file(place / layout.PACKAGE):
        with holding(place.parent):
            if not is_file(place / layout.PACKAGE):
                unpack(model.archive, place)
    return place


def find_run(path: str | Path) -> Path:
    """The run folder that is meant by a path or by a model's name; a run folder of that name wins."""
    place, name = Path(path), str(path)
    named = _is_name(name) and name in model_names()
    if is_folder(place) and (not named or is_file(place / layout.FORMAT)):
        if named:
            _say_once(f"{name}: the run folder of this name is used, not the model {name}")
        return place
    if not named:
        raise UserError(_unknown(place, name))
    if is_folder(place):
        _say_once(f"{name}: the model is used; the folder of this name is not a run")
    model = find_model(name)
    assert model is not None
    return model_folder(model)


def _say_once(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def _unknown(place: Path, name: str) -> str:
    if is_file(place):
        if place.suffix == SUFFIX:
            return f"{place}: a packed model; pull it first: protopyramid models pull {place}"
        return f"{place}: is a file; give a run folder or the name of a model"
    if other := other_than_file(place):
        return f"{place}: is {other}; give a run folder or the name of a model"
    if not _is_name(name):
        return f"{place}: no such run folder"
    names = model_names()
    near = difflib.get_close_matches(name, names, 2, 0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; the models are listed by: {LIST}"
    return f"{place}: no such run folder, and no model of that name{hint}"


def new_place(name: str, place: str) -> Path:
    """The folder of a model that is about to be pulled; UserError for a name that cannot be used."""
    check_name(name, place)
    if name in shipped_names():
        raise UserError(
            f"{place}: {name} is the name of a shipped model; choose another with --name NAME"
        )
    return pulled_folder() / name


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Hold a folder of models for this process, and clear what killed processes left in it."""
    with locked(folder, lambda: None):
        for partial in folder.glob(TEMPORARY + "*"):
            if partial.is_dir() and not partial.is_symlink():
                shutil.rmtree(partial, ignore_errors=True)
            else:
                partial.unlink(missing_ok=True)
        yield


def remove_model(name: str) -> Path:
    """Remove a pulled model from the cache folder, at once."""
    if name in shipped_names():
        raise UserError(f"{name}: is shipped with the package and cannot be removed")
    if name not in model_names():
        raise UserError(f"{name}: no pulled model of that name; the models are listed by: {LIST}")
    folder = pulled_folder() / name
    with holding(pulled_folder()):
        away = Path(tempfile.mkdtemp(dir=pulled_folder(), prefix=TEMPORARY))
        folder.rename(away / "old")
        shutil.rmtree(away, ignore_errors=True)
    return folder


def _shipped_place(archive: Path) -> Path:
    return cache_folder() / "shipped" / archive_digest(archive)[:16] / archive.stem


def _is_name(text: str) -> bool:
    return bool(text) and not any(each in text for each in "/\\") and text not in (".", "..")
