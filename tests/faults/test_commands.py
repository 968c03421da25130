"""Commands that are killed, or that the disk refuses: the same command again ends in the same bytes.

In `make test` a command is struck at a few of its writes, in `make test-hostile` (FAULTS=all) at every one.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protopyramid.cli.main import app
from protopyramid.data.manifest import Manifest
from protopyramid.reader.readings.store import ReadingStore
from protopyramid.runs.run import Run
from protopyramid.utils.files import TEMPORARY, remove_partial

from ..harness import Command, Job, Reference, Server, fault
from ..pictures import save_film, save_noise
from ..readings import write_readings

ALL = os.environ.get("FAULTS") == "all"
FEW = (1, 2, 5)  # writes that are struck in `make test`
# Commands by phase; {out} is what they write to. Each ends in the same bytes, whenever it ends.
COMMANDS = {
    "import": "data import folders {world}/classes {out} --workers 1",
    "negatives": "data negatives {world}/films/films.csv {out} --count 4 --workers 1",
    "phantoms": "data phantom {out} --patients 2 --patches 2 --size 32 --workers 1",
    "join": "data join a={data} {out}/joined.csv",
    "check": "data check {data} --out {out}/sheet.png",
    "evaluate": "evaluate {out}/run --data {data}",
    "faithfulness": "faithfulness {out}/run --data {data} --images 1",
    "explain": "explain {world}/run {world}/lesion.png --out {out}",
    "predict": "predict {world}/run {world}/lesion.png --out {out}/predictions.csv",
    "compare": "compare {world}/run {world}/other --out {out} --no-figures",
    "prototypes": "prototypes {world}/run --out {out} --data {data}",
    "edit": "prototypes {world}/run --remove 1 --out {out}/edited --data {data}",
    "export": "export {world}/run --format torch-export --out {out}/model.pt2",
    "pack": "models pack {world}/run --out {out}/model.zip",
    "pull": "models pull {world}/model.zip",
    "readings": "readings {world}/readings --out {out}/a.csv --summary {out}/a.json --bootstrap 5",
    "train": "train {toml} --data {phantoms} --out {out}/run --resume",
    "crossval": "crossval {toml} --data {phantoms} --folds 2 --seeds 0 --out {out}",
}
SLOW = (
    "train",
    "crossval",
    "export",
    "edit",
    "faithfulness",
    "check",
    "compare",
    "prototypes",
)  # struck less often in `make test`
# What differs from run to run by itself: speed, the time of an edit, names that torch writes into an export.
RESTLESS = ("metrics.jsonl", "events.out", "model.pt2", "edited/data.json", "run/data.json")
# Commands that write nothing that lasts, or by functions that are struck here under another name.
ELSEWHERE = {"serve", "bench", "demo", "doctor", "completion", "study", "data", "models", "presets"}


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, run: Run, black_box: Run, lesion: Path, command: Command,
    manifest: Manifest,
) -> Path:  # fmt: skip
    folder = tmp_path_factory.mktemp("world")
    for label in ("benign", "malignant"):
        for number in range(2):
            save_noise(folder / "classes" / label / f"{label}{number}.png", (40, 40), seed=number)
    for number in range(2):
        save_film(folder / f"films/{number}.png", number)
    rows = [f"{number}.png,p{number},20,20,40,40" for number in range(2)]
    header = "image,patient_id,lesion_x0,lesion_y0,lesion_x1,lesion_y1"
    (folder / "films/films.csv").write_text("\n".join([header, *rows]) + "\n")
    shutil.copytree(run.folder.path, folder / "run")
    shutil.copytree(black_box.folder.path, folder / "other")
    shutil.copyfile(lesion, folder / "lesion.png")
    for name in ("run", "other"):
        done = command("evaluate", folder / name, "--data", manifest.path)
        assert done.code == 0, done.stderr
    assert command("models", "pack", folder / "run", "--out", folder / "model.zip").code == 0
    write_readings(folder / "readings", run, manifest)
    return folder


Words = Callable[[str, Path], list[str]]


@pytest.fixture(scope="module")
def words(world: Path, manifest: Manifest, reference: Reference) -> Words:
    def make(name: str, out: Path) -> list[str]:
        if name in ("evaluate", "faithfulness") and not (out / "run").exists():
            shutil.copytree(world / "run", out / "run")
        places = {"toml": reference.toml, "phantoms": reference.manifest, "data": manifest.path}
        return shlex.split(COMMANDS[name].format(world=world, out=out, **places))

    return make


@pytest.fixture(scope="module")
def start(server: Server, words: Words) -> Callable[..., tuple[int, str]]:
    """Run a command, struck by a fault or not: its exit code and what it says."""

    def run(name: str, out: Path, *faults: dict[str, object]) -> tuple[int, str]:
        cache = {"PROTOPYRAMID_CACHE": str(out)} if name == "pull" else {}
        done = server.run(Job(words(name, out), faults, cache))[0]
        return done.code, done.stderr

    return run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A new folder to write to, always at the same depth: runs hold relative paths."""
    return lambda: tmp_path_factory.mktemp("out") / "new"


@pytest.fixture(scope="module")
def whole(start, place) -> Callable[[str], dict[str, str]]:
    """What a command writes that nothing interrupts."""
    made: dict[str, dict[str, str]] = {}

    def content(name: str) -> dict[str, str]:
        if name not in made:
            out = place()
            code, said = start(name, out)
            assert code == 0, said
            made[name] = digests(out)
        return made[name]

    return content


