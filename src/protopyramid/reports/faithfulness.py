"""The section of the report that says whether what is shown is what was used."""

from __future__ import annotations

import math
from collections.abc import Sequence

from protopyramid.evaluation.evaluate import model_digest
from protopyramid.evaluation.faithfulness_results import (
    Estimate,
    Faithfulness,
    GroupFaithfulness,
    read_faithfulness,
)
from protopyramid.figures.curves import Curve, Plot, curves_figure
from protopyramid.figures.text import percent
from protopyramid.reports import html as page
from protopyramid.reports.html import Cell
from protopyramid.runs.run import Run

WORDS = (
    "The outlined part of an image was tested by replacing pixels. First everything outside the part was "
    "replaced: if the prototype still matches, the part is enough. Then the part itself was replaced: if the "
    "match is gone, the model really used it. 100 % would be the match in the unchanged image."
)
CAPTION = (
    "By the size of the part. Left: lines that rise at once mean that a small part is enough. Right: lines "
    "that fall at once mean that the model used little else."
)


def faithfulness_section(run: Run) -> str:
    """The section, or nothing where this model has not been measured on the test split."""
    found = read_faithfulness(run.folder)
    if found is None or found.model != model_digest(run):
        return ""
    header = ["", "size of the part", "match left with the part alone", "match left without it"]
    header += ["a part elsewhere alone"]
    groups = {f"level {level}": group for level, group in found.per_level.items()}
    rows = [
        _row(name, each) for name, each in ({**groups, **found.per_class, "all": found.all}).items()
    ]
    parts = [page.paragraph(WORDS), page.table(header, rows, total=True)]
    plots = _plots(found)
    if plots:
        figure = curves_figure(plots, "size of the part, % of the image")
        parts.append(page.picture(figure, "match left by share of the image", CAPTION, "png"))
    parts.append(page.paragraph(_matter(found), "muted"))
    return page.section("Is what is shown what was used?", *parts)


def _row(name: str, group: GroupFaithfulness) -> list[Cell]:
    evidence = group.evidence
    cells = [_share(each) for each in (evidence.area, evidence.kept, evidence.removed)]
    return [name, *cells, _share(group.evidence_elsewhere.kept)]


def _share(found: Estimate) -> str:
    if found.mean is None:
        return "–"
    if found.ci95 is None:
        return percent(found.mean)
    low, high = found.ci95
    return f"{percent(found.mean)} ({percent(low)} to {percent(high)})"


def _plots(found: Faithfulness) -> list[Plot]:
    """What is left with the best part alone, and without it; a line per level."""
    levels = {f"level {level}": group.curves for level, group in found.per_level.items()}
    known = {name: curves for name, curves in levels.items() if curves is not None}
    if not known:
        return []
    alone = [_curve(name, each.shares, each.insertion) for name, each in known.items()]
    without = [_curve(name, each.shares, each.deletion) for name, each in known.items()]
    return [
        Plot("Match left with the best part alone, %", alone, (-20, 120)),
        Plot("Match left without the best part, %", without, (-20, 120)),
    ]


def _curve(name: str, shares: Sequence[float], values: Sequence[float | None]) -> Curve:
    y = [math.nan if value is None else 100 * value for value in values]
    return Curve(name, [100 * share for share in shares], y)


def _matter(found: Faithfulness) -> str:
    words = (
        f"Tested on {found.images} images of {found.patients} patients of split {found.split}, with the "
        "strongest prototype of the true class on each level; in brackets 95 % intervals over patients."
    )
    if found.used is None:
        return words
    return (
        f"{words} {len(found.used.matter)} of {found.used.prototypes} prototypes ever matter: they appear in "
        "a figure's five rows or decide a case."
    )
