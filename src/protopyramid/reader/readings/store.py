"""The answers of a reader study on disk: one SQLite file, one transaction per answer.

Every commit is forced to the disk before it is answered (`synchronous = EXTRA`), so that an answer that was
accepted survives a killed process or a power cut, and one that was not is not there at all. The rollback
journal, not the write-ahead log, is used: it also works in a folder on a network share.
"""

from __future__ import annotations

import json
import math
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from protopyramid.errors import UserError
from protopyramid.reader.readings.plan import BIRADS, STAGES, StudyPlan
from protopyramid.utils.files import make_folder
from protopyramid.utils.opening import exists, is_file

FILE = "readings.sqlite"
FORMAT = 1
LONGEST_NAME = 60
LONGEST_SECONDS = 86_400.0
WAIT_SECONDS = 10.0  # for another process that is writing
SCHEMA = """
CREATE TABLE study (format INTEGER NOT NULL, plan TEXT NOT NULL, started TEXT NOT NULL);
CREATE TABLE readers (name TEXT PRIMARY KEY COLLATE NOCASE, started TEXT NOT NULL);
CREATE TABLE openings (
  reader TEXT NOT NULL COLLATE NOCASE REFERENCES readers (name), place INTEGER NOT NULL,
  stage TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE suggestions (
  reader TEXT NOT NULL COLLATE NOCASE REFERENCES readers (name), place INTEGER NOT NULL,
  margin TEXT NOT NULL, probabilities TEXT NOT NULL, at TEXT NOT NULL,
  PRIMARY KEY (reader, place));
CREATE TABLE answers (
  reader TEXT NOT NULL COLLATE NOCASE REFERENCES readers (name), place INTEGER NOT NULL,
  stage TEXT NOT NULL, margin TEXT NOT NULL, confidence INTEGER NOT NULL, birads TEXT NOT NULL,
  seconds REAL NOT NULL, openings INTEGER NOT NULL, at TEXT NOT NULL,
  PRIMARY KEY (reader, place, stage));
"""


class Conflict(UserError):
    """An answer that does not fit what the study has already: another case or stage is due."""


@dataclass(frozen=True)
class Answer:
    """What a reader says: the margin, how sure (0 a guess, 100 certain), BI-RADS, and seconds taken."""

    margin: str
    confidence: int
    birads: str
    seconds: float


@dataclass(frozen=True)
class KeptAnswer:
    """An answer on disk: how often the case was opened for it, and when it was given."""

    answer: Answer
    openings: int
    at: str


@dataclass(frozen=True)
class Suggestion:
    """What the model said when it was shown."""

    margin: str
    probability: float


@dataclass(frozen=True)
class Due:
    """What a reader is to do next: the place in their order, the case there, and the stage."""

    place: int
    case: int
    stage: str
    unaided: Answer | None


@dataclass(frozen=True)
class Reading:
    """A reader on a case: the answers that are given so far, and what the model said."""

    reader: str
    place: int
    case: int
    answers: Mapping[str, KeptAnswer]
    suggestion: Suggestion | None


@dataclass(frozen=True)
class Progress:
    """How many cases a reader has finished."""

    reader: str
    done: int


_KEPT = TypeAdapter(KeptAnswer)
_PROBABILITIES = TypeAdapter(dict[str, float])


