"""What the JSON formats share: every file below the source is read, and none is dropped silently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protopyramid.data.importers.base import Crop, ImportPlan, Options, Skipped
from protopyramid.data.importers.own_labels import finish
from protopyramid.data.importers.reading import (
    Names,
    Unusable,
    read_json,
    relative,
    walk,
)
from protopyramid.data.io.decoding import is_image
from protopyramid.errors import UserError

Content = Mapping[str, Any]


@dataclass
class Findings:
    """What has been found in the JSON files of a source so far.

    known: images that a file refers to; unclear: why images are not films with all lesions known.
    """

    source: Path
    skipped: list[Skipped]
    crops: list[Crop] = field(default_factory=list)
    names: Names = field(default_factory=Names)
    known: set[Path] = field(default_factory=set)
    unclear: dict[Path, str] = field(default_factory=dict)

    def place(self, path: Path) -> str:
        """A file's path below the source."""
        return relative(path, self.source)

    def skip(self, item: str, reason: str, image: Path | None = None) -> None:
        """Leave something out; its image, if it has one, then has a lesion that is not read."""
        self.skipped.append(Skipped(item, reason))
        if image is not None:
            self.unclear.setdefault(image, f"{item}: {reason}")


@dataclass(frozen=True)
class Format:
    """A format of JSON files: its name, the lists that each file has, and what reads a file.

    `read_file` adds what it finds to what was findings, or raises Unusable for the whole file.
    """

    name: str
    lists: Sequence[str]
    read_file: Callable[[Findings, Path, Content], None]


def find_in_json(source: Path, options: Options, kind: Format) -> ImportPlan:
    """The lesions of all files of a format below the source."""
    files, skipped = walk(source)
    findings = Findings(source, skipped)
    paths = [path for path in files if path.suffix.lower() == ".json"]
    if not sum(_take(findings, path, kind) for path in paths):
        tried = {findings.place(path) for path in paths}
        raise UserError(
            f"{source}: holds no {kind.name} file (JSON with {_words(kind.lists)}); "
            + next(
                (f"{skip.item}: {skip.reason}" for skip in skipped if skip.item in tried),
                "give the folder that holds one",
            )
        )
    for path in files:
        if is_image(path) and path not in findings.known:
            findings.skip(findings.place(path), f"image that no {kind.name} file refers to")
    return finish(source, findings.crops, findings.skipped, [], options, findings.unclear)


def _take(findings: Findings, path: Path, kind: Format) -> bool:
    """Read a file; whether it is of the format."""
    ours = False
    try:
        content = read_json(path)
        for name in kind.lists:
            if not isinstance(content.get(name), list):
                raise Unusable(f"not a {kind.name} file: it has no list {name}")
        ours = True
        kind.read_file(findings, path, content)
    except Unusable as error:
        findings.skip(findings.place(path), str(error))
    return ours


def _words(lists: Sequence[str]) -> str:
    return f"a list {lists[0]}" if len(lists) == 1 else f"lists {', '.join(lists)}"
