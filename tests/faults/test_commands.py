"""Commands that are killed, or that the disk refuses: the same command again ends in the same bytes."""

from __future__ import annotations

import hashlib
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protopyramid.data.manifest import Manifest
from protopyramid.runs.run import Run
from protopyramid.utils.files import TEMPORARY

from ..harness import Command, fault
from ..pictures import save_noise

# Commands, by phase; {out} is what they write. Each ends in the same bytes whenever it ends.
COMMANDS = {
    "import": "data import folders {world}/classes {out} --workers 1",
    "negatives": "data negatives {world}/films/films.csv {out} --count 4 --workers 1",
    "phantoms": "data phantom {out} --patients 2 --patches 2 --size 32 --workers 1",
    "evaluate": "evaluate {out}/run",
    "explain": "explain {world}/run {world}/lesion.png --out {out}",
    "predict": "predict {world}/run {world}/lesion.png --out {out}/predictions.csv",
    "export": "export {world}/run --format torch-export --out {out}/model.pt2",
    "pack": "models pack {world}/run --out {out}/model.zip",
}
WRITES = {
    "import": 9,
    "negatives": 7,
    "phantoms": 9,
    "evaluate": 4,
    "explain": 2,
}  # the least number of each
RESTLESS = {
    "export"
}  # torch writes names of its own into an export: its numbers are compared elsewhere


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, run: Run, lesion: Path) -> Path:
    folder = tmp_path_factory.mktemp("world")
    for label in ("benign", "malignant"):
        for number in range(2):
            save_noise(folder / "classes" / label / f"{label}{number}.png", (40, 40), seed=number)
    rng = np.random.default_rng(0)
    (folder / "films").mkdir()
    for number in range(2):
        values = np.zeros((200, 160), np.uint8)
        values[:, :120] = rng.integers(120, 220, (200, 120))
        Image.fromarray(values).save(folder / f"films/{number}.png")
    rows = [f"{number}.png,p{number},20,20,40,40" for number in range(2)]
    header = "image,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1"
    (folder / "films/films.csv").write_text("\n".join([header, *rows]) + "\n")
    shutil.copytree(run.folder.path, folder / "run")
    shutil.copyfile(lesion, folder / "lesion.png")
    return folder


@pytest.fixture(scope="module")
def words(world: Path, manifest: Manifest) -> Callable[[str, Path], list[str]]:
    def make(name: str, out: Path) -> list[str]:
        if name == "evaluate" and not (out / "run").exists():
            shutil.copytree(world / "run", out / "run")
        line = COMMANDS[name].format(world=world, out=out)
        return [*shlex.split(line), *(["--data", str(manifest.path)] if name == "evaluate" else [])]

    return make


@pytest.fixture(scope="module")
def whole(
    command: Command,
    words: Callable[[str, Path], list[str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], dict[str, str]]:
    """What a command writes that nothing interrupts."""
    made: dict[str, dict[str, str]] = {}

    def content(name: str) -> dict[str, str]:
        if name not in made:
            out = tmp_path_factory.mktemp("whole") / "new"
            done = command(*words(name, out))
            assert done.code == 0, done.stderr
            made[name] = digests(out)
        return made[name]

    return content


def digests(folder: Path) -> dict[str, str]:
    """The digest of every file, by its place; locks are not content."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def same(name: str, out: Path, expected: dict[str, str]) -> None:
    found = digests(out)
    assert list(found) == list(expected)
    if name not in RESTLESS:
        assert found == expected


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_its_writes_a_command_ends_in_the_same_bytes(
    name: str, command: Command, words, whole, tmp_path: Path
) -> None:
    out = tmp_path / "new"
    for target, call in (("os:fsync", 1), ("os:replace", 1), ("os:replace", WRITES.get(name, 1))):
        done = command(*words(name, out), faults=[fault(target, call)])
        assert done.code in (-signal.SIGKILL, 0), done.stderr
        if done.code == 0:
            break
    if done.code:
        done = command(*words(name, out))
    assert done.code == 0, done.stderr
    for partial in out.rglob(TEMPORARY + "*"):
        partial.unlink()  # of a folder that is not a run's, the system's own cleaning will do
    same(name, out, whole(name))


@pytest.mark.parametrize("error", ["ENOSPC", "EROFS"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_refuses_is_one_line_with_the_file_and_no_torn_file(
    name: str, error: str, command: Command, words, whole, tmp_path: Path
) -> None:
    out = tmp_path / "new"
    expected = whole(name)
    target = "os:fsync" if error == "ENOSPC" else "tempfile:mkstemp"
    for call in range(1, WRITES.get(name, 1) + 1, 2):
        done = command(*words(name, out), faults=[fault(target, call, error=error)])
        if done.code == 0:  # what was written before is not written again
            break
        assert done.code == 2, done.stderr
        line = done.stderr.splitlines()[-1]
        assert line.startswith(f"protopyramid: error: {out}"), line
        assert ("the disk is full" if error == "ENOSPC" else "Read-only file system") in line
        assert "--resume" not in line and "Traceback" not in done.stderr
        assert not list(out.rglob(TEMPORARY + "*")) if out.exists() else True
        torn = digests(out) if out.exists() else {}
        final = {
            p: d for p, d in torn.items() if p.endswith((".png", ".zip", ".csv", ".html", ".pt2"))
        }
        if name not in RESTLESS:
            assert all(expected.get(place, digest) == digest for place, digest in final.items())
    assert command(*words(name, out)).code == 0
    same(name, out, expected)