class ReadingStore:
    """The answers of one study.

    Example::

        with ReadingStore.create(Path("study"), plan) as store:
            name = store.enrol("Dr Weber")
            due = store.due(name)
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, plan: StudyPlan) -> None:
        self.path, self.plan = path, plan
        self._connection = connection
        self._lock = threading.Lock()
        self._orders: dict[str, list[int]] = {}

    @classmethod
    def create(cls, folder: Path, plan: StudyPlan) -> ReadingStore:
        """The store in a folder, made where there is none; UserError where it holds another study."""
        path = make_folder(folder) / FILE
        if exists(path) and not is_file(path):  # a pipe would be waited for
            raise UserError(f"{path}: is not a file; give another folder with --readings")
        with _plain_errors(path):
            connection = _connect(path)
            connection.execute("BEGIN IMMEDIATE")
            if not _tables(connection):
                for statement in SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO study VALUES (?, ?, ?)", (FORMAT, plan.model_dump_json(), _now())
                )
            connection.execute("COMMIT")
            found = _read_plan(path, connection)
        _check_same(path, found, plan)
        return cls(path, connection, found)

    @classmethod
    def open(cls, folder: Path) -> ReadingStore:
        """The store of a folder that has one."""
        path = folder / FILE
        if not is_file(path):
            raise UserError(
                f"{folder}: has no {FILE}; give the folder that serve was given with --readings"
            )
        with _plain_errors(path):
            connection = _connect(path)
            plan = _read_plan(path, connection)
        return cls(path, connection, plan)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> ReadingStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- readers --------------------------------------------------------------------------------------
    def enrol(self, name: str) -> str:
        """Begin or continue as a reader; returns the name as the study knows it."""
        name = " ".join(name.split())
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise UserError(f"reader: give a name of 1 to {LONGEST_NAME} characters")
        with self._writing() as write:
            write.execute("INSERT OR IGNORE INTO readers VALUES (?, ?)", (name, _now()))
            return self._known(name)

    def progress(self) -> list[Progress]:
        """All readers in the order in which they began, and how far each has come."""
        with self._reading() as read:
            rows = read.execute(
                "SELECT name, (SELECT count(*) FROM answers WHERE reader = name AND stage = 'aided') "
                "FROM readers ORDER BY rowid"
            ).fetchall()
        return [Progress(name, done) for name, done in rows]

    def due(self, reader: str) -> Due | None:
        """What a reader is to do next; None when all is done."""
        with self._reading():
            return self._due(self._known(reader))

    # -- what happens ---------------------------------------------------------------------------------
    def opened(self, reader: str, due: Due) -> None:
        """Note that a case is shown to a reader, now."""
        with self._writing() as write:
            values = (self._known(reader), due.place, due.stage, _now())
            write.execute("INSERT INTO openings VALUES (?, ?, ?, ?)", values)

    def suggested(
        self, reader: str, due: Due, margin: str, probabilities: Mapping[str, float]
    ) -> None:
        """Note what the model said when it was first shown to a reader."""
        values = (due.place, margin, json.dumps(dict(probabilities)), _now())
        with self._writing() as write:
            write.execute(
                "INSERT OR IGNORE INTO suggestions VALUES (?, ?, ?, ?, ?)",
                (self._known(reader), *values),
            )

    def answer(self, reader: str, place: int, stage: str, answer: Answer) -> Due | None:
        """Keep an answer, in one transaction; returns what is due then.

        The same answer sent again, by a page that has not heard of the first, changes nothing. Any other
        answer than the one that is due is a Conflict: what was said unaided cannot be mended later.
        """
        _check(answer, self.plan)
        with self._writing() as write:
            reader = self._known(reader)
            if self._same_again(reader, place, stage, answer):
                return self._due(reader)
            due = self._due(reader)
            if due is None or (due.place, due.stage) != (place, stage):
                raise Conflict("another case or step is due; load the page again")
            openings, elapsed = self._openings(reader, due)
            if stage == "aided" and self._suggestion(reader, place) is None:
                raise Conflict("the model's suggestion has not been shown yet; open the case first")
            seconds = min(answer.seconds, elapsed)
            kept = (answer.margin, answer.confidence, answer.birads, seconds, openings, _now())
            write.execute(
                "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (reader, place, stage, *kept),
            )
            return self._due(reader)

    def readings(self) -> list[Reading]:
        """All readings that have been begun, by reader and place."""
        with self._reading() as read:
            names = [name for (name,) in read.execute("SELECT name FROM readers ORDER BY rowid")]
            return [each for name in names for each in self._readings_of(name)]

    # -- parts of a transaction -----------------------------------------------------------------------
    def _known(self, reader: str) -> str:
        row = self._connection.execute(
            "SELECT name FROM readers WHERE name = ?", (" ".join(reader.split()),)
        ).fetchone()
        if row is None:
            raise UserError("reader: has not begun; send the name to /api/readings/readers first")
        return str(row[0])

    def _order(self, reader: str) -> list[int]:
        if reader not in self._orders:
            self._orders[reader] = self.plan.order(reader)
        return self._orders[reader]

    def _due(self, reader: str) -> Due | None:
        answered = dict(
            self._connection.execute(
                "SELECT place, count(*) FROM answers WHERE reader = ? GROUP BY place", (reader,)
            ).fetchall()
        )
        for place, case in enumerate(self._order(reader)):
            count = answered.get(place, 0)
            if count < len(STAGES):
                before = self._kept(reader, place).get("unaided")
                return Due(place, case, STAGES[count], before.answer if before else None)
        return None

    def _kept(self, reader: str, place: int) -> dict[str, KeptAnswer]:
        rows = self._connection.execute(
            "SELECT stage, margin, confidence, birads, seconds, openings, at FROM answers "
            "WHERE reader = ? AND place = ?",
            (reader, place),
        )
        return {
            stage: self._checked(KeptAnswer(Answer(*said), n, at)) for stage, *said, n, at in rows
        }

    def _checked(self, kept: KeptAnswer) -> KeptAnswer:
        """An answer from the disk, if it is one that could have been given."""
        try:
            kept = _KEPT.validate_json(json.dumps(asdict(kept)), strict=True)
            _check(kept.answer, self.plan)
        except (ValidationError, TypeError, ValueError, UserError):
            raise self._damaged("an answer") from None
        return kept

    def _damaged(self, what: str) -> UserError:
        return UserError(f"{self.path}: {what} is damaged; restore the file from a copy")

    def _same_again(self, reader: str, place: int, stage: str, answer: Answer) -> bool:
        kept = self._kept(reader, place).get(stage)
        said = (answer.margin, answer.confidence, answer.birads)
        return kept is not None and said == (
            kept.answer.margin,
            kept.answer.confidence,
            kept.answer.birads,
        )

    def _openings(self, reader: str, due: Due) -> tuple[int, float]:
        """How often the case was opened at this stage, and the seconds since it last was."""
        count, last = self._connection.execute(
            "SELECT count(*), max(at) FROM openings WHERE reader = ? AND place = ? AND stage = ?",
            (reader, due.place, due.stage),
        ).fetchone()
        if not count:
            raise Conflict("the case has not been shown yet; open it first")
        elapsed = (datetime.now(UTC) - datetime.fromisoformat(last)).total_seconds()
        return count, max(elapsed, 0.0)

    def _suggestion(self, reader: str, place: int) -> Suggestion | None:
        row = self._connection.execute(
            "SELECT margin, probabilities FROM suggestions WHERE reader = ? AND place = ?",
            (reader, place),
        ).fetchone()
        if row is None:
            return None
        try:
            return Suggestion(row[0], _PROBABILITIES.validate_json(row[1])[row[0]])
        except (ValidationError, KeyError, TypeError):
            raise self._damaged("a suggestion of the model") from None

    def _readings_of(self, reader: str) -> Iterator[Reading]:
        for place, case in enumerate(self._order(reader)):
            answers = self._kept(reader, place)
            if answers:
                suggestion = self._suggestion(reader, place)
                yield Reading(reader, place, case, answers, suggestion)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _plain_errors(self.path):
            yield self._connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on disk when the block ends, or nothing."""
        with self._lock, _plain_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _tables(connection: sqlite3.Connection) -> int:
    count: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return count


