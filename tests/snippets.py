"""The commands and the Python code in README.md and docs/, as readers would copy them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent.parent
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(sh|bash|python|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


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
    def commands(self) -> list[list[str]]:
        """The words of each command line, continued lines joined, comments left out."""
        joined = self.text.replace("\\\n", " ")
        return [
            words for line in joined.splitlines() if (words := shlex.split(line, comments=True))
        ]


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
