"""Processes side by side, in the order that they need."""

import re
import sys

import pytest

from protopyramid.errors import UserError
from protopyramid.studies.pool import Task, run_tasks


def task(tmp_path, code: str, after=None) -> Task:
    return Task([sys.executable, "-c", code], tmp_path / "log", after)


def test_a_task_waits_for_the_one_it_needs(tmp_path):
    mark = tmp_path / "mark"
    first = f"import time; time.sleep(.5); open({str(mark)!r}, 'w').close()"
    tasks = {
        ("seed 0", "second"): task(tmp_path, f"open({str(mark)!r})", ("seed 0", "first")),
        ("seed 0", "first"): task(tmp_path, first),
    }
    said, finished = [], []
    run_tasks(tasks, 2, said.append, finished.append)
    assert finished == [("seed 0", "first"), ("seed 0", "second")]
    assert re.fullmatch(r"seed 0, first: done \(1 of 2, about \d+ s left\)", said[0])
    assert said[1:] == ["seed 0, second: done (2 of 2)"]


def test_not_more_than_so_many_run_at_a_time(tmp_path):
    code = (
        "import os, time, pathlib;"
        f"place = pathlib.Path({str(tmp_path / 'now')!r}); place.mkdir(exist_ok=True);"
        "mine = place / str(os.getpid()); mine.touch();"
        "assert len(list(place.iterdir())) <= 2; time.sleep(.3); mine.unlink()"
    )
    run_tasks({(f"seed {seed}", "a"): task(tmp_path, code) for seed in range(5)}, 2)


def test_a_failure_is_told_with_its_last_words_and_stops_the_others(tmp_path):
    mark = tmp_path / "stopped"
    patient = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(mark)!r}, 'w').close(), sys.exit()))\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        "time.sleep(60)"
    )
    failing = (
        "import os, sys, time\n"
        f"while not os.path.exists({str(tmp_path / 'ready')!r}): time.sleep(.05)\n"
        "sys.exit('no such weights')"
    )
    tasks = {("seed 0", "a"): task(tmp_path, patient), ("seed 0", "b"): task(tmp_path, failing)}
    with pytest.raises(UserError, match="no such weights"):
        run_tasks(tasks, 2)
    assert mark.exists()
