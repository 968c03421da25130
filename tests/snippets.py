"""The commands and the Python code in README.md and docs/, as readers would copy them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent.parent
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(sh|bash|python|toml|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(protopyramid [^`]+)`")
PROMPT = "$ "


@dataclass(frozen=True)
class Snippet:
    """A block of code in a document; `line` is where it begins."""

    document: Path
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        """Where it stands, for the name of a test."""
        return f"{self.document.relative_to(PROJECT)}:{self.line}"

    @property
    def logical_lines(self) -> list[str]:
        """The lines of a shell block, continued ones joined; of a transcript, those after a prompt."""
        lines = self.text.replace("\\\n", " ").splitlines()
        if self.language == "text":
            return [line.removeprefix(PROMPT) for line in lines if line.startswith(PROMPT)]
        return [line for line in lines if shlex.split(line, comments=True)]

    @property
    def commands(self) -> list[list[str]]:
        """The words of each command line, comments left out; none of Python and TOML."""
        if self.language in ("python", "toml"):
            return []
        return [shlex.split(line, comments=True) for line in self.logical_lines]


def snippets(*languages: str) -> list[Snippet]:
    """All blocks in these languages."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            if match[1] in languages:
                line = text.count("\n", 0, match.start()) + 1
                found.append(Snippet(document, line, match[1], match[2]))
    return found


def inline_commands() -> list[tuple[str, list[str]]]:
    """Commands inside sentences, as (document, words)."""
    return [
        (str(document.relative_to(PROJECT)), shlex.split(match[1].replace("\n", " "))[1:])
        for document in DOCUMENTS
        for match in INLINE.finditer(document.read_text(encoding="utf-8"))
    ]
