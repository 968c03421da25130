"""Readings on disk: seeded orders, unaided first, one transaction per answer, refusals in words."""

from __future__ import annotations

import csv
import io
import sqlite3
from pathlib import Path

import pytest

from protopyramid.data.manifest import Manifest
from protopyramid.errors import UserError
from protopyramid.reader.readings.plan import StudyCase, StudyPlan, make_plan, study_samples
from protopyramid.reader.readings.results import COLUMNS, readings_csv, study_arrays
from protopyramid.reader.readings.store import FILE, Answer, Conflict, Due, ReadingStore
from protopyramid.runs.run import Run

CLASSES = ("circumscribed", "indistinct", "spiculated", "negative")


def plan(count: int = 5, **changes: object) -> StudyPlan:
    cases = tuple(
        StudyCase(name=f"=case{number}.png", label=CLASSES[number % 4], patient=f"p{number}")
        for number in range(count)
    )
    facts = {"run": "run", "model": "abc", "negative": "negative", "seed": 3, **changes}
    return StudyPlan(classes=CLASSES, cases=cases, **facts)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> ReadingStore:
    return ReadingStore.create(tmp_path / "study", plan())


def say(margin: str = "indistinct", confidence: int = 60, birads: str = "4B") -> Answer:
    return Answer(margin, confidence, birads, 3.0)


def give(
    store: ReadingStore, reader: str, answer: Answer, suggestion: str = "spiculated"
) -> Due | None:
    """Open what is due and answer it."""
    due = store.due(reader)
    assert due is not None
    if due.stage == "aided":
        store.suggested(reader, due, suggestion, dict.fromkeys(CLASSES, 0.25))
    store.opened(reader, due)
    return store.answer(reader, due.place, due.stage, answer)


def test_every_reader_has_an_own_order_that_depends_on_the_seed_alone() -> None:
    many = plan(40)
    orders = [many.order(name) for name in ("Ada", "Bea", "ada")]
    assert sorted(orders[0]) == list(range(40)) and orders[0] != list(range(40))
    assert orders[0] != orders[1]
    assert orders[0] == orders[2]  # the same person, whatever the spelling
    assert plan(40, seed=4).order("Ada") != orders[0]
    assert many.order("Ada") == orders[0]


def test_a_case_is_read_unaided_and_then_aided_until_all_are_done(store: ReadingStore) -> None:
    name = store.enrol("  Dr   Weber ")
    assert name == "Dr Weber"
    order = store.plan.order(name)
    for place, case in enumerate(order):
        due = store.due("dr weber")
        assert due == Due(place, case, "unaided", None)
        give(store, name, say("circumscribed", 40))
        due = store.due(name)
        assert due is not None and (due.place, due.stage) == (place, "aided")
        assert due.unaided is not None and due.unaided.margin == "circumscribed"
        give(store, name, say("spiculated", 90))
    assert store.due(name) is None
    assert [(each.reader, each.done) for each in store.progress()] == [("Dr Weber", 5)]


def test_everything_is_there_after_closing_in_the_middle_of_a_case(tmp_path: Path) -> None:
    with ReadingStore.create(tmp_path, plan()) as first:
        first.enrol("Ada")
        give(first, "Ada", say("circumscribed", 40))
    with ReadingStore.create(tmp_path, plan()) as second:
        due = second.due("Ada")
        assert due is not None and (due.place, due.stage) == (0, "aided")
        give(second, "Ada", say("negative"))
        due = second.due("Ada")
        assert due is not None and (due.place, due.stage) == (1, "unaided")


def test_the_same_answer_sent_again_changes_nothing_and_another_is_refused(
    store: ReadingStore,
) -> None:
    store.enrol("Ada")
    give(store, "Ada", say())
    before = readings_csv(store)
    assert store.answer("Ada", 0, "unaided", say()) == store.due("Ada")
    with pytest.raises(Conflict):
        store.answer("Ada", 0, "unaided", say("circumscribed"))
    with pytest.raises(Conflict):
        store.answer("Ada", 3, "unaided", say())
    assert readings_csv(store) == before


def test_an_answer_needs_a_case_that_was_shown(store: ReadingStore) -> None:
    store.enrol("Ada")
    with pytest.raises(Conflict, match="not been shown"):
        store.answer("Ada", 0, "unaided", say())
    give(store, "Ada", say())
    due = store.due("Ada")
    assert due is not None
    store.opened("Ada", due)
    with pytest.raises(Conflict, match="suggestion"):
        store.answer("Ada", 0, "aided", say())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (say("round"), "margin"),
        (say(confidence=101), "confidence"),
        (say(confidence=-1), "confidence"),
        (say(birads="7"), "birads"),
        (Answer("indistinct", 5, "2", float("nan")), "seconds"),
        (Answer("indistinct", 5, "2", -1.0), "seconds"),
    ],
)
def test_impossible_answers_are_told(store: ReadingStore, answer: Answer, words: str) -> None:
    store.enrol("Ada")
    due = store.due("Ada")
    assert due is not None
    store.opened("Ada", due)
    with pytest.raises(UserError, match=words):
        store.answer("Ada", 0, "unaided", answer)
    assert store.due("Ada") == due


@pytest.mark.parametrize("name", ["", "   ", "x" * 61, "a\u0007b"])
def test_impossible_names_are_told(store: ReadingStore, name: str) -> None:
    with pytest.raises(UserError, match="reader"):
        store.enrol(name)


def test_a_stranger_has_nothing_to_read(store: ReadingStore) -> None:
    with pytest.raises(UserError, match="has not begun"):
        store.due("Mallory")