def digests(folder: Path) -> dict[str, str]:
    """The digest of every file, by its place; locks are not content."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock" and "tensorboard" not in path.parts
    }


def is_restless(place: str) -> bool:
    return any(each in place for each in RESTLESS)


def same(out: Path, expected: dict[str, str]) -> None:
    found = digests(out)
    assert sorted(found) == sorted(expected)
    differing = [each for each in found if found[each] != expected[each] and not is_restless(each)]
    assert not differing


def strikes(name: str) -> Iterator[int]:
    """Which of its writes a command is struck at; the caller stops when there is none left."""
    return itertools.count(1) if ALL else iter(FEW[:1] if name in SLOW else FEW)


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_its_writes_a_command_ends_in_the_same_bytes(
    name: str, start, whole, place
) -> None:
    for call in strikes(name):
        out = place()
        code, said = start(name, out, fault("os:replace", call))
        if code == 0:
            assert call > 1
            break
        assert code == -signal.SIGKILL, said
        for target in ("os:fsync", "os:replace"):  # and again, while it continues
            code, said = start(name, out, fault(target, 1))
            assert code in (0, -signal.SIGKILL), said
        code, said = start(name, out)
        assert code == 0, said
        remove_partial(out)
        same(out, whole(name))


@pytest.mark.parametrize("error", ["ENOSPC", "EROFS"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_refuses_is_one_line_with_the_file_and_no_torn_file(
    name: str, error: str, start, whole, place
) -> None:
    expected = whole(name)
    target = "os:fsync" if error == "ENOSPC" else "tempfile:mkstemp"
    for call in strikes(name):
        out = place()
        code, said = start(name, out, fault(target, call, error=error))
        if code == 0:
            assert call > 1 or name == "export"
            break
        assert code == 2, said
        line = said.splitlines()[-1]
        assert line.startswith(f"protopyramid: error: {out}"), line
        assert ("the disk is full" if error == "ENOSPC" else "Read-only file system") in line
        assert ("--resume" in line) <= (name == "train") and "Traceback" not in said
        assert not [each for each in out.rglob(TEMPORARY + "*") if each.is_file()]
        finished = (".png", ".zip", ".csv", ".html", ".pt2", ".safetensors")
        for each, digest in digests(out).items() if out.exists() else ():
            stays = each.endswith(finished) and "checkpoint" not in each and not is_restless(each)
            assert not stays or expected.get(each, digest) == digest, each
        code, said = start(name, out)
        assert code == 0, said
        same(out, expected)


def test_every_command_that_writes_is_struck() -> None:
    names = {command.callback.__name__ for command in app.registered_commands if command.callback}
    struck = {line.split()[0] for line in COMMANDS.values()}
    assert names - struck <= ELSEWHERE


# -- a study, whose runs are processes of their own ------------------------------------------------
@pytest.fixture(scope="module")
def study(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.toml"
    path.write_text(
        'title = "t"\ndata = "manifest"\nseeds = [0]\ncompare = true\nsaliency = false\n'
        f'[[variants]]\nname = "a"\npreset = "{reference.toml}"\n'
        f'[[variants]]\nname = "b"\npreset = "{reference.toml}"\nset = {{ "train.seed" = 1 }}\n'
    )
    return path


def test_a_study_killed_at_any_moment_ends_in_the_same_bytes(
    command: Command, study: Path, reference: Reference, place
) -> None:
    def line(out: Path) -> list[str | Path]:
        return ["study", study, "--data", reference.manifest, "--out", out]

    expected = place()
    done = command(*line(expected))
    assert done.code == 0, done.stderr
    out = place()
    # While its first run starts, trains, is measured; while the tables are written.
    moments = [fault("time:sleep", 10), fault("time:sleep", 25), fault("os:replace", 2)]
    for moment in moments:
        done = command(*line(out), faults=[moment])
        assert done.code in (0, -signal.SIGKILL), done.stderr
    done = command(*line(out))
    assert done.code == 0, done.stderr
    remove_partial(out)
    found = {each: value for each, value in digests(out).items() if not each.endswith(".log")}
    wanted = {each: value for each, value in digests(expected).items() if not each.endswith(".log")}
    assert sorted(found) == sorted(wanted)
    differing = [each for each in found if found[each] != wanted[each] and not is_restless(each)]
    for each in differing:  # a comparison names its runs by their paths
        told = [(folder / each).read_text().replace(str(folder), "") for folder in (out, expected)]
        assert told[0] == told[1], each


# -- two processes at once -------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["import", "negatives", "phantoms", "evaluate", "pull", "train"])
def test_two_processes_at_once_leave_what_one_leaves(
    name: str, server: Server, words: Words, start, whole, place
) -> None:
    out = place()
    cache = {"PROTOPYRAMID_CACHE": str(out)} if name == "pull" else {}
    jobs = [Job(words(name, out), (), cache) for _ in range(2)]
    done = server.run(*jobs)
    assert 0 in [each.code for each in done], done
    for each in done:
        assert each.code in (0, 2), each.stderr
        if each.code:
            last = each.stderr.splitlines()[-1]
            told = ("another process", "pulled already", "holds", "not empty")
            assert any(words in last for words in told), last
    if name not in ("pull", "phantoms"):  # which do not replace what is there
        assert start(name, out)[0] == 0
    same(out, whole(name))


def test_the_study_of_readers_survives_a_kill_and_a_clock_that_goes_backwards(
    run: Run, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import UTC, datetime, timedelta

    from protopyramid.reader.readings import store as module

    ticks = itertools.count()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime(2026, 1, 1, tzinfo=UTC) - timedelta(hours=next(ticks))

    monkeypatch.setattr(module, "datetime", Clock)
    write_readings(tmp_path / "readings", run, manifest)
    with ReadingStore.open(tmp_path / "readings") as store:
        kept = [answer for each in store.readings() for answer in each.answers.values()]
    assert len(kept) == 12
    assert all(0 <= each.answer.seconds <= 1 for each in kept)
