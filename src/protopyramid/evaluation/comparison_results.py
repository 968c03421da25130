"""The comparison of several runs: its JSON, CSV and Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from protopyramid.metrics.auroc import Auroc
from protopyramid.metrics.bootstrap import Interval
from protopyramid.metrics.paired_test import Difference
from protopyramid.runs.folder import RunFolder
from protopyramid.utils import typed_json
from protopyramid.utils.tables import Cell, csv_text, markdown_table, number

MEAN = "mean"


@dataclass(frozen=True)
class ComparedRun:
    """A run: AUROC, and the paired test against the first run (None for the first itself)."""

    name: str
    system: str
    run: str
    auroc: Auroc
    against_first: Mapping[str, Difference] | None
    accuracy: float
    ece: float | None


@dataclass(frozen=True)
class LevelLocalisation:
    """Where the prototypes of one level activate."""

    fine: float | None
    lesion: float | None
    area: float | None


@dataclass(frozen=True)
class MethodLocalisation:
    """Where the maps of a run's prototypes, or of a saliency method, activate.

    fine and lesion: activation precision, with interval and chance level.
    """

    method: str
    fine: float | None
    fine_ci95: Interval
    fine_chance: float | None
    lesion: float | None
    lesion_ci95: Interval
    lesion_chance: float | None
    pointing_game: Annotated[float | None, Field(alias="peak_inside")]
    area: float | None
    per_level: Mapping[str, LevelLocalisation]


@dataclass(frozen=True)
class Comparison:
    """`rows`, one per run; `localisation`, one per method; `digest`, that of the images compared on."""

    split: str
    n: int
    patients: int
    classes: tuple[str, ...]
    resamples: int
    rows: tuple[ComparedRun, ...]
    localisation: tuple[MethodLocalisation, ...]
    digest: str = ""  # known while comparing; not part of the JSON

    def markdown(self) -> str:
        """Both tables as Markdown."""
        return _markdown(self)

    def csv(self) -> str:
        """The AUROC and the localisation of each run as one CSV table."""
        return _csv(self)

    def to_json(self) -> dict[str, Any]:
        """The content of comparison.json."""
        content: dict[str, Any] = typed_json.to_json(self)
        del content["digest"]
        return content

    @classmethod
    def from_json(cls, content: object, place: str | Path = "comparison") -> Comparison:
        """The inverse of to_json; UserError that names `place` where the content is damaged."""
        remedy = "compare the runs again with: protopyramid compare"
        return typed_json.from_json(cls, content, place, remedy)

    def write(self, folder: str | Path) -> list[Path]:
        """Write comparison.md, comparison.csv and comparison.json."""
        out = RunFolder(folder)
        return [
            out.write_text("comparison.md", self.markdown()),
            out.write_text("comparison.csv", self.csv()),
            out.write_json("comparison.json", self.to_json()),
        ]


def auroc_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the AUROC table."""
    header = ["system", *comparison.classes, "mean", "difference", "p"]
    table = []
    for row in comparison.rows:
        auroc, test = row.auroc, row.against_first
        cells = [
            number(auroc.per_class[name], auroc.ci95_per_class[name]) for name in comparison.classes
        ]
        tested = ["", ""]
        if test is not None:
            tested = [number(test[MEAN].difference, test[MEAN].ci95), number(test[MEAN].p)]
        table.append([row.name, *cells, number(auroc.mean, auroc.ci95), *tested])
    return header, table


def localisation_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the localisation table, with a row for each level of a pyramid."""
    header = ["method", "fine precision", "chance", "lesion precision", "chance"]
    table = []
    for row in comparison.localisation:
        cells = [number(row.fine, row.fine_ci95), number(row.fine_chance)]
        cells += [number(row.lesion, row.lesion_ci95), number(row.lesion_chance)]
        table.append([row.method, *cells, number(row.pointing_game), number(row.area)])
        if len(row.per_level) > 1:
            for level, of_level in row.per_level.items():
                values = [number(of_level.fine), "", number(of_level.lesion), "", ""]
                table.append([f"  level {level}", *values, number(of_level.area)])
    return [*header, "pointing game", "area"], table


def _markdown(comparison: Comparison) -> str:
    parts = [
        f"# Comparison on split {comparison.split}",
        f"{comparison.n} images of {comparison.patients} patients. AUROC: each class against the "
        "other margins, with 95 % bootstrap intervals over patients "
        f"({comparison.resamples} resamples); difference: mean AUROC minus that of "
        f"{comparison.rows[0].name}, with a paired bootstrap interval and two-sided p.",
        markdown_table(*auroc_table(comparison)),
    ]
    if comparison.localisation:
        parts += [
            "Where the maps of an image's own class activate. Precision: share of their strongest 5 % "
            "of pixels inside the annotation (fine) or the lesion box (lesion); chance: the "
            "annotation's share of the image; pointing game: share of maps whose highest pixel is inside "
            "the fine annotation; area: share of the pixels above half maximum, halfway from the "
            "lowest to the highest value.",
            markdown_table(*localisation_table(comparison)),
        ]
    return "\n\n".join(parts) + "\n"


def _csv(comparison: Comparison) -> str:
    """A table of plain numbers; empty where undefined."""
    header = ["name", "system", "run", "n", "accuracy", "ece"]
    for name in (*comparison.classes, MEAN):
        header += [f"auroc_{name}{end}" for end in ("", "_low", "_high", "_difference")]
        header += [f"auroc_{name}{end}" for end in ("_difference_low", "_difference_high", "_p")]
    localised = ["fine", "fine_chance", "lesion", "lesion_chance", "peak_inside", "area"]
    by_method = {row.method: row for row in comparison.localisation}
    rows: list[list[Cell]] = []
    for row in comparison.rows:
        cells: list[Cell] = [row.name, row.system, row.run, comparison.n, row.accuracy, row.ece]
        for name in (*comparison.classes, MEAN):
            cells += _auroc_cells(row, name)
        found = by_method.pop(row.name, None)
        rows.append([*cells, *([None] * len(localised) if found is None else _place_cells(found))])
    blank: list[Cell] = [None] * (len(header) - 1)
    rows += [[method, *blank, *_place_cells(found)] for method, found in by_method.items()]
    return csv_text([*header, *localised], rows)


def _auroc_cells(row: ComparedRun, name: str) -> list[Cell]:
    """AUROC, its interval, the difference, its interval and p, of a class or the mean."""
    auroc = row.auroc
    value = auroc.mean if name == MEAN else auroc.per_class[name]
    limits = auroc.ci95 if name == MEAN else auroc.ci95_per_class[name]
    test = Difference(None, None, None) if row.against_first is None else row.against_first[name]
    between = test.ci95 or (None, None)
    return [value, *(limits or (None, None)), test.difference, *between, test.p]


def _place_cells(row: MethodLocalisation) -> list[Cell]:
    cells: list[Cell] = [row.fine, row.fine_chance, row.lesion, row.lesion_chance]
    return [*cells, row.pointing_game, row.area]
