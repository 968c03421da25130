"""What the commands print."""

from __future__ import annotations

from pathlib import Path

import pytest

from protopyramid.cli.console import say, say_lines
from protopyramid.cli.main import main
from protopyramid.runs import layout
from protopyramid.runs.run import Run


def test_a_result_is_one_line_and_a_text_keeps_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\nb\x1b[31m")
    say_lines("first\nsecond\x07\n  é漢")
    assert capsys.readouterr().out == "a\\nb\\x1b[31m\nfirst\nsecond\\x07\n  é漢\n"


def test_the_card_of_a_strangers_model_does_not_steer_the_terminal(
    new_run, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Run = new_run()
    Path(run.folder / layout.CARD).write_text("# A model\n\n\x1b]0;title\x07\x1b[2Jnothing\n")
    assert main(["models", "show", str(run.folder.path)]) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and "\x07" not in said
    assert "# A model\n\n\\x1b]0;title\\x07\\x1b[2Jnothing\n" in said
