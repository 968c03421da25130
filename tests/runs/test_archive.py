"""Packed models come from anywhere: an honest one is unpacked, a hostile one leaves nothing behind."""

import io
import json
import os
import pickle
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from protopyramid.errors import UserError
from protopyramid.runs import archive
from protopyramid.runs.archive import read_about, unpack, write_archive

from .archives import about, honest, png, write_zip


def refused(path: Path, tmp_path: Path, match: str) -> None:
    """Unpacking fails in one line and leaves the folder as it was."""
    target = tmp_path / "models" / "tiny"
    with pytest.raises(UserError, match=match) as caught:
        unpack(path, target)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "models").iterdir()) == []
    assert {each.name for each in tmp_path.iterdir()} <= {"models", path.name, "outside"}


def test_an_archive_gives_back_what_was_packed(tmp_path: Path) -> None:
    files = honest()
    write_archive(tmp_path / "a.zip", {"package": 1, "name": "tiny"}, files)
    package = unpack(tmp_path / "a.zip", tmp_path / "models" / "tiny")
    assert package.name == "tiny"
    for name, content in files.items():
        assert (tmp_path / "models" / "tiny" / name).read_bytes() == content
    assert read_about(tmp_path / "a.zip") == package


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    files = honest()
    write_archive(tmp_path / "a.zip", {"package": 1, "name": "tiny"}, files)
    backwards = dict(reversed(files.items()))
    write_archive(tmp_path / "b.zip", {"package": 1, "name": "tiny"}, backwards)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_compressed_archive_made_by_another_program_is_read(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", honest(), compression=zipfile.ZIP_DEFLATED)
    assert unpack(path, tmp_path / "models" / "tiny").name == "tiny"


@pytest.mark.parametrize(
    "name",
    [
        "../outside.json",
        "/tmp/outside.json",
        "evaluation/../../outside.json",
        "..\\outside.json",
        "C:\\outside.json",
        "evaluation\\test.json",
        "run.py",
        "model.pkl",
        "report.html",
        "checkpoint/best.safetensors",
        "inner.zip",
        "prototypes/000.png/",
        "evaluation/con.json",
        "cases/nul.png",
        "prototypes/٠٠٠.png",  # digits of another script
        "evaluation/te\u200bst.json",
        "evaluation/te\u202est.json",
        "ｍodel.json",  # a full-width letter
        "evaluation/.json",
        "evaluation/" + "a" * 300 + ".json",
    ],
)
def test_a_file_that_a_model_cannot_have_is_refused(tmp_path: Path, name: str) -> None:
    files = {**honest(), name: b"{}"}
    refused(write_zip(tmp_path / "a.zip", files), tmp_path, "refused|damaged|too large")


def test_a_name_cut_by_a_zero_byte_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {**honest(), "evaluation/xtest.json": b"{}"})
    content = path.read_bytes().replace(b"evaluation/xtest.json", b"evaluation\0/test.json")
    path.write_bytes(content)
    refused(path, tmp_path, "refused|damaged")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", honest())
    with zipfile.ZipFile(path, "a") as packed:
        packed.writestr("prototypes.json", "[]")
    refused(path, tmp_path, "twice")


def test_names_that_differ_in_case_only_are_refused(tmp_path: Path) -> None:
    files = {**honest(), "model_card.md": b"other"}
    refused(write_zip(tmp_path / "a.zip", files), tmp_path, "case only|no such file")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR])
def test_links_and_special_files_are_refused(tmp_path: Path, kind: int) -> None:
    files = honest()
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("model.json", json.dumps(about(files)))
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            if name == "MODEL_CARD.md":
                entry.external_attr = (kind | 0o777) << 16
            packed.writestr(entry, content)
    refused(path, tmp_path, "special file")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    files = {**honest(), "evaluation/test.json": b" " * (30 * 10**6)}
    path = write_zip(tmp_path / "a.zip", files, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 10**5
    refused(path, tmp_path, "grow more than")


def test_a_file_that_is_larger_than_it_may_be_is_refused(tmp_path: Path) -> None:
    files = {**honest(), "MODEL_CARD.md": os.urandom(16) * 400_000}
    refused(write_zip(tmp_path / "a.zip", files), tmp_path, "larger than 5 MB")


def test_more_in_all_than_a_model_may_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "LARGEST_TOTAL", 500)
    refused(write_zip(tmp_path / "a.zip", honest()), tmp_path, "would unpack to more")


def test_very_many_files_are_refused_by_the_directory_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 60_000, 60_000, 10**6, 0, 0))
    refused(path, tmp_path, "more than 20000 files")


def test_a_directory_of_the_64_bit_kind_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", honest())
    content = path.read_bytes()
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, 0, 1)
    path.write_bytes(content[:-22] + locator + content[-22:])
    refused(path, tmp_path, "64-bit")


def test_a_file_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", honest(), compression=zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    place = content.rindex(b"PK\1\2", 0, content.rindex(b"config.toml"))
    content[place + 24 : place + 28] = struct.pack("<L", 3)  # its size when unpacked
    path.write_bytes(content)
    refused(path, tmp_path, "refused|damaged")


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    files = honest()
    description = about(files)
    path = write_zip(tmp_path / "a.zip", {**files, "MODEL_CARD.md": b"# evil\n"}, description)
    refused(path, tmp_path, "digest")


