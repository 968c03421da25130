"""The records of prototypes.json: where each prototype comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from protopyramid.errors import UserError
from protopyramid.runs import layout
from protopyramid.runs.folder import RunFolder

# The types of an entry's values, besides the box. An integer is a number, too.
TYPES: dict[str, tuple[type, ...]] = {
    "index": (int,),
    "class": (str,),
    "level": (int,),
    "image": (str,),
    "row": (int,),
    "col": (int,),
    "similarity": (float, int),
}


@dataclass(frozen=True)
class PrototypeRecord:
    """Where a prototype comes from.

    `image` is the name of its source image in the manifest; `row` and `col` its cell on the level's map;
    `similarity` that to the nearest patch just before projection; `box` the part of the source image on
    which the prototype activates, as fractions x0, y0, x1, y1; `label` the class of the source image, which
    is another than the prototype's where projection searches all images. None: not recorded.
    """

    index: int
    class_name: str
    level: int
    image: str
    row: int
    col: int
    similarity: float
    box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    label: str | None = None

    @property
    def other_label(self) -> str | None:
        """The label of the source image where it is known to be another than the prototype's class."""
        return None if self.label in (None, self.class_name) else self.label

    def to_json(self) -> dict[str, Any]:
        """The entry of prototypes.json, where the class is called `class`."""
        content = asdict(self)
        if self.label is None:
            del content["label"]
        ordered = {"index": content.pop("index"), "class": content.pop("class_name")}
        return {**ordered, **content, "box": list(self.box)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PrototypeRecord:
        """The record of an entry of prototypes.json; ValueError where it has another shape.

        Keys that this version does not know are ignored.
        """
        problem = _problem(content)
        if problem:
            raise ValueError(problem)
        values = {key: content[key] for key in TYPES if key != "class"}
        return cls(
            class_name=content["class"],
            box=tuple(content["box"]),
            label=content.get("label"),
            **values,
        )


def read_prototypes(folder: RunFolder) -> list[PrototypeRecord]:
    """Read prototypes.json; UserError where it is missing or has another shape."""
    entries = folder.read_json(layout.PROTOTYPES)
    try:
        if not isinstance(entries, list):
            raise ValueError("expected a list of prototypes")
        return [PrototypeRecord.from_json(entry) for entry in entries]
    except ValueError as error:
        raise UserError(
            f"{folder / layout.PROTOTYPES}: {error}; the file is damaged: "
            "restore it, or train the run again"
        ) from None


def _problem(content: object) -> str:
    """What is wrong with an entry of prototypes.json, or ""."""
    if not isinstance(content, Mapping):
        return f"expected an object for each prototype, got {content!r}"
    for key, types in TYPES.items():
        if key not in content:
            return f'a prototype has no "{key}"'
        if not _is(content[key], types):
            return f'a prototype\'s "{key}" is {content[key]!r}'
    if not isinstance(content.get("label"), str | None):
        return f'a prototype\'s "label" is {content["label"]!r}'
    box = content.get("box")
    if not isinstance(box, list | tuple) or len(box) != 4:
        return f"a prototype's box is not four numbers but {box!r}"
    if not all(_is(side, (float, int)) for side in box):
        return f"a prototype's box is not four numbers but {box!r}"
    return ""


def _is(value: object, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)