def test_time_is_at_most_that_since_the_case_was_shown(store: ReadingStore) -> None:
    store.enrol("Ada")
    due = store.due("Ada")
    assert due is not None
    store.opened("Ada", due)
    store.opened("Ada", due)
    store.answer("Ada", 0, "unaided", Answer("indistinct", 5, "2", 5000.0))
    kept = store.readings()[0].answers["unaided"]
    assert kept.answer.seconds < 60 and kept.openings == 2


def test_another_study_in_the_folder_is_refused(tmp_path: Path) -> None:
    ReadingStore.create(tmp_path, plan()).close()
    ReadingStore.create(tmp_path, plan(run="moved")).close()
    for other in (plan(6), plan(model="other"), plan(seed=4)):
        with pytest.raises(UserError, match=r"other (cases|model|seed)"):
            ReadingStore.create(tmp_path, other)


def test_a_damaged_or_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no readings"):
        ReadingStore.open(tmp_path)
    (tmp_path / FILE).write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(UserError, match="cannot be used"):
        ReadingStore.open(tmp_path)


def test_every_commit_is_forced_to_the_disk(store: ReadingStore) -> None:
    (level,) = store._connection.execute("PRAGMA synchronous").fetchone()
    (mode,) = store._connection.execute("PRAGMA journal_mode").fetchone()
    assert (level, mode) == (3, "delete")  # EXTRA, with a rollback journal


def test_a_failing_write_leaves_nothing_behind(store: ReadingStore) -> None:
    store.enrol("Ada")
    give(store, "Ada", say())
    before = store.due("Ada")
    store._connection.execute(
        "CREATE TRIGGER full BEFORE INSERT ON answers BEGIN SELECT raise(ABORT, 'disk is full'); END"
    )
    with pytest.raises(UserError, match="disk is full"):
        give(store, "Ada", say())
    assert store.due("Ada") == before
    assert not store._connection.in_transaction


def test_the_table_has_a_row_per_reader_and_case_and_no_formula(store: ReadingStore) -> None:
    store.enrol("=HYPERLINK(1)")
    give(store, "=HYPERLINK(1)", say("circumscribed", 40))
    give(store, "=HYPERLINK(1)", say("spiculated", 90), suggestion="spiculated")
    give(store, "=HYPERLINK(1)", say("indistinct"))
    rows = list(csv.DictReader(io.StringIO(readings_csv(store))))
    assert list(rows[0]) == list(COLUMNS) and len(rows) == 2
    first = rows[0]
    assert first["reader"] == "'=HYPERLINK(1)" and first["case"].startswith("'=case")
    case = store.plan.cases[store.plan.order("=HYPERLINK(1)")[0]]
    assert first["truth"] == case.label
    assert (first["unaided_margin"], first["aided_margin"]) == ("circumscribed", "spiculated")
    assert (first["unaided_confidence"], first["changed"]) == ("40", "1")
    assert first["aided_right"] == str(int(case.label == "spiculated"))
    assert rows[1]["aided_margin"] == rows[1]["changed"] == ""
    for row in rows:
        assert not any(value.startswith(("=", "+", "-", "@")) for value in row.values())


def test_arrays_hold_what_was_said(store: ReadingStore) -> None:
    for reader, margin in (("Ada", "spiculated"), ("Bea", "negative")):
        store.enrol(reader)
        give(store, reader, say(margin, 10))
        give(store, reader, say("indistinct", 20), suggestion="indistinct")
    found = study_arrays(store)
    assert list(found.readers) == ["Ada", "Bea"] and found.complete.sum() == 2
    for row, (reader, number) in enumerate((("Ada", 2), ("Bea", 3))):
        case = store.plan.order(reader)[0]
        assert found.unaided.margin[row, case] == number and found.aided.margin[row, case] == 1
        assert found.unaided.confidence[row, case] == 10 and found.model[row, case] == 1
    assert found.truth.tolist() == [0, 1, 2, 3, 0]


def test_test_rows_are_read_where_there_are_some(run: Run, manifest: Manifest) -> None:
    chosen = study_samples(manifest.samples)
    assert chosen == list(manifest.split("test"))
    assert study_samples(manifest.split("train")) == list(manifest.split("train"))
    made = make_plan(run, "run", chosen, 0)
    assert [case.label for case in made.cases] == [sample.label for sample in chosen]
    with pytest.raises(UserError, match="needs cases"):
        make_plan(run, "run", [], 0)


def test_the_file_is_plain_sqlite(store: ReadingStore) -> None:
    store.enrol("Ada")
    give(store, "Ada", say())
    store.close()
    with sqlite3.connect(store.path) as plain:
        assert plain.execute("SELECT reader, margin FROM answers").fetchall() == [
            ("Ada", "indistinct")
        ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE answers SET margin = 'other'", "an answer is damaged"),
        ("UPDATE answers SET confidence = 'x'", "an answer is damaged"),
        ("UPDATE answers SET seconds = x'ff'", "an answer is damaged"),
        ("UPDATE suggestions SET probabilities = '[1]'", "a suggestion of the model is damaged"),
        ("UPDATE suggestions SET margin = 'other'", "a suggestion of the model is damaged"),
        ("UPDATE study SET plan = x'ff'", "its plan is damaged"),
    ],
)
def test_values_that_nobody_can_have_given_are_told(
    store: ReadingStore, change: str, told: str
) -> None:
    store.enrol("a")
    for _ in range(2):
        give(store, "a", say())
    folder = store.path.parent
    store.close()
    with sqlite3.connect(folder / FILE) as connection:
        connection.execute(change)
    with pytest.raises(UserError, match=told), ReadingStore.open(folder) as again:
        again.readings()
