"""Runs cases, each in a process that is forked from this warm one, and sees what becomes of them.

A case fails by a traceback, an exit code other than 0 and 2, a crash, a hang, memory that runs away, more
than one line for an error, control characters on stderr, files that are left behind, or a touched canary.
"""

from __future__ import annotations

import os
import random
import resource
import shlex
import shutil
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from . import calls, corpus, entries, world
from .entries import FileEntry, NameEntry

SECONDS = 240  # of a case on a busy machine; the slowest good command takes twenty
MEMORY = 3 * 2**30  # bytes of address space beyond those of the warm process
GOOD_CODES = (0, 2)
FORKED = "HOSTILE_FORKED"


@dataclass(frozen=True)
class Case:
    """One bad thing at one entry point."""

    entry: str
    kind: str
    seed: int
    work: Callable[[Path, random.Random], list[str]] = field(compare=False, repr=False)
    out: tuple[str, ...] = ()  # what must not exist after an error
    touches: str = ""  # what the user names as the output: "canary", or else "outside"
    ends: int | None = None  # the exit code that is expected, if only one is

    @property
    def name(self) -> str:
        return f"{self.entry} | {self.kind} | {self.seed}"


@dataclass
class Outcome:
    """What became of a case; `problems` is empty where all is well."""

    case: Case
    code: int
    seconds: float
    stdout: str
    stderr: str
    arguments: list[str]
    problems: list[str]


# -- the cases -----------------------------------------------------------------------------------
def all_cases(seeds: int) -> Iterator[Case]:
    """Every entry point with every kind; kinds that draw at random, `seeds` times."""
    for entry in entries.FILES:
        yield Case(entry.label, GOOD, 0, _spoiler(entry, corpus.nothing), ends=entry.ends)
        for kind, spoil in corpus.kinds_of(entry.kind_of_file).items():
            drawn = seeds if kind in RANDOM or kind not in corpus.ANY else 1
            for seed in range(drawn):
                yield Case(entry.label, kind, seed, _spoiler(entry, spoil), _out(entry))
    for named in entries.NAMES_IN:
        for number, name in enumerate(named.names):
            leads = "canary" if "canary" in name else "outside" if ".." in name else ""
            touches = leads if named.writes_there else ""
            yield Case(named.name, "name", number, _namer(named, name), _named_out(named), touches)
    for call in calls.CALLS:
        for number, value in enumerate(calls.WRONG):
            yield Case(f"pp.{call}", "argument", number, _caller(call, value))


GOOD = "the good file"  # with which each command must work, or its cases show nothing
RANDOM = {"blanks", "noise", "cut", "flipped bits", "early flips", "spliced", "other format"}


def _out(entry: FileEntry) -> tuple[str, ...]:
    return () if entry.continues or entry.begun else ("new", "new.png", "new.pt2")


def _named_out(entry: NameEntry) -> tuple[str, ...]:
    return () if "data import" in entry.arguments else ("new",)


def _caller(call: str, value: str) -> Callable[[Path, random.Random], list[str]]:
    return lambda place, rng: ["CALL", call, value]


def _spoiler(entry: FileEntry, spoil: corpus.Kind) -> Callable[[Path, random.Random], list[str]]:
    def work(place: Path, rng: random.Random) -> list[str]:
        slot = place / entry.slot
        if entry.begun:
            shutil.copytree(place.parent.parent / "begun" / begun_name(entry), place / "new")
        good = slot.read_bytes() if slot.is_file() else b""
        slot.unlink(missing_ok=True)
        spoil(slot, good, rng)
        return [word.replace("{slot}", entry.slot) for word in shlex.split(entry.arguments)]

    return work


def begun_name(entry: FileEntry) -> str:
    return entry.name.partition(",")[0].replace(" ", "-")


def _namer(entry: NameEntry, name: str) -> Callable[[Path, random.Random], list[str]]:
    def work(place: Path, rng: random.Random) -> list[str]:
        given = PLACES[entry.place](place, name)
        if entry.writes_there and given.startswith("/"):  # nothing of this machine is overwritten
            given = str(place / given[1:])
        return [word.replace("{name}", given) for word in shlex.split(entry.arguments)]

    return work


def _missing(place: Path, name: str) -> str:
    return name


def _named_file(place: Path, name: str) -> str:
    """A picture of this name in a folder, where a file may have it."""
    target = place / "named" / f"{name.replace('/', '_')}.png"
    target.parent.mkdir()
    with suppress(OSError, ValueError):
        shutil.copyfile(place / "pictures/a.png", target)
    return f"named/{target.name}"


def _named_folder(place: Path, name: str) -> str:
    with suppress(OSError, ValueError):
        (place / "sources/folders/benign").rename(
            place / f"sources/folders/{name.replace('/', '_')}"
        )
    return name


