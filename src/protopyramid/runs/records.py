"""Records of a run folder: where each prototype comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class PrototypeRecord:
    """Where a prototype comes from.

    `image` is the source image's name in its manifest; row and col its cell on the level's map;
    similarity that to the nearest patch just before projection; box the part of the source image that
    the prototype activates on, as fractions x0, y0, x1, y1.
    """

    index: int
    class_name: str
    level: int
    image: str
    row: int
    col: int
    similarity: float
    box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)

    def to_json(self) -> dict[str, Any]:
        """The record as it stands in prototypes.json, where the class is called `class`."""
        content = asdict(self)
        ordered = {"index": content.pop("index"), "class": content.pop("class_name")}
        return {**ordered, **content, "box": list(self.box)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> PrototypeRecord:
        """The record of an entry of prototypes.json."""
        rest = {key: value for key, value in content.items() if key not in ("class", "box")}
        return cls(class_name=content["class"], box=tuple(content["box"]), **rest)
