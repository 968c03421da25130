"""Fetching a packed model into the user's cache folder, by name, from an address or from a file.

A name is that of a shipped model, or one of the catalogue that PROTOPYRAMID_CATALOGUE names: a JSON file or
an address with {"models": [{"name": …, "url": …, "sha256": …, "summary": …}]}.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urljoin, urlsplit

from pydantic import Field, TypeAdapter, ValidationError

from protopyramid.errors import UserError
from protopyramid.runs.archive import LARGEST_ARCHIVE, archive_digest, read_about, unpack
from protopyramid.runs.package import check_name
from protopyramid.runs.shelf import (
    SUFFIX,
    Model,
    find_model,
    holding,
    model_folder,
    new_place,
    pulled_folder,
)
from protopyramid.utils.downloads import download, is_url
from protopyramid.utils.files import TEMPORARY
from protopyramid.utils.opening import SETTINGS, is_file, read_text
from protopyramid.utils.progress import Bars, no_bar

CATALOGUE = "PROTOPYRAMID_CATALOGUE"
LARGEST_CATALOGUE = 5 * 10**6
HEX = 64  # digits of a SHA-256


@dataclass(frozen=True)
class Offer:
    """A model that a catalogue offers."""

    name: str
    url: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    summary: str = ""


@dataclass(frozen=True)
class _Catalogue:
    models: list[Offer]


def pull(
    source: str, *, name: str = "", sha256: str = "", force: bool = False, bars: Bars = no_bar
) -> Model:
    """Fetch a model and unpack it: whole, or not at all.

    Args:
        source: A name, an http or https address, or a file.
        name: What to call it, by default as it calls itself.
        sha256: The digest that the file must have.
        force: Replace a pulled model of that name.
        bars: Shows the progress of a download.
    """
    if sha256 and (len(sha256) != HEX or set(sha256.lower()) - set("0123456789abcdef")):
        raise UserError(f"--sha256 {sha256}: expected {HEX} hexadecimal digits")
    if is_url(source):
        return _pull_url(source, name, sha256, force, bars)
    if "://" in source:
        raise UserError(
            f"{source}: only http and https addresses are fetched; give a file by its path"
        )
    if is_file(Path(source)):
        return _place(Path(source), source, name, sha256, force)
    return _pull_name(source, name, sha256, force, bars)


def _pull_name(source: str, name: str, sha256: str, force: bool, bars: Bars) -> Model:
    known = find_model(source)
    if known is not None and known.shipped:
        model_folder(known)
        return known
    offers = {offer.name: offer for offer in read_catalogue()}
    if source not in offers:
        where = "" if offers else f"; set {CATALOGUE} to a catalogue of models, or give an address"
        offered = f"; the catalogue offers {', '.join(offers)}" if offers else ""
        raise UserError(
            f"{source}: no such file, and no model of that name is shipped or offered{offered}{where}"
        )
    offer = offers[source]
    if sha256 and sha256.lower() != offer.sha256.lower():
        raise UserError(f"{source}: the catalogue gives another SHA-256 ({offer.sha256})")
    return _pull_url(offer.url, name or offer.name, offer.sha256, force, bars)


def _pull_url(url: str, name: str, sha256: str, force: bool, bars: Bars) -> Model:
    shown = unquote(urlsplit(url).path.rpartition("/")[2]) or urlsplit(url).netloc
    if name:
        _check_new(new_place(name, url), name, force)  # before the download
    with holding(pulled_folder()):
        handle, path = tempfile.mkstemp(dir=pulled_folder(), prefix=TEMPORARY, suffix=SUFFIX)
        os.close(handle)
        packed = Path(path)
        try:
            download(url, packed, digest=sha256, limit=LARGEST_ARCHIVE, bars=bars, what=shown)
            return _unpack(packed, url, name, force)
        finally:
            packed.unlink(missing_ok=True)


def _place(file: Path, source: str, name: str, sha256: str, force: bool) -> Model:
    if sha256 and archive_digest(file) != sha256.lower():
        raise UserError(f"{file}: has the SHA-256 {archive_digest(file)}, expected {sha256}")
    with holding(pulled_folder()):
        return _unpack(file, source, name, force)


def _unpack(file: Path, source: str, name: str, force: bool) -> Model:
    """Unpack a file that is on this disk; messages name where it came from."""
    try:
        about = read_about(file)
        chosen = name or about.name
        place = new_place(chosen, source)
        _check_new(place, chosen, force)
        about = unpack(file, place)
    except UserError as error:
        raise UserError(str(error).replace(str(file), source)) from error
    return Model(chosen, about, None, place)


def _check_new(place: Path, name: str, force: bool) -> None:
    if place.exists() and not force:
        raise UserError(
            f"{name}: a model of that name was pulled already; --force replaces it, --name NAME keeps both"
        )


# -- the catalogue -------------------------------------------------------------------------------
def read_catalogue(environment: Mapping[str, str] = os.environ) -> list[Offer]:
    """The models that the user's catalogue offers; none where no catalogue is named."""
    place = environment.get(CATALOGUE, "")
    if not place:
        return []
    try:
        found = TypeAdapter(_Catalogue).validate_python(_content(place))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{place}: not a catalogue of models: {key}: {first['msg'].lower()}"
        ) from None
    base = place if is_url(place) else ""
    offers = [Offer(o.name, urljoin(base, o.url), o.sha256, o.summary) for o in found.models]
    for offer in offers:
        check_name(offer.name, place)
        if not is_url(offer.url):
            raise UserError(f"{place}: {offer.name}: {offer.url!r} is not an http or https address")
    return offers


def _content(place: str) -> object:
    try:
        if not is_url(place):
            text = read_text(Path(place), SETTINGS)
        else:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "catalogue.json"
                text = download(place, file, limit=LARGEST_CATALOGUE).read_text(encoding="utf-8")
        content: object = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{place}: cannot be read as a catalogue of models ({error})") from error
    return content