def _in_table(column: str) -> Callable[[Path, str], str]:
    def change(place: Path, name: str) -> str:
        import csv
        import io

        path = place / "data/manifest.csv"
        header, *rows = list(csv.reader(io.StringIO(path.read_text())))
        at = header.index(column)
        old = rows[0][at]
        for row in rows:
            row[at] = name if row[at] == old else row[at]
        text = io.StringIO()
        csv.writer(text).writerows([header, *rows])
        path.write_text(text.getvalue())
        return name

    return change


def _class_of_run(place: Path, name: str) -> str:
    """The run has this name for its class "spiculated", and so has the manifest."""
    import json
    import tomllib

    import tomli_w

    def renamed(tree: object) -> object:
        if isinstance(tree, dict):
            return {renamed(key): renamed(value) for key, value in tree.items()}
        if isinstance(tree, list):
            return [renamed(each) for each in tree]
        return name if tree == "spiculated" else tree

    _rename_class(place, name)
    config = renamed(tomllib.loads((place / "run/config.toml").read_text()))
    assert isinstance(config, dict)
    (place / "run/config.toml").write_text(tomli_w.dumps(config))
    for file in ("prototypes.json", "data.json"):
        content = renamed(json.loads((place / "run" / file).read_text()))
        (place / "run" / file).write_text(json.dumps(content))
    return name


def _rename_class(place: Path, name: str) -> None:
    import csv
    import io

    path = place / "data/manifest.csv"
    rows = list(csv.reader(io.StringIO(path.read_text())))
    text = io.StringIO()
    csv.writer(text).writerows(
        [[name if cell == "spiculated" else cell for cell in row] for row in rows]
    )
    path.write_text(text.getvalue())


PLACES: dict[str, Callable[[Path, str], str]] = {
    "missing": _missing,
    "file": _named_file,
    "folder": _named_folder,
    "class": _in_table("label"),
    "patient": _in_table("patient_id"),
    "run-class": _class_of_run,
}


