"""A locked folder belongs to one process; the system releases it when that process is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from protopyramid.errors import UserError
from protopyramid.utils.locks import locked

HOLD = """
import sys, time
from pathlib import Path
from protopyramid.utils.locks import locked
with locked(Path(sys.argv[1]), lambda: None):
    print("held", flush=True)
    time.sleep(60)
"""


class Busy(Exception):
    """Another process holds the folder."""


def give_up() -> None:
    raise Busy


def test_a_second_process_waits_until_the_first_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Busy), locked(tmp_path, give_up):
            pass
    finally:
        holder.kill()
        holder.wait()
    with locked(tmp_path, give_up):
        pass


def test_what_busy_raises_is_passed_on_even_if_it_is_a_system_error(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise InterruptedError

    with (
        locked(tmp_path, give_up),
        pytest.raises(InterruptedError),
        locked(tmp_path, interrupt),
    ):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="file/run: cannot be written"),
        locked(tmp_path / "file/run", give_up),
    ):
        pass
