"""Fetching models from a server on the loopback device, by address and by name."""

import hashlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from protopyramid.cli.main import main
from protopyramid.errors import UserError
from protopyramid.runs.archive import write_archive
from protopyramid.runs.shelf import model_names, pulled_folder
from protopyramid.sharing.pull import pull

from ..runs.archives import honest


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str, str]]:
    """A folder that is served, its address, and the digest of tiny.zip in it."""
    folder = tmp_path / "site"
    folder.mkdir()
    path = folder / "tiny.zip"
    write_archive(path, {"package": 1, "name": "tiny", "summary": "small"}, honest())
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    yield folder, f"http://127.0.0.1:{server.server_port}", digest
    server.shutdown()
    server.server_close()
    thread.join(timeout=10)


def names_in_cache() -> list[str]:
    return sorted(path.name for path in pulled_folder().glob("*") if path.name != ".lock")


def test_a_model_is_pulled_by_its_address(site) -> None:
    _, url, digest = site
    model = pull(f"{url}/tiny.zip", sha256=digest)
    assert (model.name, model.about.summary) == ("tiny", "small")
    assert names_in_cache() == ["tiny"]


def test_another_digest_is_refused_and_leaves_nothing(site) -> None:
    folder, url, _ = site
    for source in (f"{url}/tiny.zip", str(folder / "tiny.zip")):
        with pytest.raises(UserError, match="0000"):
            pull(source, sha256="0" * 64)
    with pytest.raises(UserError, match="64 hexadecimal"):
        pull(f"{url}/tiny.zip", sha256="abc")
    assert names_in_cache() == []


def test_what_is_refused_names_the_address_and_leaves_nothing(site) -> None:
    folder, url, _ = site
    (folder / "bad.zip").write_bytes(b"PK not a zip")
    with pytest.raises(UserError, match=rf"^{url}/bad\.zip: not a packed model"):
        pull(f"{url}/bad.zip")
    with pytest.raises(UserError, match="404"):
        pull(f"{url}/gone.zip")
    assert names_in_cache() == []


@pytest.mark.parametrize("source", ["file:///etc/hostname", "ftp://x/y.zip", "s3://a/b"])
def test_other_kinds_of_addresses_are_refused(source: str) -> None:
    with pytest.raises(UserError, match="only http and https"):
        pull(source)


def test_a_second_model_of_a_name_needs_another_name_or_force(site) -> None:
    _, url, _ = site
    pull(f"{url}/tiny.zip")
    with pytest.raises(UserError, match="--force replaces it"):
        pull(f"{url}/tiny.zip")
    pull(f"{url}/tiny.zip", name="other")
    pull(f"{url}/tiny.zip", force=True)
    assert names_in_cache() == ["other", "tiny"]
    with pytest.raises(UserError, match="name of a shipped model"):
        pull(f"{url}/tiny.zip", name="phantoms")


def test_a_name_is_looked_up_in_the_catalogue(site, monkeypatch, capsys) -> None:
    folder, url, digest = site
    offer = {"name": "small-one", "url": "tiny.zip", "sha256": digest, "summary": "from a friend"}
    (folder / "models.json").write_text(json.dumps({"models": [offer]}))
    monkeypatch.setenv("PROTOPYRAMID_CATALOGUE", f"{url}/models.json")
    assert main(["models"]) == 0
    assert "[to pull] from a friend" in capsys.readouterr().out
    assert main(["models", "pull", "small-one"]) == 0
    assert "small-one" in model_names()
    with pytest.raises(UserError, match="the catalogue offers small-one"):
        pull("large-one")


@pytest.mark.parametrize(
    "offer",
    [
        {"name": "a", "url": "file:///etc/hostname", "sha256": "0" * 64},
        {"name": "../a", "url": "http://127.0.0.1/a", "sha256": "0" * 64},
        {"name": "a", "url": "http://127.0.0.1/a", "sha256": "short"},
        {"name": "a", "url": "http://127.0.0.1/a"},
    ],
)
def test_a_damaged_catalogue_is_one_line(tmp_path: Path, monkeypatch, offer) -> None:
    place = tmp_path / "models.json"
    place.write_text(json.dumps({"models": [offer]}))
    monkeypatch.setenv("PROTOPYRAMID_CATALOGUE", str(place))
    with pytest.raises(UserError, match=r"models\.json"):
        pull("a")