# -- running -------------------------------------------------------------------------------------
class Runner:
    """A warm process with a good world, from which cases are forked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = world.build(folder)
        self.count = 0
        self._begin()
        self._warm()

    def _begin(self) -> None:
        """The folders of commands that were at work before."""
        for entry in entries.FILES:
            target = self.folder / "begun" / begun_name(entry)
            if not entry.begun or target.exists():
                continue
            place = self._place()
            words = shlex.split(entry.begun)
            # A training is stopped after its first epoch; what makes crops is stopped at its end.
            fault = "project" if words[0] == "train" else ""
            code = self._fork(words, place, fault)[0]
            assert code in (0, 130), (entry.begun, (place.parent / "stderr").read_text())
            for table in ("manifest.csv", "films.csv", "skipped.csv", "combined.csv"):
                (place / "new" / table).unlink(missing_ok=True)
            shutil.copytree(place / "new", target)
            shutil.rmtree(place.parent)

    def _warm(self) -> None:
        """Import what commands import late, so that no case has to."""
        import importlib
        import pkgutil

        import protopyramid

        for module in pkgutil.walk_packages(protopyramid.__path__, "protopyramid."):
            if not module.name.endswith("__main__"):
                with suppress(ImportError):
                    importlib.import_module(module.name)
        for name in ("gdcm", "pydicom", "starlette.testclient", "matplotlib.pyplot", "onnxruntime"):
            with suppress(ImportError):
                importlib.import_module(name)
        from protopyramid.runs.run import load_run

        explanation = load_run(self.world / "run").explain(self.world / "pictures/a.png")
        explanation.save(self.folder / "warm.png")

    def _place(self) -> Path:
        self.count += 1
        place = self.folder / f"case-{self.count}" / "here"
        place.parent.mkdir()
        world.copy(self.world, place)
        return place

    def run(self, case: Case) -> Outcome:
        """Run one case in a copy of the world, and remove the copy."""
        place = self._place()
        try:
            arguments = case.work(place, random.Random(f"{case.name}"))
            before = set(_listing(place.parent))
            code, seconds = self._fork(arguments, place)
            stdout, stderr = (
                (place.parent / name).read_text(errors="surrogateescape")
                for name in ("stdout", "stderr")
            )
            problems = [
                *_judged(code, seconds, stderr),
                *_odd_letters("stdout", stdout),
                *_left_behind(case, place, code, before, stderr),
                *(_touched(place) if case.touches != "canary" else []),
                *([f"exit {code}, not {case.ends}"] if case.ends not in (None, code) else []),
            ]
            return Outcome(case, code, seconds, stdout, stderr, arguments, problems)
        finally:
            shutil.rmtree(place.parent, ignore_errors=True)

    def _fork(self, arguments: Sequence[str], place: Path, fault: str = "") -> tuple[int, float]:
        sys.stdout.flush()
        sys.stderr.flush()
        start = time.monotonic()
        child = os.fork()
        if not child:
            _child(arguments, place, fault)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), time.monotonic() - start


def _child(arguments: Sequence[str], place: Path, fault: str) -> None:
    """Never returns."""
    code = 70
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.alarm(SECONDS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(place)
        os.environ["PROTOPYRAMID_CACHE"] = str(place / "cache")
        os.environ["PROTOPYRAMID_CATALOGUE"] = str(place / "catalogue.json")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(place.parent / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False, errors="backslashreplace")
        # torch makes its thread pool again after a fork, and is not safe if several threads do so at once.
        torch.set_num_threads(1)
        if fault:
            _interrupt_at(fault)
        code = _work(list(arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _interrupt_at(point: str) -> None:
    from protopyramid.utils import faults

    faults.observe(lambda each: os.kill(os.getpid(), signal.SIGINT) if each == point else None)


def _work(arguments: list[str]) -> int:
    if arguments[0] == "CALL":
        return calls.call(*arguments[1:])
    if arguments[0].isupper():
        from protopyramid.errors import UserError

        from . import web

        try:
            return web.WORK[arguments[0]](*arguments[1:])
        except UserError as error:
            print(f"protopyramid: error: {error}", file=sys.stderr)
            return 2
    from protopyramid.cli.main import main

    return main(arguments)


# -- judging -------------------------------------------------------------------------------------
def _judged(code: int, seconds: float, stderr: str) -> list[str]:
    problems = []
    if code == -signal.SIGALRM:
        return [f"hangs: more than {SECONDS} s"]
    if code < 0:
        return [f"crash: {signal.Signals(-code).name}"]
    if "Traceback" in stderr or code not in GOOD_CODES:
        last = stderr.strip().splitlines()[-1:] or [""]
        problems.append(f"traceback, exit {code}: {last[0][:200]}")
        return problems
    if "memory ran out" in stderr or "not enough memory" in stderr or "can't allocate" in stderr:
        problems.append("memory runs away")
    lines = stderr.splitlines()
    errors = [line for line in lines if line.startswith("protopyramid: error: ")]
    if code == 2 and (len(errors) != 1 or lines[-1] != errors[0]):
        problems.append(f"not one line for an error, but {lines[-3:]}")
    if code == 0 and errors:
        problems.append("an error, and exit 0")
    foreign = [line for line in lines if _is_noise(line)]
    if foreign:
        problems.append(f"noise on stderr: {foreign[0][:160]!r}")
    return [*problems, *_odd_letters("stderr", stderr)]


def _odd_letters(stream: str, text: str) -> list[str]:
    odd = [letter for letter in text if not letter.isprintable() and letter != "\n"]
    return [f"control characters on {stream}: {odd[:5]}"] if odd else []


NOISE = ("Warning:", "warnings.warn", "libpng", "libtiff", "TIFFRead", "JPEG datastream", "gdcm")


def _is_noise(line: str) -> bool:
    """Lines that decoders and Python's warnings write, and we do not."""
    return any(word in line for word in NOISE)


def _listing(folder: Path) -> list[str]:
    found = []
    for root, folders, files in os.walk(folder):
        found += [os.path.relpath(Path(root, name), folder) for name in (*folders, *files)]
    return found


# What is left on purpose, and told: the checkpoint of a training that failed, the table of what was read.
KEPT = ("the last good checkpoint is kept", "are left out", "is left out")


def _left_behind(case: Case, place: Path, code: int, before: set[str], stderr: str) -> list[str]:
    new = set(_listing(place.parent)) - before - {"stdout", "stderr"}
    partial = [name for name in new if ".partial-" in name]
    problems = [f"left behind: {sorted(partial)[:3]}"] if partial else []
    ran = [name for name in new if "pickle-ran" in name]
    if ran:
        problems.append("a pickle ran")
    outside = [name for name in new if not name.startswith("here/")]
    if outside and not case.touches:
        problems.append(f"written outside: {sorted(outside)[:3]}")
    if code == 2 and not any(words in stderr for words in KEPT):
        left = [name for name in case.out if os.path.lexists(place / name)]
        if left:
            inside = sorted(name for name in new if name.startswith("here/new"))[:4]
            problems.append(f"a failed start leaves {inside}")
    return problems


def _touched(place: Path) -> list[str]:
    found = []
    for name in ("canary.png", "canary.txt"):
        path = place.parent / name
        if not path.is_file() or path.read_bytes() != world.CANARY:
            found.append(f"the canary {name} was touched")
    for name in ("pipe", "null"):  # a link that leads nowhere may become a file
        mode = (place / name).lstat().st_mode if os.path.lexists(place / name) else 0
        if not (stat.S_ISFIFO(mode) or stat.S_ISLNK(mode)):
            found.append(f"{name}, which is not a file, was replaced")
    return found
