"""What README and docs tell readers to type is accepted by the command line, Python and the settings."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from protopyramid.cli.main import app
from protopyramid.config import load_config

from .snippets import PROJECT, Snippet, inline_commands, snippets

MAKEFILE = (PROJECT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))


def parse(words: list[str]) -> Any:
    """Let the command line parse a command without running it; an unknown word or option is an error."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("protopyramid", list(words), resilient_parsing=False)
    while getattr(command, "commands", None):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return context
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    return context


@pytest.mark.parametrize("snippet", snippets("sh", "bash"), ids=lambda s: s.name)
def test_every_command_is_one_that_there_is(snippet: Snippet) -> None:
    for words in snippet.commands:
        if words[0] == "make":
            assert [word for word in words[1:] if "=" not in word and word not in TARGETS] == []
        elif words[0] == "protopyramid":
            try:
                parse(words[1:])
            except typer.Exit:  # --help, --version
                continue
            except Exception as error:
                pytest.fail(f"{' '.join(words)}: {error}")


def test_a_wrong_option_would_be_noticed() -> None:
    for wrong in (["train", "--nonsense"], ["trian"], ["explain", "run", "a.png", "--levl", "2"]):
        with pytest.raises(Exception, match=r"nonsense|trian|levl"):
            parse(wrong)


@pytest.mark.parametrize(
    ("document", "words"),
    inline_commands(),
    ids=lambda each: each if isinstance(each, str) else " ".join(each),
)
def test_a_command_inside_a_sentence_exists_with_its_options(
    document: str, words: list[str]
) -> None:
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    assert not rest or command.name != "protopyramid" or rest[0].startswith("-"), words
    known = {option for each in command.params for option in each.opts} | {"--help", "-h"}
    assert {word.partition("=")[0] for word in rest if word.startswith("-")} <= known
    files = [word for word in rest if word.startswith("studies/")]
    assert [name for name in files if not (PROJECT / name).exists()] == []


@pytest.mark.parametrize("snippet", snippets("python"), ids=lambda s: s.name)
def test_python_is_python(snippet: Snippet) -> None:
    ast.parse(snippet.text)


@pytest.mark.parametrize("snippet", snippets("toml"), ids=lambda s: s.name)
def test_settings_are_settings(snippet: Snippet, tmp_path: Path) -> None:
    content = tomllib.loads(snippet.text)
    if "preset" not in content:
        return
    (tmp_path / "own.toml").write_text(snippet.text, encoding="utf-8")
    assert load_config(tmp_path / "own.toml").data.classes
