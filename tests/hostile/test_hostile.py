"""A few hundred hostile cases, drawn from all of them: `make test-hostile` runs the rest."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from protopyramid.data.importers import FORMATS

from . import corpus, entries
from .runner import Case, Outcome, Runner, _judged, all_cases, begun_name

pytest.importorskip("pydicom")
pytest.importorskip("starlette")

DRAWN = 200
# What takes seconds where it succeeds: a share of the sample, all of it in `make test-hostile`.
SLOW_WORDS = (
    "prototypes",
    "explain",
    "evaluate",
    "compare",
    "export",
    "train",
    "study",
    "crossval",
)
SLOW_SHARE = 40
SPECIAL = {"fifo", "/dev/zero", "/dev/null", "loop of links", "huge"}


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    yield Runner(tmp_path_factory.mktemp("hostile"))


def sample() -> list[Case]:
    """The same cases at every call: of quick entry points most, of slow ones those that never get far."""
    cases = list(all_cases(1))
    random.Random(7).shuffle(cases)
    slow = [case for case in cases if any(word in case.entry for word in SLOW_WORDS)]
    early = [case for case in slow if case.kind in SPECIAL]
    quick = [case for case in cases if case not in set(slow)]
    return early[:SLOW_SHARE] + quick[: DRAWN - SLOW_SHARE]


def test_every_slot_is_a_good_file_of_the_world(runner: Runner) -> None:
    for entry in entries.FILES:
        base = runner.folder / "begun" / begun_name(entry) if entry.begun else runner.world
        slot = entry.slot.removeprefix("new/") if entry.begun else entry.slot
        assert (base / slot).is_file(), entry.label


def test_a_command_that_fails_with_its_good_file_is_a_failed_case(runner: Runner) -> None:
    """Its other cases would show nothing: it would refuse them for another reason."""
    case = Case("test", "the good file", 0, lambda place, rng: ["data", "check"], ends=0)
    assert runner.run(case).problems == ["exit 2, not 0"]


def test_no_case_of_the_sample_fails(runner: Runner) -> None:
    outcomes = [runner.run(case) for case in sample()]
    failed = [f"{each.case.name}: {'; '.join(each.problems)}" for each in outcomes if each.problems]
    assert not failed, "\n".join(failed)
    assert len(outcomes) == DRAWN
    assert sum(outcome.code == 2 for outcome in outcomes) > DRAWN / 2  # bad input is told


def test_there_are_more_than_five_thousand_cases_and_each_entry_point_meets_each_kind() -> None:
    cases = list(all_cases(4))
    assert len(cases) > 5000 and len(set(cases)) == len(cases)
    for entry in entries.FILES:
        met = {case.kind for case in cases if case.entry == entry.label}
        assert met >= set(corpus.kinds_of(entry.kind_of_file)), entry.label


def test_changed_trees_hold_copies_so_that_no_case_spoils_the_values_of_the_next() -> None:
    before = repr(corpus.VALUES)
    tree = {"a": [1, {"b": None}], "c": "d"}
    for seed in range(300):
        json.dumps(corpus.changed_tree(tree, random.Random(seed)))  # nothing holds itself
    assert repr(corpus.VALUES) == before
    assert tree == {"a": [1, {"b": None}], "c": "d"}


def test_every_format_and_every_command_that_reads_is_an_entry_point() -> None:
    from protopyramid.cli.main import app

    words = " ".join(entry.arguments for entry in (*entries.FILES, *entries.NAMES_IN))
    for name in FORMATS:
        assert f"data import {name} " in words
    known = {*words.split()}
    reading = {command.callback.__name__ for command in app.registered_commands if command.callback}
    assert reading - known <= {"bench", "demo", *LATER}


LATER = {"completion", "doctor", "models", "pack", "search", "readings", "edit", "annotate"}


# -- the runner sees what it is to see -----------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "stderr", "seen"),
    [
        (0, "", ""),
        (2, "protopyramid: error: a: b\n", ""),
        (2, "protopyramid: warning: x\nprotopyramid: error: a: b\n", ""),
        (1, "Traceback (most recent call last):\n", "traceback"),
        (70, "", "traceback"),
        (-11, "", "crash"),
        (-14, "", "hangs"),
        (2, "", "not one line"),
        (2, "protopyramid: error: a\nb\n", "not one line"),
        (2, "protopyramid: error: a \x1b[31m\n", "control characters"),
        (0, "TIFFReadDirectory: Warning, unknown field\n", "noise"),
        (2, "protopyramid: error: memory ran out; x\n", "memory"),
    ],
)
def test_an_outcome_is_judged(code: int, stderr: str, seen: str) -> None:
    problems = _judged(code, 0.1, stderr)
    assert (seen in " ".join(problems)) if seen else not problems


def bad_command(runner: Runner, script: str) -> Outcome:
    """A case whose command is a line of Python."""
    from . import runner as module

    def work(arguments: list[str]) -> int:
        exec(script, {})
        return 2

    usual, module._work = module._work, work
    try:
        return runner.run(Case("test", "test", 0, lambda place, rng: ["x"], ("new",)))
    finally:
        module._work = usual


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        ("open('../canary.txt', 'w').write('x')", "canary"),
        ("open('../other.txt', 'w').write('x')", "written outside"),
        ("open('.partial-1', 'w')", "left behind"),
        ("import os; os.mkdir('new')", "a failed start leaves"),
        ("x = bytearray(8 * 2**30)", "traceback"),
        ("import os; os.abort()", "crash"),
        ("import os; os.mkdir('pickle-ran')", "a pickle ran"),
    ],
)
def test_the_runner_sees_what_a_command_leaves(runner: Runner, script: str, seen: str) -> None:
    assert seen in " ".join(bad_command(runner, script).problems)