def _read_plan(path: Path, connection: sqlite3.Connection) -> StudyPlan:
    version, text = connection.execute("SELECT format, plan FROM study").fetchone() or (0, "")
    if version != FORMAT:
        raise UserError(
            f"{path}: is of format {version}, this version reads {FORMAT}; use the version that wrote it"
        )
    try:
        return StudyPlan.model_validate_json(text)
    except (ValidationError, TypeError):
        raise UserError(f"{path}: its plan is damaged; restore the file from a copy") from None


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """Within it, an error of SQLite becomes a UserError that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise UserError(
            f"{path}: cannot be used ({error}); give another folder with --readings, or restore the file"
        ) from None


def _check_same(path: Path, found: StudyPlan, wanted: StudyPlan) -> None:
    differing = [
        name for name in StudyPlan.model_fields if getattr(found, name) != getattr(wanted, name)
    ]
    differing = [name for name in differing if name != "run"]  # a run may be moved or renamed
    if differing:
        raise UserError(
            f"{path}: holds a study with other {' and '.join(differing)}; serve it with the same run, "
            "--data and --seed, or give another folder with --readings"
        )


def _check(answer: Answer, plan: StudyPlan) -> None:
    if answer.margin not in plan.classes:
        raise UserError(f"margin: choose one of {', '.join(plan.classes)}")
    if not 0 <= answer.confidence <= 100:
        raise UserError("confidence: give a whole number from 0 to 100")
    if answer.birads not in BIRADS:
        raise UserError(f"birads: choose one of {', '.join(BIRADS)}")
    if not (math.isfinite(answer.seconds) and 0 <= answer.seconds <= LONGEST_SECONDS):
        raise UserError(f"seconds: give a number from 0 to {LONGEST_SECONDS:.0f}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