def test_a_file_that_is_not_listed_or_missing_is_refused(tmp_path: Path) -> None:
    files = honest()
    more = {**files, "metrics.jsonl": b"{}\n"}
    refused(write_zip(tmp_path / "a.zip", more, about(files)), tmp_path, "not listed")
    refused(write_zip(tmp_path / "a.zip", files, about(more)), tmp_path, "missing")


def test_a_model_without_weights_is_refused(tmp_path: Path) -> None:
    files = honest()
    del files["model.safetensors"]
    refused(write_zip(tmp_path / "a.zip", files), tmp_path, r"model\.safetensors is missing")


class Trap:
    def __reduce__(self):
        return (os.mkdir, ("outside",))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("prototypes.json", pickle.dumps(Trap()), "not JSON"),
        ("prototypes.json", b"NaN", "not JSON"),
        ("prototypes.json", b"[" * 100_000, "not JSON"),
        ("model.safetensors", pickle.dumps(Trap()), "not a safetensors file"),
        ("model.safetensors", b"\xff" * 200, "not a safetensors file"),
        ("prototypes/000.png", b"GIF89a" + b"\0" * 40, "not a PNG"),
        ("prototypes/000.png", png() + b"PK\3\4", "not a PNG"),
        ("config.toml", b"\x80\x04", "not TOML"),
        ("MODEL_CARD.md", b"\x1b]0;owned\x07", "not text"),
        ("data.json", b'{"manifest_path": "../../secret.csv"}', "outside of the model"),
        ("data.json", b'{"manifest_path": "/etc/passwd"}', "outside of the model"),
        ("data.json", b'{"manifest": "../a.csv"}', "outside of the model"),
        ("data.json", b'{"splits": 3}', "another shape"),
        ("cases/manifest.csv", b"image,label,split\n../a.png,x,test\n", "it names"),
        ("cases/manifest.csv", b"image,label,split\n/etc/a.png,x,test\n", "it names"),
        ("cases/manifest.csv", b"image,label,split\ngone.png,x,test\n", "it names"),
    ],
)
def test_content_that_is_not_of_its_kind_or_leads_outside_is_refused(
    tmp_path: Path, name: str, content: bytes, match: str
) -> None:
    refused(write_zip(tmp_path / "a.zip", {**honest(), name: content}), tmp_path, match)
    assert not Path("outside").exists()


def test_a_zip_inside_is_refused_whatever_it_is_called(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as packed:
        packed.writestr("a", "b")
    for name in ("data.json", "MODEL_CARD.md", "prototypes/000.png", "model.safetensors"):
        files = {**honest(), name: inner.getvalue()}
        refused(write_zip(tmp_path / "a.zip", files), tmp_path, "not")


@pytest.mark.parametrize("content", [b"", b"PK", b"hello" * 100, b"PK\5\6" + b"\0" * 18])
def test_what_is_not_a_packed_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    refused(path, tmp_path, "not a packed model")


@pytest.mark.parametrize("name", ["../x", "CON", "con", "a b", "A", "", ".hidden", "x" * 65, "é"])
def test_a_model_cannot_have_every_name(tmp_path: Path, name: str) -> None:
    files = honest()
    path = write_zip(tmp_path / "a.zip", files, about(files, name=name))
    refused(path, tmp_path, "not a name for a model")


def test_a_newer_kind_of_package_is_refused_clearly(tmp_path: Path) -> None:
    files = honest()
    path = write_zip(tmp_path / "a.zip", files, about(files, package=7))
    refused(path, tmp_path, "install a newer protopyramid")


def test_a_model_of_the_same_name_stays_when_the_new_one_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "models" / "tiny"
    unpack(write_zip(tmp_path / "a.zip", honest()), target)
    before = {path.name: path.stat().st_mtime_ns for path in target.iterdir()}
    with pytest.raises(UserError):
        unpack(write_zip(tmp_path / "b.zip", {**honest(), "run.py": b""}), target)
    assert {path.name: path.stat().st_mtime_ns for path in target.iterdir()} == before


def test_every_cut_and_many_flips_of_an_archive_are_refused_or_harmless(tmp_path: Path) -> None:
    files = honest()
    write_archive(tmp_path / "a.zip", {"package": 1, "name": "tiny"}, files)
    content = (tmp_path / "a.zip").read_bytes()
    spoiled = tmp_path / "b.zip"
    for number in range(0, len(content), 37):
        changed = bytearray(content)
        changed[number] ^= 0xFF
        for version in (content[:number], bytes(changed)):
            spoiled.write_bytes(version)
            target = tmp_path / "models" / "tiny"
            try:
                unpack(spoiled, target)
            except UserError:
                assert not target.exists()
                continue
            for name, expected in files.items():  # the flip was in a date or the like
                assert (target / name).read_bytes() == expected
            import shutil

            shutil.rmtree(target)


def test_an_offset_before_the_beginning_is_one_line(tmp_path: Path) -> None:
    """Bytes taken out of the middle: the directory then leads to places before the file."""
    content = write_zip(tmp_path / "a.zip", honest()).read_bytes()
    for start in range(0, len(content) - 700, 97):
        (tmp_path / "a.zip").write_bytes(content[:start] + content[start + 600 :])
        with pytest.raises(UserError):
            unpack(tmp_path / "a.zip", tmp_path / "model")
